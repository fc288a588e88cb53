//! Small reads of one file that arrived together. Each returns the same result as alone, but they are
//! verified together, which takes hardly longer than a single read.

use super::{ContentReader, locate::is_at_hand, small::read_unstored};
use crate::{
    chunk_range::{ChunkRange, chunks_of},
    error::{Error, Result},
    state::State,
};

/// A read and its destination.
pub struct SmallRead<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Destination, as long as the read.
    pub out: &'a mut [u8],
}

impl SmallRead<'_> {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.out.len() as u64)
    }

    fn chunks(&self) -> ChunkRange {
        chunks_of(&(self.offset..self.end()))
    }

    /// Number of bytes that are before the end of the file.
    fn len(&self, st: &State) -> usize {
        st.available(self.offset, self.out.len())
    }
}

impl ContentReader<'_> {
    /// Performs these reads. Those that are not ready, or one of which is damaged, are left to `alone`.
    pub(crate) fn read_together(
        &self,
        reads: &mut [SmallRead],
        alone: impl Fn(&mut SmallRead) -> Result<usize>,
    ) -> Vec<Result<usize>> {
        let mut done: Vec<_> = reads.iter_mut().map(|read| self.read_ahead(read)).collect();
        let mut rest: Vec<_> = done.iter_mut().zip(&mut *reads).filter(|(done, _)| done.is_none()).collect();
        self.read_side_by_side(&mut rest);
        // Slow path: one by one, to report the error precisely.
        let rest = |(done, read): (Option<_>, &mut SmallRead)| done.unwrap_or_else(|| alone(read));
        done.into_iter().zip(reads).map(rest).collect()
    }

    /// Records a read, and performs it if a window holds part of it.
    fn read_ahead(&self, read: &mut SmallRead) -> Option<Result<usize>> {
        match self.note_request(read.offset, read.out.len()) {
            Ok(found) if found.windows.is_empty() => None,
            Ok(found) => match self.gather(&found, &mut read.out[..found.len()]) {
                // Another machine may have changed it: `read` looks again.
                Err(Error::Damaged(_)) if self.core.backing.context.sharing.is_some() => None,
                done => Some(done),
            },
            Err(e) => Some(Err(e)),
        }
    }

    /// Performs the reads whose chunks are all ready; none of them if one fails.
    fn read_side_by_side(&self, reads: &mut [(&mut Option<Result<usize>>, &mut SmallRead)]) {
        let st = self.core.state.read();
        let is_easy =
            |read: &SmallRead| is_at_hand(&st, &read.chunks()) && st.check_readable(read.end()).is_ok();
        let mut easy: Vec<_> = reads.iter_mut().filter(|(_, read)| is_easy(read)).collect();
        let mut wanted = Vec::new();
        let look = easy.iter_mut().try_for_each(|(_, read)| {
            let len = read.len(&st);
            read_unstored(&st, read.offset, &mut read.out[..len], &mut wanted)
        });
        if look.and_then(|()| self.ranges().chunks().decrypt_wanted(&st, &mut wanted)).is_ok() {
            easy.iter_mut().for_each(|(done, read)| **done = Some(Ok(read.len(&st))));
        }
    }
}
