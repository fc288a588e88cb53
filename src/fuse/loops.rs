//! The event loops: how many of them wait for requests, and which rest.
//!
//! The kernel gives each request to the loop that has waited longest. If many wait, the requests of a lone
//! program visit one core after another, and each finds that core's caches cold: sixteen loops halve what one
//! serves. So a loop rests when it has answered, unless it is needed:
//!
//! - some loop waits for requests, or works and will wait afterwards;
//! - as many are awake as worked at once lately;
//! - a loop that finds a request waiting when it has answered, and has worked for some time without a pause, wakes
//!   another before it takes that one;
//! - while requests wait and none is taken, because the loops that are awake work for long or are blocked, the
//!   watch wakes one after another.
//!
//! The last loop that is awake looks for the next request for a moment before it sleeps ([`Pace`]).
//!
//! Loops are fuser's threads. A loop is known here from its first request on; one that is not only waits, and
//! takes no part in the counts. When the kernel ends the mount, it tells those that wait: a loop that ends
//! wakes all that rest.

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

/// How long a request may wait while no loop does, until the watch sees it.
const TICK: Duration = Duration::from_millis(1);
/// Ticks of a window. The most that worked at once in this window or the one before stay awake.
const WINDOW: u32 = 16;

/// Says whether the kernel has a request that no loop has taken.
pub type Waiting = Box<dyn Fn() -> bool + Send + Sync>;

/// The event loops of a mount.
pub struct Loops {
    count: usize,
    /// Whether there is a processor for a loop beside the program that it serves.
    lingers: bool,
    waiting: Waiting,
    state: Mutex<State>,
    watch: Condvar,
}

#[derive(Default)]
struct State {
    /// Known loops that wait for a request, or are on their way there.
    ready: usize,
    /// Loops that work on one.
    busy: usize,
    /// Loops that rest; the last of them has rested least.
    resting: Vec<Arc<Seat>>,
    /// The most that were busy at once, in this window and in the one before.
    most: [usize; 2],
    /// Whether the watch runs.
    watching: bool,
    /// Requests that were begun, all in all.
    begun: u64,
    /// Whether a request began in this window.
    active: bool,
    ended: bool,
}

/// Where a loop rests.
struct Seat {
    thread: Thread,
    called: AtomicBool,
}

thread_local! {
    static THIS_LOOP: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// A known loop, from its first request to the end of its thread.
struct Known {
    loops: Arc<Loops>,
    pace: Pace,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.loops.end();
    }
}

/// A loop's work on one request. It may rest when this is dropped: after the answer.
pub struct Busy<'a> {
    loops: &'a Loops,
    whole: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.loops.finish(self.whole);
    }
}

impl State {
    /// How many are awake or will be at once.
    fn awake(&self) -> usize {
        self.ready + self.busy
    }

    /// How many are to be awake.
    fn wanted(&self) -> usize {
        self.most[0].max(self.most[1])
    }

    /// Takes the one that has rested least.
    fn call(&mut self) -> Option<Arc<Seat>> {
        let seat = self.resting.pop()?;
        self.ready += 1;
        Some(seat)
    }

    fn next_window(&mut self) {
        self.most = [self.busy, self.most[0]];
        self.active = false;
    }
}

impl Seat {
    fn new() -> Arc<Seat> {
        Arc::new(Seat { thread: thread::current(), called: AtomicBool::new(false) })
    }

    fn rest(&self) {
        while !self.called.load(Ordering::Acquire) {
            thread::park();
        }
    }

    fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Loops {
    /// `count` loops; `waiting` says whether the kernel has a request that nobody has taken.
    pub fn new(count: usize, waiting: Waiting) -> Arc<Loops> {
        let lingers = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        Arc::new(Loops { count, lingers, waiting, state: Mutex::default(), watch: Condvar::new() })
    }

    /// Says that the calling loop works on a request.
    pub fn begin(self: &Arc<Self>) -> Busy<'_> {
        self.work(true)
    }

    /// Says that the calling loop works on a part of a request: it does not rest afterwards.
    pub fn begin_part(self: &Arc<Self>) -> Busy<'_> {
        self.work(false)
    }

    fn work(self: &Arc<Self>, whole: bool) -> Busy<'_> {
        let known = THIS_LOOP.with_borrow_mut(|this| {
            let known = this.is_some();
            let new = || Known { loops: self.clone(), pace: Pace::default() };
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
        if !state.watching {
            state.watching = true;
            self.watch.notify_one();
        }
        Busy { loops: self, whole }
    }

    /// Whether no loop waits, nor can be woken: whoever works for long would keep the others waiting.
    pub fn all_busy(&self) -> bool {
        self.state.lock().busy >= self.count
    }

    /// Ends all rest: for the end of the mount.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.ready += state.resting.len();
        for seat in state.resting.drain(..) {
            seat.wake();
        }
        self.watch.notify_one();
    }

    /// Whether the kernel has a request that no loop has taken.
    pub fn request_waits(&self) -> bool {
        (self.waiting)()
    }

    /// Wakes loops while requests wait and none takes them, until [`Loops::end`]; calls `also` as often as it looks.
    pub fn watch(&self, also: impl Fn()) {
        let (mut tick, mut seen) = (0, 0);
        loop {
            {
                let mut state = self.state.lock();
                if tick == WINDOW {
                    tick = 0;
                    state.watching = state.active || state.busy > 0;
                    state.next_window();
                }
                while !state.watching && !state.ended {
                    self.watch.wait(&mut state);
                }
                if state.ended {
                    return;
                }
            }
            thread::sleep(TICK);
            tick += 1;
            also();
            let begun = self.state.lock().begun;
            if begun == std::mem::replace(&mut seen, begun) {
                self.relieve();
            }
        }
    }

    /// Wakes a loop if a request waits and no loop does.
    fn relieve(&self) {
        let needed = |state: &State| state.ready == 0 && !state.resting.is_empty();
        if !needed(&self.state.lock()) || !(self.waiting)() {
            return;
        }
        let mut state = self.state.lock();
        let called = if needed(&state) { state.call() } else { None };
        drop(state);
        if let Some(seat) = called {
            seat.wake();
        }
    }

    /// The calling loop has answered: it rests, or goes back to wait for the next request.
    fn finish(&self, whole: bool) {
        let mut state = self.state.lock();
        state.busy -= 1;
        if thread::panicking() {
            return; // Its thread ends, which ends all rest.
        }
        if !whole || state.ready == 0 || state.awake() < state.wanted() || state.ended {
            state.ready += 1;
            let (alone, others) = (state.ready == 1, !state.resting.is_empty());
            drop(state);
            self.go_on(alone, others, whole);
            return;
        }
        let seat = Seat::new();
        state.resting.push(seat.clone());
        drop(state);
        seat.rest();
    }

    /// The calling loop, the only one awake or not, goes back to wait: is another one needed, or would it sleep for
    /// a moment only?
    fn go_on(&self, alone: bool, others: bool, whole: bool) {
        let needs_help = THIS_LOOP.with_borrow_mut(|this| {
            let pace = &mut this.as_mut()?.pace;
            if alone && (self.waiting)() {
                return Some(others && pace.is_long());
            }
            pace.pause();
            if alone && whole && self.lingers {
                pace.linger(&self.waiting);
            }
            None
        });
        if needs_help == Some(true) {
            self.help();
        }
    }

    /// Wakes another loop, as the calling one is about to take the request that waits.
    fn help(&self) {
        let called = self.state.lock().call();
        if let Some(seat) = called {
            seat.wake();
        }
    }
}

#[cfg(test)]
#[path = "loops_test.rs"]
mod tests;
