//! Scheduling of event loops: which loops wait for requests, and which are parked.
//!
//! The kernel gives each request to the loop that has waited longest. If many wait, the requests of a
//! single program visit one core after another, and each finds that core's caches cold: with sixteen
//! loops, throughput is half that of one loop. So a loop parks after its answer unless it is needed:
//!
//! - At least one loop waits for requests, or is busy and will wait afterwards.
//! - The number of loops awake matches the maximum that were recently busy at once.
//! - A loop that finds another request waiting after its answer, and has been busy for some time without
//!   a pause, unparks another loop before it takes that request.
//! - While requests wait and none is taken, because all loops awake are blocked or busy for long, the
//!   monitor unparks one loop after another.
//!
//! The last loop awake spins for a moment before it blocks ([`Pace`]).
//!
//! The loops are fuser's threads. A loop is known here from its first request on; before that it only
//! waits, and is not counted. When the mount ends, the kernel wakes the waiting loops, and a loop that
//! ends unparks all others.

use super::pace::Pace;
use parking_lot::{Condvar, Mutex};
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

/// Interval at which the monitor looks for requests that no loop takes.
const TICK: Duration = Duration::from_millis(1);
/// Length of a window in ticks. The number of loops that stay awake is the maximum busy at once in this
/// window or the previous one.
const WINDOW: u32 = 16;

/// Whether the kernel has a request that no loop has taken.
pub type Waiting = Box<dyn Fn() -> bool + Send + Sync>;

/// The event loops of a mount.
pub struct Loops {
    count: usize,
    /// Whether a loop can have a processor in addition to the program that it serves.
    spins: bool,
    waiting: Waiting,
    state: Mutex<LoopsState>,
    monitor: Condvar,
}

#[derive(Default)]
struct LoopsState {
    /// Known loops that wait for a request, or are about to.
    ready: usize,
    /// Loops that serve a request.
    busy: usize,
    /// Parked loops, in the order in which they parked.
    parked: Vec<Arc<Parker>>,
    /// Maximum busy at once, in this window and the previous one.
    most: [usize; 2],
    /// Whether the monitor ticks.
    ticking: bool,
    /// Total number of requests begun.
    begun: u64,
    /// Whether a request began in this window.
    active: bool,
    ended: bool,
}

/// Parks one loop once.
struct Parker {
    thread: Thread,
    unparked: AtomicBool,
}

thread_local! {
    static THIS_LOOP: RefCell<Option<KnownLoop>> = const { RefCell::new(None) };
}

/// A known loop, from its first request to the end of its thread.
struct KnownLoop {
    loops: Arc<Loops>,
    pace: Pace,
}

impl Drop for KnownLoop {
    fn drop(&mut self) {
        self.loops.end();
    }
}

/// A loop's work on one request. The loop may park when this is dropped, which is after the answer.
pub struct Busy<'a> {
    loops: &'a Loops,
    whole: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.loops.finish(self.whole);
    }
}

impl LoopsState {
    /// Number of loops awake, or about to be.
    fn awake(&self) -> usize {
        self.ready + self.busy
    }

    /// Number of loops that should be awake.
    fn wanted(&self) -> usize {
        self.most[0].max(self.most[1])
    }

    /// Takes the most recently parked loop, which the caller must unpark.
    fn take_parked(&mut self) -> Option<Arc<Parker>> {
        let parker = self.parked.pop()?;
        self.ready += 1;
        Some(parker)
    }

    fn next_window(&mut self) {
        self.most = [self.busy, self.most[0]];
        self.active = false;
    }
}

impl Parker {
    /// Creates a parker for the calling thread.
    fn new() -> Arc<Parker> {
        Arc::new(Parker { thread: thread::current(), unparked: AtomicBool::new(false) })
    }

    fn park(&self) {
        while !self.unparked.load(Ordering::Acquire) {
            thread::park();
        }
    }

    fn unpark(&self) {
        self.unparked.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Loops {
    /// Creates the state for `count` loops. `waiting` tells whether the kernel has a request that no loop
    /// has taken.
    pub fn new(count: usize, waiting: Waiting) -> Arc<Loops> {
        let spins = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        Arc::new(Loops { count, spins, waiting, state: Mutex::default(), monitor: Condvar::new() })
    }

    /// Counts the calling loop as busy with a request.
    pub fn begin(self: &Arc<Self>) -> Busy<'_> {
        self.work(true)
    }

    /// Counts the calling loop as busy with a part of a request, after which it does not park.
    pub fn begin_part(self: &Arc<Self>) -> Busy<'_> {
        self.work(false)
    }

    fn work(self: &Arc<Self>, whole: bool) -> Busy<'_> {
        let known = THIS_LOOP.with_borrow_mut(|this| {
            let known = this.is_some();
            let new = || KnownLoop { loops: self.clone(), pace: Pace::default() };
            this.get_or_insert_with(new).pace.begin();
            known
        });
        let mut state = self.state.lock();
        if known {
            state.ready -= 1;
        }
        state.busy += 1;
        state.begun += 1;
        state.most[0] = state.most[0].max(state.busy);
        state.active = true;
        if !state.ticking {
            state.ticking = true;
            self.monitor.notify_one();
        }
        Busy { loops: self, whole }
    }

    /// Whether every loop is busy, so that none waits or could be unparked. A long request would then block
    /// all others.
    pub fn all_busy(&self) -> bool {
        self.state.lock().busy >= self.count
    }

    /// Unparks every loop and stops the monitor. Called when the mount ends.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.ready += state.parked.len();
        for parker in state.parked.drain(..) {
            parker.unpark();
        }
        self.monitor.notify_one();
    }

    /// Whether the kernel has a request that no loop has taken.
    pub fn request_waits(&self) -> bool {
        (self.waiting)()
    }

    /// Unparks loops while requests wait and no loop takes them, until [`Loops::end`]. Calls `on_tick` on
    /// every tick.
    pub fn monitor(&self, on_tick: impl Fn()) {
        let (mut tick, mut seen) = (0, 0);
        loop {
            {
                let mut state = self.state.lock();
                if tick == WINDOW {
                    tick = 0;
                    state.ticking = state.active || state.busy > 0;
                    state.next_window();
                }
                while !state.ticking && !state.ended {
                    self.monitor.wait(&mut state);
                }
                if state.ended {
                    return;
                }
            }
            thread::sleep(TICK);
            tick += 1;
            on_tick();
            let begun = self.state.lock().begun;
            if begun == std::mem::replace(&mut seen, begun) {
                self.unpark_if_stuck();
            }
        }
    }

    /// Unparks a loop if a request waits and no loop is ready.
    fn unpark_if_stuck(&self) {
        let needed = |state: &LoopsState| state.ready == 0 && !state.parked.is_empty();
        if !needed(&self.state.lock()) || !(self.waiting)() {
            return;
        }
        let mut state = self.state.lock();
        let parked = if needed(&state) { state.take_parked() } else { None };
        drop(state);
        if let Some(parker) = parked {
            parker.unpark();
        }
    }

    /// Called when the calling loop has answered: it parks, or returns to wait for the next request.
    fn finish(&self, whole: bool) {
        let mut state = self.state.lock();
        state.busy -= 1;
        if thread::panicking() {
            return; // The thread ends, which unparks all others.
        }
        if !whole || state.ready == 0 || state.awake() < state.wanted() || state.ended {
            state.ready += 1;
            let (alone, others) = (state.ready == 1, !state.parked.is_empty());
            drop(state);
            self.before_waiting(alone, others, whole);
            return;
        }
        let parker = Parker::new();
        state.parked.push(parker.clone());
        drop(state);
        parker.park();
    }

    /// Called before the calling loop waits for a request: unparks another loop if needed, or spins.
    /// `alone`: no other loop waits. `others`: some loops are parked.
    fn before_waiting(&self, alone: bool, others: bool, whole: bool) {
        let needs_help = THIS_LOOP.with_borrow_mut(|this| {
            let pace = &mut this.as_mut()?.pace;
            if alone && (self.waiting)() {
                return Some(others && pace.is_long());
            }
            pace.pause();
            if alone && whole && self.spins {
                pace.spin(&self.waiting);
            }
            None
        });
        if needs_help == Some(true) {
            self.unpark_another();
        }
    }

    /// Unparks another loop, because the calling one is about to take the waiting request.
    fn unpark_another(&self) {
        let parked = self.state.lock().take_parked();
        if let Some(parker) = parked {
            parker.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
