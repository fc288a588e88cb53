//! The way of chunks from the buffer to the store, as docs/format.md orders it under "Writing".
//!
//! | step | what | where |
//! |---|---|---|
//! | W1 | commit first if a chunk would get a second slot above the base | `load` |
//! | W2 | leave a clean record, with a sync | `load`, `records` |
//! | – | seal the chunks | `seal` |
//! | W3 | put the slots into the tree; write the record and the slots | `assign`, `store` |
//! | W4 | sync them, if data of the base is overwritten | `store` |
//! | W5 | write the chunks; free the space of holes | `store`, `settle` |
//! | C1–C3 | commit: sync, the version is the base, write a record that says so | `durable` |
//! | C4–C6 | the clean record | `clean` |
//! | T1–T4 | a cut to a smaller size | `cut` |
//!
//! A file's writes complete in the order in which they started, and only the first one goes to the store: to the store
//! they are flushes one after the other. Sealing and storing need the write's own lock alone. What changes in the file's
//! state is done under the state's lock as well, which is taken first. Whoever has the state's lock can complete a write from any
//! stage, so nobody waits for a thread that has not begun. A write that fails gives its chunks back to the buffer.

mod assign;
mod clean;
mod cut;
mod durable;
mod load;
mod records;
mod seal;
mod settle;
mod store;
mod writes;

use super::{
    File,
    in_flight::{InFlight, Stage},
    rules::{Rule, holds},
    state::State,
};
use crate::vault::{Error, Result};
use std::{ops::Range, sync::Arc};

pub use clean::CleanStep;
pub(super) use load::Changed;
pub(super) use records::SyncKind;

/// Writes of a file in flight at the same time: one is stored while the next is sealed.
pub(super) const MOST_IN_FLIGHT: usize = 3;

impl File {
    /// Starts a write in the background. Completes the first one if there are too many.
    pub(super) fn start(self: &Arc<Self>, st: &mut State, write: InFlight) {
        let write = Arc::new(write);
        st.dirty.in_flight.push_back(write.clone());
        self.complete_until(st, MOST_IN_FLIGHT);
        if !self.context.background.has_threads() {
            return self.complete_all(st);
        }
        let file = self.clone();
        self.context.background.run(move || {
            write.stage.lock().seal(&file.context.router);
            drop(write);
            file.complete_behind();
        });
    }

    /// Does a write here and now. No other may be in flight.
    ///
    /// # Errors
    /// The store's. Its chunks are in the buffer again, or wait to be finished.
    pub(super) fn run(&self, st: &mut State, write: InFlight) -> Result<()> {
        st.dirty.in_flight.push_back(Arc::new(write));
        self.complete_first(st)
    }

    /// Takes the first write through all steps that are left of it. If it fails, those behind it are given back, too.
    ///
    /// # Errors
    /// The store's, or the engine's.
    pub(super) fn complete_first(&self, st: &mut State) -> Result<()> {
        let Some(write) = st.dirty.in_flight.front().cloned() else { return Ok(()) };
        let mut stage = write.stage.lock();
        stage.seal(&self.context.router);
        self.assign(st, &write, &mut stage);
        self.store(&mut stage);
        self.settle(st, &write, &mut stage)
    }

    /// The same behind the application's back, for as many writes as are sealed. Those that another thread is at, or that wait
    /// to be sealed, are left to that thread. The state is free while one is stored.
    fn complete_behind(&self) {
        let mut st = self.state.write();
        while let Some(write) = st.dirty.in_flight.front().cloned() {
            let Some(mut stage) = write.stage.try_lock() else { return };
            if matches!(*stage, Stage::Loaded(_)) {
                return;
            }
            self.assign(&mut st, &write, &mut stage);
            if matches!(*stage, Stage::Assigned(_)) {
                drop(st);
                self.store(&mut stage);
                drop(stage);
                st = self.state.write();
                continue; // another thread may have settled it meanwhile
            }
            log_failure(self.settle(&mut st, &write, &mut stage));
        }
    }

    /// Completes the first writes until no more than `left` are in flight. What fails is buffered again, and the next flush
    /// meets the error.
    pub(super) fn complete_until(&self, st: &mut State, left: usize) {
        while st.dirty.in_flight.len() > left {
            log_failure(self.complete_first(st));
        }
    }

    /// Completes all writes in flight; as `complete_until`.
    pub(super) fn complete_all(&self, st: &mut State) {
        self.complete_until(st, 0);
    }

    /// Whether chunks of a range are in flight.
    pub(super) fn is_in_flight(st: &State, chunks: &Range<u64>) -> bool {
        st.dirty.in_flight.iter().any(|write| write.touches(chunks))
    }

    /// Completes all writes if chunks of a range are among them, before these are read.
    pub(super) fn complete_to_read(&self, st: &mut State, chunks: &Range<u64>) {
        if File::is_in_flight(st, chunks) && holds(Rule::CompleteBeforeReading) {
            self.complete_all(st);
        }
    }

    /// The same, before a part of them is changed.
    pub(super) fn complete_to_change(&self, st: &mut State, chunks: &Range<u64>) {
        if File::is_in_flight(st, chunks) && holds(Rule::CompleteBeforeChanging) {
            self.complete_all(st);
        }
    }
}

fn log_failure(completed: std::result::Result<(), Error>) {
    if let Err(e) = completed {
        log::debug!("what was written could not be stored in the background: {e}");
    }
}
