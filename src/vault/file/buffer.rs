//! What was written and not yet flushed: whole chunks of plaintext, and chunks to become holes.

use crate::{crypto::chunk::CHUNK, format::layout};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use zeroize::Zeroize;

/// Chunks buffered in all files of a vault.
pub type Buffered = Arc<AtomicUsize>;

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
pub(super) struct WriteBuffer {
    chunks: BTreeMap<u64, Plain>,
    punched: BTreeSet<u64>,
    total: Buffered,
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        self.total.fetch_sub(self.chunks.len(), Ordering::Relaxed);
    }
}

impl WriteBuffer {
    /// An empty buffer that counts its chunks in `total`.
    pub(super) fn new(total: Buffered) -> Self {
        WriteBuffer { chunks: BTreeMap::new(), punched: BTreeSet::new(), total }
    }

    /// Plaintext of a chunk.
    pub(super) fn get(&self, index: u64) -> Option<&Plain> {
        self.chunks.get(&index)
    }

    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut Plain> {
        self.chunks.get_mut(&index)
    }

    /// The chunks of a range that are here, ascending.
    pub(super) fn written(&self, range: Range<u64>) -> Vec<u64> {
        self.chunks.range(range).map(|(index, _)| *index).collect()
    }

    /// The chunks of a range that become holes, ascending.
    pub(super) fn holes(&self, range: Range<u64>) -> Vec<u64> {
        self.punched.range(range).copied().collect()
    }

    /// Whether the chunk becomes a hole.
    pub(super) fn is_punched(&self, index: u64) -> bool {
        self.punched.contains(&index)
    }

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
        if self.chunks.insert(index, plain).is_none() {
            self.total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes a chunk a hole.
    pub(super) fn punch(&mut self, index: u64) {
        self.remove(index);
        self.punched.insert(index);
    }

    /// Forgets a chunk: the store has it, or is to have a hole there as it has now.
    pub(super) fn remove(&mut self, index: u64) {
        if self.chunks.remove(&index).is_some() {
            self.total.fetch_sub(1, Ordering::Relaxed);
        }
        self.punched.remove(&index);
    }

    /// Forgets everything past `size` and zeroes the rest of its last chunk.
    pub(super) fn cut(&mut self, size: u64) {
        let end = layout::chunks(size);
        let past = self.chunks.split_off(&end);
        self.total.fetch_sub(past.len(), Ordering::Relaxed);
        self.punched.split_off(&end);
        if let Some(last) = end.checked_sub(1)
            && let Some(plain) = self.chunks.get_mut(&last)
        {
            plain[layout::chunk_len(size, last)..].fill(0);
        }
    }
}
