//! Flush: which chunks leave the write buffer, when, and in how many writes.
//!
//! Each full extent is one write, and so are the individually buffered chunks together. A flush waits for
//! its writes. `extents` and `singles` start writes in the background, and `close` decides which data a
//! close leaves to the flusher.

mod close;
mod extents;
mod seek;
mod singles;

use super::{
    buffer::Extent,
    commit::{Changed, Committer},
    error::Result,
    file_core::FileCore,
    record_writer::SyncKind,
    rules::{Rule, holds},
    state::State,
};
use format::layout::{self, PAGE};
use std::sync::Arc;

/// Empties the write buffer.
#[derive(Clone, Copy)]
pub(super) struct Flusher<'a> {
    core: &'a Arc<FileCore>,
}

impl<'a> Flusher<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>) -> Self {
        Flusher { core }
    }

    fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    /// Flushes everything buffered or in flight.
    ///
    /// # Errors
    /// The store's. Data that could not be stored stays buffered.
    pub(super) fn flush_all(&self, st: &mut State) -> Result<()> {
        self.committer().complete_all(st);
        st.dirty.gaps.clear();
        let changed = all_changed(st);
        let size = st.dirty.size.max(st.stored.tree.size());
        let repair = st.stored.leftover.is_some() && holds(Rule::FlushAfterFailure);
        if !changed.is_empty() || size > st.stored.tree.size() || repair {
            let extents: Vec<u64> = st.dirty.buffer.extents().iter().map(Extent::first).collect();
            self.flush_now(st, size, &changed, &extents)?;
        }
        self.give_back_places(st);
        st.dirty.buffer.end_streams();
        st.dirty.write_failed = false;
        Ok(())
    }

    /// Flushes everything, and makes it durable.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn sync(&self, st: &mut State, what: SyncKind) -> Result<()> {
        self.committer().begin_change(st)?;
        self.flush_all(st)?;
        self.committer().commit_with(st, what)
    }

    /// Flushes no chunks, only a record: to create the first one, or to correct the newest.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn flush_record(&self, st: &mut State) -> Result<()> {
        self.committer().complete_all(st);
        self.flush_now(st, st.stored.tree.size(), &Changed::default(), &[])
    }

    /// Flushes these chunks synchronously. Nothing may be in flight.
    fn flush_now(&self, st: &mut State, size: u64, changed: &Changed, extents: &[u64]) -> Result<()> {
        self.committer().prepare_to_load(st, changed)?;
        let write = self.committer().load_write(st, size, changed, extents)?;
        self.committer().run(st, write)
    }

    /// Releases space reserved past the end of the stored file that no buffered data needs any more.
    fn give_back_places(&self, st: &mut State) {
        let end = layout::stored_size(st.stored.tree.size()).next_multiple_of(PAGE);
        if std::mem::take(&mut st.dirty.reserved) <= end || (self.core.backing.context.guard)().is_err() {
            return;
        }
        // Setting the present length frees the space past it.
        if let Err(e) = self.core.backing.store.len().and_then(|len| self.core.backing.store.set_len(len)) {
            log::debug!("reserved space could not be given back: {e}");
        }
        st.restore_mtime(&*self.core.backing.store);
    }
}

/// Everything that is buffered.
fn all_changed(st: &State) -> Changed {
    Changed { chunks: st.dirty.buffer.written(0..u64::MAX), holes: st.dirty.buffer.holes(0..u64::MAX) }
}

/// Size of the flushed version once these chunks are part of it.
fn size_with(st: &State, changed: &Changed) -> u64 {
    st.dirty.size.min(changed.range().end * layout::CHUNK).max(st.planned_size())
}

/// The flushed version's last chunk, if it is incomplete and the file has grown since. It must be written
/// again before, or together with, anything that makes the version larger, because its tag covers its
/// length.
fn growing_end(st: &State) -> Option<u64> {
    let planned = st.planned_size();
    (st.dirty.size > planned && !planned.is_multiple_of(layout::CHUNK)).then_some(planned / layout::CHUNK)
}
