//! Reads at the file's state: from the write buffer and the store.

use super::{
    locate::{LONG, few_to_load, is_at_hand, missing_groups},
    small::ChunkReader,
};
use crate::{
    chunk_range::ChunkRange, commit::Committer, error::Result, file_core::FileCore, state::State,
    sync::RwLockReadGuard,
};
use crypto::chunk::CHUNK;
use format::layout;

/// A read of at least `LONG` chunks also loads the slots of the next groups, this many (8 MiB). A reader of
/// a long range often continues. Loading slots takes the write lock, which waits for the file's current
/// readers and blocks new ones.
const ALONG: u64 = 32;
/// Maximum bytes that are read chunk by chunk on the caller's thread. Longer reads use a batch.
pub(super) const SMALL: usize = 7 * CHUNK;
/// Maximum bytes that a long read opens at once.
const AT_ONCE: usize = 4 << 20;

/// Reads any bytes of a file, and locks its state for that.
#[derive(Clone, Copy)]
pub(crate) struct RangeReader<'a> {
    pub(super) core: &'a FileCore,
}

impl<'a> RangeReader<'a> {
    pub(crate) fn of(core: &'a FileCore) -> Self {
        RangeReader { core }
    }

    pub(super) fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    pub(super) fn chunks(&self) -> ChunkReader<'a> {
        ChunkReader::of(&self.core.backing)
    }

    /// The file's state, with the slots of these chunks loaded, if they exist, and none of the chunks in
    /// flight.
    pub(super) fn state_with_slots(&self, chunks: &ChunkRange) -> Result<RwLockReadGuard<'_, State>> {
        let st = self.core.state.read();
        if is_at_hand(&st, chunks) {
            return Ok(st);
        }
        if let Some(groups) = few_to_load(&st, chunks)
            && let Some(identity) = &st.stored.identity
            && st.stored.tree.load_beside(self.core.backing.source(identity), groups)
        {
            return Ok(st);
        }
        drop(st);
        let mut st = self.core.state.write();
        self.committer().complete_to_read(&mut st, chunks);
        if let Some((groups, identity)) = missing_groups(&st, chunks).zip(st.stored.identity.clone()) {
            let (source, tree) = (self.core.backing.source(&identity), &mut st.stored.tree);
            tree.trim_cache();
            tree.load_all(source, groups.clone())?;
            if chunks.end - chunks.start >= LONG {
                let end = layout::groups(tree.size()).min(groups.end + ALONG);
                tree.load_along(source, groups.end..end);
            }
        }
        Ok(st.downgrade())
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As `read_to`; the content of `out` is then unspecified.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if out.len() > SMALL {
            return self.read_large(offset, out);
        }
        let end = offset.saturating_add(out.len() as u64);
        let st = self.state_with_slots(&(offset / layout::CHUNK..end.div_ceil(layout::CHUNK)))?;
        st.check_readable(end)?;
        let len = st.available(offset, out.len());
        self.chunks().read_loaded(&st, offset, &mut out[..len])?;
        Ok(len)
    }

    /// `read` for long reads.
    fn read_large(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let size = {
                let st = self.core.state.read();
                st.check_readable(offset.saturating_add(out.len() as u64))?;
                st.dirty.size
            };
            let end = size.min(at.saturating_add((out.len() - done).min(AT_ONCE) as u64));
            if at >= end {
                break;
            }
            let opened = self.decrypt_range(at / layout::CHUNK..layout::chunks(end))?;
            let part = opened.part(at, (end - at) as usize);
            if part.is_empty() {
                break; // Truncated meanwhile.
            }
            out[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        }
        Ok(done)
    }
}
