//! Reads from the write buffer, from read-ahead windows, or from the store.
//!
//! `request` records a read and finds the windows that hold parts of it. Other chunks are opened: long
//! ranges in one buffer (`large`), in place if the CPU opens them (`in_place`); a few chunks on the
//! caller's thread (`small`), and those of several requests together (`together`). `locate` finds the
//! content of a chunk. `ahead` recognises readers that proceed in equal steps, and plans the `window`s
//! ahead of them.

mod ahead;
mod in_place;
mod large;
mod locate;
mod range;
mod request;
mod small;
mod together;
mod window;

use super::{
    error::Result,
    file_core::FileCore,
    rules::{Rule, holds},
    sync::Mutex,
};
use format::layout;
use large::PlainRange;
use request::Request;
use std::sync::Arc;
use zeroize::Zeroize;

pub(super) use ahead::Ahead;
pub(super) use range::RangeReader;
use range::SMALL;
pub(super) use small::ChunkReader;
pub use together::SmallRead;

/// Reads a file, and ahead of its readers.
#[derive(Clone, Copy)]
pub(super) struct ContentReader<'a> {
    core: &'a Arc<FileCore>,
    ahead: &'a Mutex<Ahead>,
}

impl<'a> ContentReader<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>, ahead: &'a Mutex<Ahead>) -> Self {
        ContentReader { core, ahead }
    }

    fn ranges(&self) -> RangeReader<'a> {
        RangeReader::of(self.core)
    }

    /// Reads up to `len` bytes, and passes them to `give` if that succeeds.
    ///
    /// # Errors
    /// `Damaged` if a chunk of the range, or a page above it, does not authenticate; otherwise the store's.
    pub(super) fn read_to<T, G: FnOnce(&[u8]) -> T>(
        &self,
        offset: u64,
        len: usize,
        small: &mut Vec<u8>,
        give: &mut Option<G>,
    ) -> Result<T> {
        let mut give = |read: &[u8]| (give.take().expect("given once"))(read); // invariant: nothing fails after it
        let request = self.note_request(offset, len)?;
        let (len, chunks) = (request.len(), request.chunks());
        match &request.windows[..] {
            [] => {}
            [window] if window.chunks.start <= chunks.start && chunks.end <= window.chunks.end => {
                let opened = window.content(|chunks| self.ranges().decrypt_range(chunks));
                if let Some(opened) = opened.filter(|opened| is_of(opened, request.content)) {
                    return Ok(give(opened.part(offset, len)));
                }
            }
            some => {
                // Open the windows first, so that no thread holds a buffer while it waits for threads
                // that need one.
                some.iter()
                    .for_each(|window| drop(window.content(|chunks| self.ranges().decrypt_range(chunks))));
                let mut gathered = self.core.backing.context.router.buffers.get(len);
                let read = self.gather(&request, &mut gathered)?;
                return Ok(give(&gathered[..read]));
            }
        }
        if len > SMALL {
            let opened = self.ranges().decrypt_range(chunks)?;
            return Ok(give(opened.part(offset, len)));
        }
        if small.capacity() < len {
            small.zeroize(); // Growing would leave a copy of its content behind.
        }
        small.resize(len, 0);
        let read = self.ranges().read(offset, small)?;
        Ok(give(&small[..read]))
    }

    /// Assembles a request from the windows that hold parts of it, and reads the rest. Returns the number
    /// of bytes: fewer only if the file was truncated meanwhile.
    fn gather(&self, request: &Request, out: &mut [u8]) -> Result<usize> {
        let Request { bytes, content, windows } = request;
        let mut done = 0;
        for window in windows {
            let from = (window.chunks.start * layout::CHUNK).clamp(bytes.start, bytes.end);
            let before = (from - bytes.start) as usize;
            let Some(opened) = window.content(|chunks| self.ranges().decrypt_range(chunks)) else { continue };
            if before < done || !is_of(&opened, *content) {
                continue;
            }
            done += self.ranges().read(bytes.start + done as u64, &mut out[done..before])?;
            if done < before {
                return Ok(done);
            }
            let part = opened.part(from, out.len() - before);
            out[before..before + part.len()].copy_from_slice(part);
            done = before + part.len();
        }
        Ok(done + self.ranges().read(bytes.start + done as u64, &mut out[done..])?)
    }
}

/// Whether a window was opened from this content.
fn is_of(opened: &PlainRange, content: u64) -> bool {
    opened.content == content || !holds(Rule::SameContent)
}
