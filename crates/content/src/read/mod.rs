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
mod request;
mod small;
mod together;
mod window;

use super::{
    file::File,
    rules::{Rule, holds},
};
use crate::error::Result;
use crypto::chunk::CHUNK;
use format::layout;
use large::PlainRange;
use request::Request;
use std::sync::Arc;
use zeroize::Zeroize;

pub(super) use ahead::Ahead;
pub use together::SmallRead;

/// Maximum bytes that are read chunk by chunk on the caller's thread. Longer reads use a batch.
const SMALL: usize = 7 * CHUNK;
/// Maximum bytes that a long read opens at once.
const AT_ONCE: usize = 4 << 20;

impl File {
    /// Reads up to `len` bytes, fewer only at the end of the file, and passes them to `give`. They are
    /// borrowed from a read-ahead window, from the buffer in which they were opened, or, for short reads,
    /// from `small`.
    ///
    /// # Errors
    /// `Damaged` if a chunk of the range, or a page above it, does not authenticate; `give` is then not
    /// called. Otherwise the store's.
    pub fn read_to<T>(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        small: &mut Vec<u8>,
        give: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let mut give = Some(give);
        self.retry_under_lease(|| self.try_read_to(offset, len, small, &mut give))
    }

    /// Calls `give` only on success.
    fn try_read_to<T, G: FnOnce(&[u8]) -> T>(
        self: &Arc<Self>,
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
                let opened = window.content(|chunks| self.decrypt_range(chunks));
                if let Some(opened) = opened.filter(|opened| is_of(opened, request.content)) {
                    return Ok(give(opened.part(offset, len)));
                }
            }
            some => {
                // Open the windows first, so that no thread holds a buffer while it waits for threads
                // that need one.
                some.iter().for_each(|window| drop(window.content(|chunks| self.decrypt_range(chunks))));
                let mut gathered = self.core.backing.context.router.buffers.get(len);
                let read = self.gather(&request, &mut gathered)?;
                return Ok(give(&gathered[..read]));
            }
        }
        if len > SMALL {
            let opened = self.decrypt_range(chunks)?;
            return Ok(give(opened.part(offset, len)));
        }
        if small.capacity() < len {
            small.zeroize(); // Growing would leave a copy of its content behind.
        }
        small.resize(len, 0);
        let read = self.try_read(offset, small)?;
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
            let Some(opened) = window.content(|chunks| self.decrypt_range(chunks)) else { continue };
            if before < done || !is_of(&opened, *content) {
                continue;
            }
            done += self.try_read(bytes.start + done as u64, &mut out[done..before])?;
            if done < before {
                return Ok(done);
            }
            let part = opened.part(from, out.len() - before);
            out[before..before + part.len()].copy_from_slice(part);
            done = before + part.len();
        }
        Ok(done + self.try_read(bytes.start + done as u64, &mut out[done..])?)
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As `read_to`; the content of `out` is then unspecified.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.retry_under_lease(|| self.try_read(offset, out))
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if out.len() > SMALL {
            return self.read_large(offset, out);
        }
        let end = offset.saturating_add(out.len() as u64);
        let st = self.state_with_slots(&(offset / layout::CHUNK..end.div_ceil(layout::CHUNK)))?;
        st.check_readable(end)?;
        let len = st.available(offset, out.len());
        self.read_loaded(&st, offset, &mut out[..len])?;
        Ok(len)
    }

    /// `try_read` for long reads.
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

/// Whether a window was opened from this content.
fn is_of(opened: &PlainRange, content: u64) -> bool {
    opened.content == content || !holds(Rule::SameContent)
}
