//! The path of chunks from the buffer to the store, in the order of docs/format.md, "Writing".
//!
//! | step | action | module |
//! |---|---|---|
//! | W1 | commit first if a chunk would get a second slot above the base | `load` |
//! | W2 | if the newest record may be clean, make a dirty one durable first | `load`, `record_writer` |
//! | – | seal the chunks | `seal` |
//! | W3 | put the slots into the tree; write the record and the slots | `assign`, `store` |
//! | W4 | sync them if data of the base is overwritten | `store` |
//! | W5 | write the chunks; free the space of holes | `store`, `settle` |
//! | C1–C3 | commit: sync, make the version the base, write a record that names it | `durable` |
//!
//! The steps of the clean record (C4–C6) are in `clean`, those of a truncation (T1–T4) in `write::cut`.
//!
//! A file's writes complete in the order in which they started, and only the first one is written to the
//! store, so the store sees successive flushes. Sealing and storing need only the write's own lock. Steps
//! that change the file's state also need the state's lock, which is taken first. A thread with the
//! state's lock can complete a write from any stage, so no thread waits for a job that has not begun. A
//! write that fails returns its chunks to the buffer.

mod assign;
mod durable;
mod load;
mod seal;
mod settle;
mod store;
mod writes;

use super::{
    backing::Backing,
    error::{Error, Result},
    file_core::FileCore,
    in_flight::{InFlight, Stage},
    record_writer::RecordWriter,
    recover::CrashRecovery,
    rules::{Rule, holds},
    state::{Fault, State, wrong_length},
};
use std::{ops::Range, sync::Arc};

pub(super) use assign::set_slots;
pub(super) use load::Changed;

/// Maximum writes of a file in flight: one is stored while the next is sealed.
pub(super) const MOST_IN_FLIGHT: usize = 3;

/// Takes writes from the buffer to the store, and makes them durable.
#[derive(Clone, Copy)]
pub(super) struct Committer<'a> {
    backing: &'a Backing,
}

impl<'a> Committer<'a> {
    pub(super) fn of(backing: &'a Backing) -> Self {
        Committer { backing }
    }

    fn records(&self) -> RecordWriter<'a> {
        RecordWriter::of(self.backing)
    }

    fn recovery(&self) -> CrashRecovery<'a> {
        CrashRecovery::of(self.backing)
    }

    /// Begins a change of the file: assigns a new content id, and writes a recovery that could not be
    /// written earlier.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn begin_change(&self, st: &mut State) -> Result<()> {
        if self.backing.context.read_only {
            return Err(Error::ReadOnly);
        }
        (self.backing.context.guard)()?;
        if self.backing.lacks_lease() {
            return Err(Error::os(libc::EAGAIN)); // Unreachable: the caller holds the lease.
        }
        st.times.bump_content_version();
        match st.fault {
            None => Ok(()),
            Some(Fault::SyncFailed) if !holds(Rule::StopAfterFailedSync) => Ok(()),
            Some(Fault::SyncFailed | Fault::Broken | Fault::Away | Fault::Lost) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_)) => Err(wrong_length()),
            // Nothing was written meanwhile, so the stored file still tells everything.
            Some(Fault::NotRecovered) => self.recovery().finish_recovery(st),
        }
    }

    /// Starts a write in the background. If too many are in flight, completes the first one.
    pub(super) fn start(&self, core: &Arc<FileCore>, st: &mut State, write: InFlight) {
        let write = Arc::new(write);
        st.dirty.in_flight.push_back(write.clone());
        self.complete_until(st, MOST_IN_FLIGHT);
        if !self.backing.context.background.has_threads() {
            return self.complete_all(st);
        }
        let core = core.clone();
        self.backing.context.background.run(move || {
            write.stage.lock().seal(&core.backing.context.router);
            drop(write);
            complete_behind(&core);
        });
    }

    /// Completes a write synchronously. No other may be in flight.
    ///
    /// # Errors
    /// The store's. The chunks are in the buffer again, or in `unfinished`.
    pub(super) fn run(&self, st: &mut State, write: InFlight) -> Result<()> {
        st.dirty.in_flight.push_back(Arc::new(write));
        self.complete_first(st)
    }

    /// Takes the first write through its remaining steps. If it fails, all writes behind it return their
    /// chunks, too.
    ///
    /// # Errors
    /// The store's, or the engine's.
    pub(super) fn complete_first(&self, st: &mut State) -> Result<()> {
        let Some(write) = st.dirty.in_flight.front().cloned() else { return Ok(()) };
        let mut stage = write.stage.lock();
        stage.seal(&self.backing.context.router);
        self.assign(st, &write, &mut stage);
        self.store(&mut stage);
        self.settle(st, &write, &mut stage)
    }

    /// Completes writes, oldest first, until at most `left` are in flight. A failed write is buffered
    /// again, and the next flush reports the error.
    pub(super) fn complete_until(&self, st: &mut State, left: usize) {
        while st.dirty.in_flight.len() > left {
            log_failure(self.complete_first(st));
        }
    }

    /// Completes all writes in flight. Errors are handled as in `complete_until`.
    pub(super) fn complete_all(&self, st: &mut State) {
        self.complete_until(st, 0);
    }

    /// Completes all writes if any of them has chunks of a range that is about to be read.
    pub(super) fn complete_to_read(&self, st: &mut State, chunks: &Range<u64>) {
        if st.dirty.is_in_flight(chunks) && holds(Rule::CompleteBeforeReading) {
            self.complete_all(st);
        }
    }

    /// Completes all writes if any of them has chunks of a range that is about to be changed in part.
    pub(super) fn complete_to_change(&self, st: &mut State, chunks: &Range<u64>) {
        if st.dirty.is_in_flight(chunks) && holds(Rule::CompleteBeforeChanging) {
            self.complete_all(st);
        }
    }
}

/// Like `complete_first`, but called by a background thread, and for all writes that are sealed. A write
/// that another thread is working on, or that is not sealed yet, is left to that thread. The state is
/// unlocked while a write is stored.
fn complete_behind(core: &FileCore) {
    let committer = Committer::of(&core.backing);
    let mut st = core.state.write();
    while let Some(write) = st.dirty.in_flight.front().cloned() {
        let Some(mut stage) = write.stage.try_lock() else { return };
        if matches!(*stage, Stage::Loaded(_)) {
            return;
        }
        committer.assign(&mut st, &write, &mut stage);
        if matches!(*stage, Stage::Assigned(_)) {
            drop(st);
            committer.store(&mut stage);
            drop(stage);
            st = core.state.write();
            continue; // Another thread may have settled it meanwhile.
        }
        log_failure(committer.settle(&mut st, &write, &mut stage));
    }
}

fn log_failure(completed: std::result::Result<(), Error>) {
    if let Err(e) = completed {
        log::debug!("what was written could not be stored in the background: {e}");
    }
}
