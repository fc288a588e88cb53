//! What was written and not yet flushed: whole chunks of plaintext, and chunks to become holes.

use crate::{crypto::chunk::CHUNK, format::layout};
use std::collections::{BTreeMap, BTreeSet};
use zeroize::Zeroize;

/// One chunk of plaintext; zeros past the end of the file. Wiped on drop.
pub(super) struct Plain(Box<[u8; CHUNK]>);

impl Plain {
    pub(super) fn zeros() -> Self {
        Plain(Box::new([0; CHUNK]))
    }
}

impl std::ops::Deref for Plain {
    type Target = [u8; CHUNK];
    fn deref(&self) -> &[u8; CHUNK] {
        &self.0
    }
}

impl std::ops::DerefMut for Plain {
    fn deref_mut(&mut self) -> &mut [u8; CHUNK] {
        &mut self.0
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The write-behind buffer of a file.
#[derive(Default)]
pub(super) struct WriteBuffer {
    pub(super) chunks: BTreeMap<u64, Plain>,
    pub(super) punched: BTreeSet<u64>,
}

impl WriteBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.punched.is_empty()
    }

    /// Bytes of plaintext held.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Whether the chunk's content is here and not in the store.
    pub(super) fn holds(&self, index: u64) -> bool {
        self.chunks.contains_key(&index) || self.punched.contains(&index)
    }

    /// Puts a chunk in.
    pub(super) fn insert(&mut self, index: u64, plain: Plain) {
        self.punched.remove(&index);
        self.chunks.insert(index, plain);
    }

    /// Makes a chunk a hole.
    pub(super) fn punch(&mut self, index: u64) {
        self.chunks.remove(&index);
        self.punched.insert(index);
    }

    /// Forgets a chunk that is a hole in the store as well.
    pub(super) fn remove(&mut self, index: u64) {
        self.chunks.remove(&index);
        self.punched.remove(&index);
    }

    /// Forgets everything past `size` and zeroes the rest of its last chunk.
    pub(super) fn cut(&mut self, size: u64) {
        let end = layout::chunks(size);
        self.chunks.split_off(&end);
        self.punched.split_off(&end);
        if let Some(last) = end.checked_sub(1)
            && let Some(plain) = self.chunks.get_mut(&last)
        {
            plain[layout::chunk_len(size, last)..].fill(0);
        }
    }
}
