//! Small reads of one file that arrived together. Each returns the same result as alone, but they are
//! verified together, which takes hardly longer than a single read.

use super::locate::is_at_hand;
use crate::{
    chunk_range::{ChunkRange, chunks_of},
    error::{Error, Result},
    file::File,
    state::State,
};
use std::sync::Arc;

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

impl File {
    /// Performs these reads. Each result is the number of bytes read, fewer than requested only at the
    /// end of the file, or an error as from [`File::read`].
    pub fn read_together(self: &Arc<Self>, reads: &mut [SmallRead]) -> Vec<Result<usize>> {
        let mut done: Vec<_> = reads.iter_mut().map(|read| self.read_ahead(read)).collect();
        let mut rest: Vec<_> = done.iter_mut().zip(&mut *reads).filter(|(done, _)| done.is_none()).collect();
        self.read_side_by_side(&mut rest);
        // Slow path: the remaining chunks are not ready or one is damaged. Read them one by one to report
        // the error precisely.
        let alone = |(done, read): (Option<_>, &mut SmallRead)| match done {
            Some(result) => result,
            None => self.read(read.offset, read.out),
        };
        done.into_iter().zip(reads).map(alone).collect()
    }

    /// Records a read, and performs it if a window holds part of it.
    fn read_ahead(self: &Arc<Self>, read: &mut SmallRead) -> Option<Result<usize>> {
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
            self.read_unstored(&st, read.offset, &mut read.out[..len], &mut wanted)
        });
        if look.and_then(|()| self.decrypt_wanted(&st, &mut wanted)).is_ok() {
            easy.iter_mut().for_each(|(done, read)| **done = Some(Ok(read.len(&st))));
        }
    }
}
