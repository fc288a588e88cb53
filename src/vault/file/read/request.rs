//! A request to read, and the read-ahead windows that hold parts of it.

use super::window::Window;
use crate::{
    metrics::{self, Cache},
    vault::{
        Result,
        file::{
            File,
            chunk_range::{ChunkRange, chunks_of},
        },
    },
};
use std::{ops::Range, sync::Arc};

/// A request, as far as there is something to read.
pub(super) struct Request {
    pub(super) bytes: Range<u64>,
    /// Which content of the file it is for.
    pub(super) content: u64,
    /// The windows that hold parts of it, in their order in the file.
    pub(super) windows: Vec<Arc<Window>>,
}

impl Request {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }

    /// The chunks that it touches.
    pub(super) fn chunks(&self) -> ChunkRange {
        chunks_of(&self.bytes)
    }
}

impl File {
    /// Notes a request for `len` bytes, starts read-ahead for those that will follow, and says which windows hold parts of it.
    ///
    /// # Errors
    /// `Damaged` if the stored file has not the right length for it.
    pub(super) fn note_request(self: &Arc<Self>, offset: u64, len: usize) -> Result<Request> {
        let (size, len, content) = {
            let st = self.state.read();
            st.check_readable(offset.saturating_add(len as u64))?;
            (st.dirty.size, st.available(offset, len), st.times.content)
        };
        let bytes = offset..offset.saturating_add(len as u64);
        if bytes.is_empty() {
            return Ok(Request { bytes, content, windows: Vec::new() });
        }
        let found = self.ahead.lock().note(bytes.clone(), size, content);
        for window in found.begun {
            let file = self.clone();
            self.context.background.run(move || window.open(|chunks| file.open_range(chunks)));
        }
        let mut windows = found.windows;
        windows.sort_unstable_by_key(|window| window.chunks.start);
        metrics::asked(Cache::Ahead, !windows.is_empty());
        Ok(Request { bytes, content, windows })
    }
}
