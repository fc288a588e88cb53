//! What was written and not yet flushed: whole chunks of plaintext, and chunks to become holes.
//!
//! Chunks of a stream lie in stripes, all others each by itself.

use super::stripe::{Length, Stripe};
use crate::{crypto::chunk::CHUNK, engine::Buffer, format::layout};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use zeroize::Zeroize;

/// Stripes of a file that fill at the same time, for several writers of it, or wait to be sent on their way.
pub(super) const STRIPES: usize = 8;
/// So many chunks one behind the other are a stream.
const STREAM: u64 = if cfg!(test) { 4 } else { 64 };

/// Chunks of all files of a vault that were written and are not in the store.
#[derive(Default)]
pub struct Buffered {
    /// Each in memory of its own.
    pub single: AtomicUsize,
    /// In stripes or on flights: in buffers of the pool.
    pub pooled: AtomicUsize,
    /// Files that are written as streams: each from its first stripe until all of it is flushed.
    pub streams: AtomicUsize,
    /// Memory of chunks that are no longer here, for those to come: new memory costs more than what is done with it.
    spare: Mutex<Vec<Plain>>,
    /// How many chunks it is kept for, those that are here included.
    kept: usize,
}

impl Buffered {
    /// None yet. Keeps memory that was used for them for so many bytes.
    pub fn new(kept: usize) -> Self {
        Buffered { kept: kept / CHUNK, ..Buffered::default() }
    }

    /// Memory for a chunk. What is in it is left over from something else.
    fn memory(&self) -> Plain {
        let spare = self.spare.lock().pop();
        self.single.fetch_add(1, Ordering::Relaxed);
        spare.unwrap_or_else(Plain::zeros)
    }

    /// Takes the memory of a chunk back.
    fn take_back(&self, memory: Plain) {
        self.single.fetch_sub(1, Ordering::Relaxed);
        self.keep([memory]);
    }

    /// Keeps memory of chunks that are no longer counted.
    fn keep(&self, memory: impl IntoIterator<Item = Plain>) {
        let room = self.kept.saturating_sub(self.single.load(Ordering::Relaxed));
        let mut spare = self.spare.lock();
        let more = room.saturating_sub(spare.len());
        spare.extend(memory.into_iter().take(more));
    }

    /// All of them.
    pub fn chunks(&self) -> usize {
        self.single.load(Ordering::Relaxed) + self.pooled.load(Ordering::Relaxed)
    }
}

/// Chunks on a flight, counted as buffered until this is dropped.
pub(super) struct Share {
    total: Arc<Buffered>,
    chunks: usize,
}

impl Share {
    pub(super) fn new(total: Arc<Buffered>, chunks: usize) -> Self {
        total.pooled.fetch_add(chunks, Ordering::Relaxed);
        Share { total, chunks }
    }

    /// Takes back the memory of chunks that were copied to a batch.
    pub(super) fn keep(&self, memory: Vec<Plain>) {
        self.total.keep(memory);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.pooled.fetch_sub(self.chunks, Ordering::Relaxed);
    }
}

/// A file counted as streamed until this is dropped.
struct Streamed(Arc<Buffered>);

impl Streamed {
    fn new(total: Arc<Buffered>) -> Self {
        total.streams.fetch_add(1, Ordering::Relaxed);
        Streamed(total)
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One chunk of plaintext; zeros past the end of the file. Wiped when it is freed.
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

/// The write-behind buffer of a file. A chunk is in one place of it at most.
pub(super) struct WriteBuffer {
    chunks: BTreeMap<u64, Plain>,
    /// Oldest first. Their windows do not overlap.
    stripes: Vec<Stripe>,
    streamed: Option<Streamed>,
    punched: BTreeSet<u64>,
    /// The chunk behind the last new one, and how many came one behind the other.
    next: u64,
    run: u64,
    total: Arc<Buffered>,
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        std::mem::take(&mut self.chunks).into_values().for_each(|plain| self.total.take_back(plain));
        let pooled = self.stripes.iter().map(Stripe::count).sum();
        self.total.pooled.fetch_sub(pooled, Ordering::Relaxed);
    }
}

impl WriteBuffer {
    /// An empty buffer that counts its chunks in `total`.
    pub(super) fn new(total: Arc<Buffered>) -> Self {
        WriteBuffer {
            chunks: BTreeMap::new(),
            stripes: Vec::new(),
            streamed: None,
            punched: BTreeSet::new(),
            next: 0,
            run: 0,
            total,
        }
    }

    /// Plaintext of a chunk.
    pub(super) fn get(&self, index: u64) -> Option<&[u8; CHUNK]> {
        let stripe = self.stripes.iter().find_map(|stripe| stripe.get(index));
        stripe.or_else(|| self.chunks.get(&index).map(|plain| &**plain))
    }

    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut [u8; CHUNK]> {
        let stripe = self.stripes.iter_mut().find_map(|stripe| stripe.get_mut(index));
        stripe.or_else(|| self.chunks.get_mut(&index).map(|plain| &mut **plain))
    }

    /// The chunks of a range that are here, ascending.
    pub(super) fn written(&self, range: Range<u64>) -> Vec<u64> {
        let mut all: Vec<u64> = self.chunks.range(range.clone()).map(|(index, _)| *index).collect();
        all.extend(self.stripes.iter().flat_map(Stripe::chunks).filter(|index| range.contains(index)));
        all.sort_unstable();
        all
    }

    /// The chunks of a range that are here by themselves, ascending.
    pub(super) fn single(&self, range: Range<u64>) -> Vec<u64> {
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
        self.chunks.is_empty() && self.punched.is_empty() && self.stripes.iter().all(|s| s.count() == 0)
    }

    /// Bytes of the chunks that are here by themselves.
    pub(super) fn single_bytes(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Whether the chunk's content is here and not in the store.
    pub(super) fn holds(&self, index: u64) -> bool {
        self.get(index).is_some() || self.punched.contains(&index)
    }

    /// Makes a place for a chunk. What is in it is left over from something else.
    pub(super) fn put(&mut self, index: u64) -> &mut [u8; CHUNK] {
        self.run = if index == self.next { self.run + 1 } else { 1 };
        self.next = index + 1;
        self.punched.remove(&index);
        if let Some(stripe) = self.stripes.iter_mut().find(|stripe| stripe.covers(index)) {
            let new = stripe.get(index).is_none();
            self.total.pooled.fetch_add(usize::from(new), Ordering::Relaxed);
            return stripe.put(index);
        }
        self.chunks.entry(index).or_insert_with(|| self.total.memory())
    }

    /// The same for up to `most` chunks from `index` on, as far as they lie in one stripe; the caller writes all of them.
    /// `None` if that is none.
    pub(super) fn put_run(&mut self, index: u64, most: usize) -> Option<&mut [u8]> {
        let stripe = self.stripes.iter_mut().find(|stripe| most > 0 && stripe.covers(index))?;
        let (new, places) = stripe.put_run(index, most);
        let count = (places.len() / CHUNK) as u64;
        self.total.pooled.fetch_add(new, Ordering::Relaxed);
        self.run = if index == self.next { self.run + count } else { count };
        self.next = index + count;
        if !self.punched.is_empty() {
            (index..self.next).for_each(|index| _ = self.punched.remove(&index));
        }
        Some(places)
    }

    /// Puts a chunk in.
    pub(super) fn insert(&mut self, index: u64, plain: &[u8; CHUNK]) {
        *self.put(index) = *plain;
    }

    /// The window of `index`, if a stripe should begin there before the chunk is put in: of this length, or shorter
    /// if another stripe has a part of that.
    pub(super) fn wants_stripe(&self, index: u64, length: Length) -> Option<Range<u64>> {
        if index != self.next || self.run < STREAM {
            return None;
        }
        let apart = |a: &Range<u64>, b: Range<u64>| a.end <= b.start || b.end <= a.start;
        let is_free = |window: &Range<u64>| self.stripes.iter().all(|stripe| apart(window, stripe.window()));
        let window = length.and_shorter().map(|length| length.window(index)).find(is_free)?;
        (self.run.is_multiple_of(STREAM) || window.start == index).then_some(window)
    }

    /// Begins a stripe, which takes over the chunks of its window. If there are too many, an old one ends.
    pub(super) fn begin_stripe(&mut self, window: Range<u64>, buffers: (Buffer, Buffer)) {
        self.streamed.get_or_insert_with(|| Streamed::new(self.total.clone()));
        if self.stripes.len() == STRIPES {
            self.spill(self.stripes.iter().position(|stripe| !stripe.is_full()).unwrap_or(0));
        }
        let mut stripe = Stripe::new(window.clone(), buffers);
        for index in self.single(window) {
            if let Some(plain) = self.chunks.remove(&index) {
                *stripe.put(index) = *plain;
                self.total.take_back(plain);
            }
        }
        self.total.pooled.fetch_add(stripe.count(), Ordering::Relaxed);
        self.stripes.push(stripe);
    }

    /// Takes a stripe apart.
    pub(super) fn spill(&mut self, place: usize) {
        let stripe = self.take_stripe(place);
        for index in stripe.chunks() {
            if let Some(content) = stripe.get(index) {
                let mut plain = self.total.memory();
                *plain = *content;
                self.chunks.insert(index, plain);
            }
        }
    }

    /// All of it was flushed: whoever streamed into it may have ended.
    pub(super) fn end_streams(&mut self) {
        self.streamed = None;
    }

    /// The stripes.
    pub(super) fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// The place in `stripes` of the one that has this chunk.
    pub(super) fn stripe_of(&self, index: u64) -> Option<usize> {
        self.stripes.iter().position(|stripe| stripe.get(index).is_some())
    }

    /// The place in `stripes` of the one whose window this chunk is in.
    pub(super) fn stripe_over(&self, index: u64) -> Option<usize> {
        self.stripes.iter().position(|stripe| stripe.covers(index))
    }

    /// Takes a stripe out.
    pub(super) fn take_stripe(&mut self, place: usize) -> Stripe {
        let stripe = self.stripes.remove(place);
        self.total.pooled.fetch_sub(stripe.count(), Ordering::Relaxed);
        stripe
    }

    /// Makes a chunk a hole.
    pub(super) fn punch(&mut self, index: u64) {
        self.remove(index);
        self.punched.insert(index);
    }

    /// Forgets a chunk: the store has it, or is to have a hole there as it has now.
    pub(super) fn remove(&mut self, index: u64) {
        if let Some(plain) = self.chunks.remove(&index) {
            self.total.take_back(plain);
        } else if self.stripes.iter_mut().any(|stripe| stripe.remove(index)) {
            self.total.pooled.fetch_sub(1, Ordering::Relaxed);
            self.stripes.retain(|stripe| stripe.count() > 0);
        }
        self.punched.remove(&index);
    }

    /// Takes a chunk that is here by itself out. Its memory is to be given back with the flight's share.
    pub(super) fn take_single(&mut self, index: u64) -> Option<Plain> {
        let plain = self.chunks.remove(&index)?;
        self.total.single.fetch_sub(1, Ordering::Relaxed);
        Some(plain)
    }

    /// The store has the hole.
    pub(super) fn forget_hole(&mut self, index: u64) {
        self.punched.remove(&index);
    }

    /// Forgets everything past `size` and zeroes the rest of its last chunk.
    pub(super) fn cut(&mut self, size: u64) {
        let end = layout::chunks(size);
        for index in self.written(end..u64::MAX) {
            self.remove(index);
        }
        self.punched.split_off(&end);
        if let Some(last) = end.checked_sub(1)
            && let Some(plain) = self.get_mut(last)
        {
            plain[layout::chunk_len(size, last)..].fill(0);
        }
    }
}
