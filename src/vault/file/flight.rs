//! A flight: chunks that left the buffer for the store, sealed and written behind the application's back.
//!
//! A file's flights land in the order in which they took off, and only the first one writes: to the store
//! they are flushes one after the other. Sealing and writing need the flight's own lock alone; what it changes in
//! the file's state is done under the state's lock as well, which is taken first. Whoever has the state's
//! lock can bring a flight to its end from any stage, so nobody waits for a thread that has not begun.
//! A flight that fails gives its chunks back to the buffer.

use super::{
    File,
    buffer::{Plain, Share},
    rules::{Rule, holds},
    state::{Fault, Identity, State},
    version::{self, Prepared, WriteError},
};
use crate::{
    crypto::chunk::CHUNK,
    engine::{Batch, Router},
    metrics::{self, Activity},
    vault::{Error, Result, sync::Mutex},
};
use std::{ops::Range, sync::Arc};

/// Flights of a file that are on their way at the same time: one is written while the next is sealed.
pub(super) const MOST: usize = 3;

/// Chunks on their way to the store.
pub(super) struct Flight {
    pub(super) identity: Arc<Identity>,
    pub(super) epoch: u64,
    /// Size of the version that it makes.
    pub(super) size: u64,
    /// Chunks that become holes, ascending.
    pub(super) holes: Vec<u64>,
    /// Its chunks, with data and to become holes, ascending.
    pub(super) all: Vec<u64>,
    /// How many chunks with data it has.
    pub(super) chunks: usize,
    pub(super) work: Mutex<Work>,
}

/// What is worked on.
pub(super) struct Work {
    /// One for each stripe; none if there are holes alone, or nothing.
    pub(super) batches: Vec<Batch>,
    /// Chunks of the last batch, in its order, that are still to be copied to it: whoever takes them out of the buffer
    /// keeps the file's writers waiting.
    pub(super) singles: Vec<Plain>,
    /// Counts its chunks as buffered.
    pub(super) share: Option<Share>,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Plaintext is in the batches, or beside the last one.
    Loaded,
    /// Slots are known.
    Sealed,
    /// The tree has the slots; what goes to the store is known.
    Prepared(Prepared),
    /// What became of it.
    Done(Outcome),
    /// Over.
    Landed,
}

/// How the way to the store ended.
pub(super) enum Outcome {
    Written(Prepared),
    /// The store was not touched.
    Refused(Error),
    /// Record and slots may be in the store; nothing that the base needs was overwritten.
    Failed(Prepared, Error),
    /// The same, because of a sync.
    SyncFailed(Prepared, Error),
    /// Slots are in the store and durable, their data is not.
    Unfinished(Prepared, Error),
}

impl Work {
    /// Brings all plaintext into the batches.
    fn gather(&mut self) {
        let singles = std::mem::take(&mut self.singles);
        if let Some(batch) = self.batches.last_mut() {
            for (place, plain) in batch.input.as_chunks_mut::<CHUNK>().0.iter_mut().zip(&singles) {
                *place = **plain;
            }
        }
        if let Some(share) = &self.share {
            share.keep(singles);
        }
    }

    /// The batches, with all plaintext: nothing is left to do.
    fn end(&mut self) -> Vec<Batch> {
        self.gather();
        (self.stage, self.share) = (Stage::Landed, None);
        std::mem::take(&mut self.batches)
    }
}

impl Flight {
    /// Whether it has a chunk of a range.
    fn meets(&self, chunks: &Range<u64>) -> bool {
        let first = self.all.partition_point(|index| *index < chunks.start);
        self.all.get(first).is_some_and(|index| *index < chunks.end)
    }

    /// Seals the batches, unless that was done.
    fn seal(work: &mut Work, router: &Router) {
        if !matches!(work.stage, Stage::Loaded) {
            return;
        }
        work.gather();
        let run = |batch: &mut Batch| {
            let bytes = batch.jobs.iter().map(|job| job.len).sum();
            metrics::measure(Activity::Batch, bytes, || router.run(batch))
        };
        work.stage = match work.batches.iter_mut().try_for_each(run) {
            Ok(()) => Stage::Sealed,
            Err(e) => Stage::Done(Outcome::Refused(e.into())),
        };
    }
}

impl File {
    /// Whether chunks of a range are on their way to the store.
    pub(super) fn in_flight(st: &State, chunks: &Range<u64>) -> bool {
        st.flights.iter().any(|flight| flight.meets(chunks))
    }

    /// Brings all flights to their end if chunks of a range are among them: it is for the store to tell what is
    /// in those, or for the buffer.
    pub(super) fn land(&self, st: &mut State, chunks: Range<u64>) {
        if File::in_flight(st, &chunks) {
            self.land_all(st);
        }
    }

    /// The same for whoever changes them.
    pub(super) fn land_to_change(&self, st: &mut State, chunks: Range<u64>) {
        if holds(Rule::LandBeforeChanging) {
            self.land(st, chunks);
        }
    }

    /// Lets a flight take off in the background; waits for the first one if there are too many.
    pub(super) fn launch(self: &Arc<Self>, st: &mut State, flight: Flight) {
        let flight = Arc::new(flight);
        st.flights.push_back(flight.clone());
        self.land_until(st, MOST);
        if !self.context.background.has_threads() {
            return self.land_all(st);
        }
        let file = self.clone();
        self.context.background.run(move || {
            Flight::seal(&mut flight.work.lock(), &file.context.router);
            drop(flight);
            file.land_behind();
        });
    }

    /// Brings a flight to its end here and now; none else is on its way.
    pub(super) fn fly(&self, st: &mut State, flight: Flight) -> Result<()> {
        st.flights.push_back(Arc::new(flight));
        self.land_first(st)
    }

    /// Brings all flights to their end. What failed is buffered again; whoever flushes it meets the error.
    pub(super) fn land_all(&self, st: &mut State) {
        self.land_until(st, 0);
    }

    /// As `land_all`, until no more than `left` are on their way.
    pub(super) fn land_until(&self, st: &mut State, left: usize) {
        while st.flights.len() > left {
            if let Err(e) = self.land_first(st) {
                log::debug!("what was written could not be stored behind: {e}");
            }
        }
    }

    /// Brings the first flight to its end, whatever its stage. If it fails, all behind it are given up, too.
    pub(super) fn land_first(&self, st: &mut State) -> Result<()> {
        let Some(flight) = st.flights.front().cloned() else { return Ok(()) };
        let mut work = flight.work.lock();
        Flight::seal(&mut work, &self.context.router);
        self.prepare(st, &flight, &mut work);
        self.bring(&mut work);
        self.settle(st, &flight, &mut work)
    }

    /// Lands as many flights as are ready. Those that somebody is at, or that wait to be sealed, are left to
    /// whoever does that.
    fn land_behind(&self) {
        let mut st = self.state.write();
        while let Some(flight) = st.flights.front().cloned() {
            let Some(mut work) = flight.work.try_lock() else { return };
            if matches!(work.stage, Stage::Loaded) {
                return;
            }
            self.prepare(&mut st, &flight, &mut work);
            if matches!(work.stage, Stage::Prepared(_)) {
                drop(st);
                self.bring(&mut work);
                drop(work);
                st = self.state.write();
                continue; // somebody else may have settled it meanwhile
            }
            if let Err(e) = self.settle(&mut st, &flight, &mut work) {
                log::debug!("what was written could not be stored behind: {e}");
            }
        }
    }

    /// Puts the slots of a sealed flight, the first one, into the tree.
    fn prepare(&self, st: &mut State, flight: &Flight, work: &mut Work) {
        if matches!(work.stage, Stage::Sealed) {
            work.stage = match self.prepare_version(st, flight, &work.batches) {
                Ok(prepared) => Stage::Prepared(prepared),
                Err(e) => {
                    st.tree.take_back();
                    Stage::Done(Outcome::Refused(e))
                }
            };
        }
    }

    /// Brings a prepared flight to the store.
    fn bring(&self, work: &mut Work) {
        let Stage::Prepared(prepared) = &work.stage else { return };
        let written = self.write_version(prepared, &work.batches);
        if let Stage::Prepared(prepared) = std::mem::replace(&mut work.stage, Stage::Landed) {
            work.stage = Stage::Done(match written {
                Ok(()) => Outcome::Written(prepared),
                Err(WriteError::Slots(e)) => Outcome::Failed(prepared, e.into()),
                Err(WriteError::Sync(e)) => Outcome::SyncFailed(prepared, e.into()),
                Err(WriteError::Data(e)) => Outcome::Unfinished(prepared, e.into()),
            });
        }
    }

    /// Ends the first flight: the state says what the store has.
    fn settle(&self, st: &mut State, flight: &Arc<Flight>, work: &mut Work) -> Result<()> {
        st.flights.pop_front();
        let stage = std::mem::replace(&mut work.stage, Stage::Landed);
        // Whoever still knows of the flight must not keep its memory.
        let batches = work.end();
        let Stage::Done(outcome) = stage else { return Ok(()) };
        let error = match outcome {
            Outcome::Written(prepared) => {
                let freed = self.accept(st, prepared, flight);
                self.after_data(st, &freed, flight);
                return Ok(());
            }
            Outcome::Refused(e) => e,
            Outcome::Failed(prepared, e) => {
                st.tree.take_back();
                st.note_leftover(prepared.into_groups());
                e
            }
            Outcome::SyncFailed(prepared, e) => {
                st.tree.take_back();
                st.note_leftover(prepared.into_groups());
                st.fault = Some(Fault::SyncFailed);
                e
            }
            Outcome::Unfinished(prepared, e) => {
                self.accept(st, prepared, flight);
                st.pending = version::pending(&batches);
                e
            }
        };
        self.restore_mtime(st);
        st.flight_failed = true;
        give_back(st, &batches);
        for behind in std::mem::take(&mut st.flights) {
            give_back(st, &behind.work.lock().end());
        }
        Err(error)
    }
}

/// Puts what could not be written into the buffer again, unless that has something newer.
fn give_back(st: &mut State, batches: &[Batch]) {
    for (batch, job) in version::jobs(batches) {
        if !st.buffer.holds(job.id.index) || !holds(Rule::KeepNewer) {
            let mut plain = Plain::zeros();
            plain[..job.len].copy_from_slice(&batch.input[job.offset..][..job.len]);
            st.buffer.insert(job.id.index, &plain);
        }
    }
}
