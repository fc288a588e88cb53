//! Page-aligned buffers from a bounded pool. The bound provides backpressure.

mod kept;
mod lent;
mod memory;
mod shared;
#[cfg(test)]
mod tests;
mod wipe;

pub use lent::{Borrower, Lending, LentMemory, MemoryId};
pub use memory::MemorySource;
pub use shared::{Mapping, SharedMemory};
pub use wipe::wipe;

use kept::Kept;
use memory::{Memory, PAGE};
use metrics::Activity;
use parking_lot::{Condvar, Mutex};
use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};

/// Buffers longer than a page are allocated in multiples of this, so that a returned one fits more
/// requests.
const GRAIN: usize = 16 * PAGE;

/// After this time without any returned buffer, a request is served beyond the bound. Otherwise callers
/// that hold one buffer and wait for a second could deadlock.
const STALL: Duration = Duration::from_secs(2);

/// Minimum time before asking a source again that provided nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// A buffer of a pool; returned to the pool on drop.
pub struct Buffer {
    memory: Memory,
    len: usize,
    pool: Arc<Shared>,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[..self.len]
    }
}

impl Buffer {
    /// The memory lent to a GPU's process that contains the buffer, if any.
    pub(super) fn lent(&self) -> Option<&LentMemory> {
        self.memory.lent()
    }

    /// Moves the content to new memory on the heap, where that process cannot write.
    pub(super) fn move_to_heap(&mut self) {
        let mut memory = Memory::new(self.memory.capacity());
        memory.bytes_mut()[..self.len].copy_from_slice(self);
        self.memory = memory;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.take_back(std::mem::take(&mut self.memory));
    }
}

/// Memory use of a pool, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Buffers in use.
    pub in_use: usize,
    /// Maximum ever held by buffers in use.
    pub peak: usize,
    /// Limit on buffers in use plus kept buffers.
    pub bound: usize,
}

/// Hands out buffers in the order of the requests, up to a bound in bytes.
pub struct BufferPool {
    shared: Arc<Shared>,
}

impl BufferPool {
    /// A pool of at most `bound` bytes, counting both buffers in use and buffers kept for reuse.
    pub fn new(bound: usize) -> Self {
        BufferPool {
            shared: Arc::new(Shared {
                bound,
                state: Mutex::new(PoolState::default()),
                returned: Condvar::new(),
            }),
        }
    }

    /// A buffer of `len` bytes with unspecified content, aligned to 4096. Blocks while the pool is
    /// exhausted. A request larger than the bound waits until no other buffer is in use. A caller that
    /// needs two at once uses `get_pair`.
    pub fn get(&self, len: usize) -> Buffer {
        let capacity = capacity(len);
        self.shared.reserve(capacity);
        self.shared.buffer(capacity, len, None)
    }

    /// Two buffers of `len` bytes. Waits for both as one request, so that no caller holds one while it
    /// waits for the other.
    pub fn get_pair(&self, len: usize) -> (Buffer, Buffer) {
        let capacity = capacity(len);
        self.shared.reserve(capacity.saturating_mul(2));
        let first = self.shared.buffer(capacity, len, None);
        let second = self.shared.buffer(capacity, len, Some(&first));
        (first, second)
    }

    /// Non-blocking `get_pair`: returns `None` instead of waiting, and also if fewer than `spared`
    /// bytes of the bound would be left for others.
    pub fn try_get_pair(&self, len: usize, spared: usize) -> Option<(Buffer, Buffer)> {
        let capacity = capacity(len);
        let wanted = capacity.saturating_mul(2);
        {
            let mut state = self.shared.state.lock();
            let waited_for = state.serving != state.next_ticket;
            if waited_for || state.in_use.saturating_add(wanted).saturating_add(spared) > self.shared.bound {
                return None;
            }
            state.in_use += wanted;
            state.peak = state.peak.max(state.in_use);
        }
        let first = self.shared.buffer(capacity, len, None);
        let second = self.shared.buffer(capacity, len, Some(&first));
        Some((first, second))
    }

    /// From now on, allocates buffers longer than a page from `source`, as long as it provides any.
    /// Replaces the kept memory first, so that no user of the pool has to wait for that.
    pub(super) fn set_source(&self, source: MemorySource) {
        let take_own = || self.shared.state.lock().kept.take_latest(Memory::is_own);
        let kept = self.shared.state.lock().kept.len();
        // No more than these: memory returned meanwhile is replaced when it is next used.
        for own in (0..kept).map_while(|_| take_own()) {
            let capacity = own.capacity();
            drop(own); // First, so that both never exist at once.
            let Some(memory) = Memory::lent_by(&source, capacity) else { break };
            let freed = self.shared.state.lock().keep(memory, self.shared.bound);
            drop(freed);
        }
        let mut state = self.shared.state.lock();
        (state.source, state.refused) = (Some(source), None);
    }

    /// Frees the kept buffers if none was returned since the last call. Returns whether it freed any.
    /// Memory that is locked for a device is kept, because locking takes long.
    pub fn rest(&self) -> bool {
        let mut state = self.shared.state.lock();
        let returns = state.returns;
        if std::mem::replace(&mut state.rested_at, returns) != returns {
            return false;
        }
        let freed = state.kept.take(|memory| memory.lent().is_none_or(LentMemory::is_stale));
        drop(state);
        !freed.is_empty()
    }

    /// Wipes and frees the kept buffers, including those locked for a device.
    pub(super) fn wipe(&self) {
        let freed = self.shared.state.lock().kept.take(|_| true);
        drop(freed);
    }

    /// Current, peak and maximum memory use of the pool.
    pub fn usage(&self) -> Usage {
        let state = self.shared.state.lock();
        Usage { in_use: state.in_use, peak: state.peak, bound: self.shared.bound }
    }
}

fn capacity(len: usize) -> usize {
    let unit = if len <= PAGE { PAGE } else { GRAIN };
    len.max(1).div_ceil(unit).saturating_mul(unit)
}

struct Shared {
    bound: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    in_use: usize,
    peak: usize,
    kept: Kept,
    /// Requests are served in the order of their tickets; a small one does not overtake a large one.
    next_ticket: u64,
    serving: u64,
    /// Number of buffers returned.
    returns: u64,
    /// `returns` at the last call of `rest`.
    rested_at: u64,
    source: Option<MemorySource>,
    /// When the source last provided nothing.
    refused: Option<Instant>,
}

impl Shared {
    /// Waits for `bytes` and counts them as in use.
    fn reserve(&self, bytes: usize) {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let start = (state.serving != ticket || !self.fits(&state, bytes)).then(Instant::now);
        while state.serving != ticket || !self.fits(&state, bytes) {
            let returns = state.returns;
            let timed_out = self.returned.wait_for(&mut state, STALL).timed_out();
            if timed_out && state.serving == ticket && state.returns == returns {
                break;
            }
        }
        state.serving += 1;
        state.in_use = state.in_use.saturating_add(bytes);
        state.peak = state.peak.max(state.in_use);
        self.returned.notify_all();
        drop(state);
        if let Some(start) = start {
            metrics::count(Activity::Buffer, bytes, start.elapsed());
        }
    }

    fn fits(&self, state: &PoolState, bytes: usize) -> bool {
        state.in_use == 0 || state.in_use.saturating_add(bytes) <= self.bound
    }

    /// A buffer over reserved bytes: the newest kept one of this capacity, or a new one. Prefers one that
    /// the same device reaches as `other`. Uses heap memory only if the source provides none: it would be
    /// reused forever, and the device could never reach it.
    fn buffer(self: &Arc<Self>, capacity: usize, len: usize, other: Option<&Buffer>) -> Buffer {
        let kept = self.reuse(capacity, other);
        let source = if kept.as_ref().is_none_or(Memory::is_own) { self.source(capacity) } else { None };
        let memory = match source {
            None => kept.unwrap_or_else(|| Memory::new(capacity)),
            Some(source) => {
                drop(kept); // First, so that both never exist at once.
                let lent = Memory::lent_by(&source, capacity);
                self.state.lock().refused = lent.is_none().then(Instant::now);
                lent.unwrap_or_else(|| Memory::new(capacity))
            }
        };
        Buffer { memory, len, pool: self.clone() }
    }

    /// The source of memory of this capacity, if there is one that has not just refused.
    fn source(&self, capacity: usize) -> Option<MemorySource> {
        let state = self.state.lock();
        let refused = state.refused.is_some_and(|refused| refused.elapsed() < PAUSE);
        state.source.clone().filter(|_| capacity > PAGE && !refused)
    }

    fn reuse(&self, capacity: usize, other: Option<&Buffer>) -> Option<Memory> {
        let mut freed = Vec::new();
        let mut state = self.state.lock(); // Unlocked before anything is freed.
        // Lent to a device that has failed since; new memory is more useful.
        freed.append(&mut state.kept.take(|memory| memory.lent().is_some_and(LentMemory::is_stale)));
        let fits = |memory: &Memory| memory.capacity() == capacity;
        let beside =
            |memory: &Memory| fits(memory) && other.is_some_and(|other| other.memory.is_beside(memory));
        let lent = |memory: &Memory| fits(memory) && !memory.is_own();
        let kept = &mut state.kept;
        let found =
            kept.take_latest(beside).or_else(|| kept.take_latest(lent)).or_else(|| kept.take_latest(fits));
        if found.is_none() {
            freed.append(&mut state.trim(self.bound));
        }
        found
    }

    fn take_back(&self, memory: Memory) {
        let mut state = self.state.lock();
        state.in_use = state.in_use.saturating_sub(memory.capacity());
        state.returns += 1;
        let freed = state.keep(memory, self.bound);
        self.returned.notify_all();
        drop(state);
        drop(freed);
    }
}

/// These return the memory to free; the caller drops it, which wipes it, after unlocking the pool.
impl PoolState {
    /// Keeps memory for reuse, as far as the bound allows.
    #[must_use]
    fn keep(&mut self, memory: Memory, bound: usize) -> Vec<Memory> {
        self.kept.push(memory);
        self.trim(bound)
    }

    /// Removes kept memory, oldest first, until the total is within the bound.
    #[must_use]
    fn trim(&mut self, bound: usize) -> Vec<Memory> {
        let excess = self.in_use.saturating_add(self.kept.bytes()).saturating_sub(bound);
        self.kept.take_oldest(excess)
    }
}
