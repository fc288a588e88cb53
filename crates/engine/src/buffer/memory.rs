//! The memory of a buffer: on the heap, or shared with a GPU's process.

use super::{lent::LentMemory, wipe::wipe};
use std::sync::Arc;

/// Alignment of every buffer: a page, which is also the size of a chunk.
pub const PAGE: usize = 4096;

/// Allocates memory that a GPU can reach: at least this many bytes, page-aligned. `None` if it cannot.
pub type MemorySource = Arc<dyn Fn(usize) -> Option<LentMemory> + Send + Sync>;

/// Bytes with a page-aligned part of `capacity` bytes at `start`.
#[derive(Default)]
pub struct Memory {
    bytes: BufferBytes,
    start: usize,
    capacity: usize,
}

/// Both kinds are wiped on drop.
enum BufferBytes {
    Heap(Wiped),
    Lent(LentMemory),
}

struct Wiped(Vec<u8>);

impl Drop for Wiped {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl Default for BufferBytes {
    fn default() -> Self {
        BufferBytes::Heap(Wiped(Vec::new()))
    }
}

impl Memory {
    /// Allocates memory on the heap.
    pub fn new(capacity: usize) -> Self {
        let bytes = vec![0; capacity + PAGE - 1];
        let start = bytes.as_ptr().align_offset(PAGE);
        Memory { bytes: BufferBytes::Heap(Wiped(bytes)), start, capacity }
    }

    /// Memory from the source, if it provides any.
    pub fn lent_by(source: &MemorySource, capacity: usize) -> Option<Self> {
        source(capacity).map(|memory| Memory { bytes: BufferBytes::Lent(memory), start: 0, capacity })
    }

    /// Bytes that a buffer may use.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The memory lent to a GPU's process, if it is that kind.
    pub fn lent(&self) -> Option<&LentMemory> {
        match &self.bytes {
            BufferBytes::Heap(_) => None,
            BufferBytes::Lent(memory) => Some(memory),
        }
    }

    /// Whether it is on the heap although a source could provide it.
    pub fn is_own(&self) -> bool {
        self.capacity > PAGE && matches!(self.bytes, BufferBytes::Heap(_))
    }

    /// Whether the same device reaches both.
    pub fn is_beside(&self, other: &Memory) -> bool {
        matches!((&self.bytes, &other.bytes), (BufferBytes::Lent(a), BufferBytes::Lent(b)) if a.is_beside(b))
    }

    /// The page-aligned part.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            BufferBytes::Heap(bytes) => &bytes.0[self.start..],
            BufferBytes::Lent(memory) => memory,
        }
    }

    /// The page-aligned part.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            BufferBytes::Heap(bytes) => &mut bytes.0[self.start..],
            BufferBytes::Lent(memory) => memory,
        }
    }
}
