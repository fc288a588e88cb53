//! Division of the memory for contents.

/// How the memory for contents is divided, in bytes. The parts do not add up to all of it: the rest is
/// for requests, and for the allocator's overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Buffers, including those kept for reuse.
    pub buffers: usize,
    /// The part of `buffers` for data decrypted ahead of readers. With a GPU, the data takes twice as
    /// much while it is being decrypted.
    pub ahead: usize,
    /// Limit for chunks of all files that were written one by one and are not flushed yet. From this
    /// limit on, files with many such chunks flush them. From twice the limit on, all files do.
    pub behind: usize,
    /// Limit for such chunks of one file. It is high because the chunks of a group share a page of
    /// entries and a digest.
    pub singles: usize,
    /// A close may leave data unflushed while less than this is unflushed in all, in buffers or outside
    /// them.
    pub left_at_close: usize,
    /// Memory for leaves of slots.
    pub slots: usize,
}

impl Budget {
    /// Divides `memory` bytes.
    pub fn of(memory: usize) -> Self {
        Budget {
            buffers: memory / 4 * 3,
            ahead: memory / 4,
            behind: memory / 16,
            singles: if cfg!(any(test, feature = "testing")) { 1 << 20 } else { 16 << 20 },
            left_at_close: memory / 4,
            slots: memory / 16,
        }
    }
}
