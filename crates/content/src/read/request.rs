//! A read request, and the read-ahead windows that hold parts of it.

use super::{ContentReader, range::RangeReader, window::Window};
use crate::{
    chunk_range::{ChunkRange, chunks_of},
    error::Result,
};
use metrics::Cache;
use std::{ops::Range, sync::Arc};

/// A request, limited to the end of the file.
pub(super) struct Request {
    pub(super) bytes: Range<u64>,
    /// Id of the file's content at the request.
    pub(super) content: u64,
    /// The windows that hold parts of it, in file order.
    pub(super) windows: Vec<Arc<Window>>,
}

impl Request {
    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }

    /// The chunks that the request touches.
    pub(super) fn chunks(&self) -> ChunkRange {
        chunks_of(&self.bytes)
    }
}

impl ContentReader<'_> {
    /// Records a request for `len` bytes, starts read-ahead for the requests expected next, and finds the
    /// windows that hold parts of this one.
    ///
    /// # Errors
    /// `Damaged` if the stored file is too short or too long for it.
    pub(super) fn note_request(&self, offset: u64, len: usize) -> Result<Request> {
        let (size, len, content) = {
            let st = self.core.state.read();
            st.check_readable(offset.saturating_add(len as u64))?;
            (st.dirty.size, st.available(offset, len), st.times.content)
        };
        let bytes = offset..offset.saturating_add(len as u64);
        if bytes.is_empty() {
            return Ok(Request { bytes, content, windows: Vec::new() });
        }
        let found = self.ahead.lock().note(bytes.clone(), size, content);
        for window in found.begun {
            let core = self.core.clone();
            self.core
                .backing
                .context
                .background
                .run(move || window.open(|chunks| RangeReader::of(&core).decrypt_range(chunks)));
        }
        let mut windows = found.windows;
        windows.sort_unstable_by_key(|window| window.chunks.start);
        metrics::asked(Cache::Ahead, !windows.is_empty());
        Ok(Request { bytes, content, windows })
    }
}
