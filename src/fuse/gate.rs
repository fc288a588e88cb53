//! The gate in front of the vault: open, or closed because the vault is locked or frozen.
//!
//! Requests that come to a closed gate are held, and no event loop waits with them: a program that closes a file, ends,
//! or starts another must be answered, or it could not even be killed. Of those that are held it is noticed when their
//! program is killed, so that it can end.

use super::errno::{Answer, ENDED, INTERRUPTED};
use crate::vault::wipe_traces;
use parking_lot::{Condvar, Mutex};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How often who closes the gate looks around.
const LOOK: Duration = Duration::from_millis(250);

/// What is to be done with a request once it may pass, or if it may not.
pub type Held = Box<dyn FnOnce(Answer<Pass>) + Send>;

/// Lets requests pass, or holds them.
pub struct Gate {
    /// Whether the stage is another than open.
    closed: AtomicBool,
    /// Requests that have passed and are not answered.
    inside: AtomicUsize,
    /// Counts those that came.
    came: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    stage: Stage,
    /// The threads that wait for an answer, and what is to be done for them.
    held: Vec<(u32, Held)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Requests wait; some may be inside.
    Closing,
    /// Requests wait; the vault is locked or frozen.
    Shut,
    /// Requests fail: the mount is to end.
    Ended,
}

/// A request inside; dropped once it is answered.
pub struct Pass(Arc<Gate>);

impl Drop for Pass {
    fn drop(&mut self) {
        // Once nobody is inside, no thread that served a request may hold keys.
        wipe_traces();
        self.0.leave();
    }
}

impl Gate {
    /// An open one.
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate {
            closed: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            came: AtomicU64::new(0),
            state: Mutex::new(State { stage: Stage::Open, held: Vec::new() }),
            changed: Condvar::new(),
        })
    }

    /// Passes, unless the gate is closed.
    pub fn try_pass(self: &Arc<Self>) -> Option<Pass> {
        // Counted before the look at the gate, as whoever closes it looks at the count afterwards.
        let pass = self.enter();
        (!self.closed.load(Ordering::SeqCst)).then_some(pass)
    }

    /// Counts a request of a program.
    pub fn count(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// Passes; nothing if the vault is locked or frozen. Waits while the gate closes.
    pub fn pass_unless_shut(self: &Arc<Self>) -> Option<Pass> {
        loop {
            if let Some(pass) = self.try_pass() {
                return Some(pass);
            }
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| state.stage == Stage::Closing);
            if state.stage != Stage::Open {
                return None;
            }
        }
    }

    /// Holds a request of the thread `program` until it may pass, its program was killed, or the mount is to end.
    pub fn hold(self: &Arc<Self>, program: u32, work: Held) {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Closing | Stage::Shut => state.held.push((program, work)),
            Stage::Open => {
                let pass = self.enter(); // The gate cannot close before.
                drop(state);
                work(Ok(pass));
            }
            Stage::Ended => {
                drop(state);
                work(Err(ENDED));
            }
        }
    }

    /// Counts a request as inside.
    fn enter(self: &Arc<Self>) -> Pass {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Pass(self.clone())
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// Closes the gate and waits until every request inside is answered. `on_wait` is called from time to time.
    pub fn close(&self, on_wait: impl Fn()) {
        let mut state = self.state.lock();
        state.stage = Stage::Closing;
        self.closed.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 {
            if self.changed.wait_for(&mut state, LOOK).timed_out() {
                on_wait();
            }
        }
    }

    /// Says that the vault is locked or frozen.
    pub fn shut(&self) {
        self.state.lock().stage = Stage::Shut;
        self.changed.notify_all();
    }

    /// Opens it, and hands each request that was held to `run`, with a pass.
    pub fn open(self: &Arc<Self>, run: impl Fn(Held, Pass)) {
        let held = {
            let mut state = self.state.lock();
            state.stage = Stage::Open;
            self.closed.store(false, Ordering::SeqCst);
            self.changed.notify_all();
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|(_, work)| run(work, self.enter()));
    }

    /// Has those that are held fail, and all that come, if the vault is locked or frozen.
    pub fn end(&self) {
        let held = {
            let mut state = self.state.lock();
            if state.stage != Stage::Shut {
                return;
            }
            state.stage = Stage::Ended;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|(_, work)| work(Err(ENDED)));
    }

    /// Lets go of requests whose program was killed.
    pub fn let_killed_go(&self) {
        let killed: Vec<Held> = {
            let mut state = self.state.lock();
            let (killed, held) =
                std::mem::take(&mut state.held).into_iter().partition(|(program, _)| is_killed(*program));
            state.held = held;
            let killed: Vec<(u32, Held)> = killed;
            killed.into_iter().map(|(_, work)| work).collect()
        };
        killed.into_iter().for_each(|work| work(Err(INTERRUPTED)));
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// How many requests are held.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// How many requests of programs ever came.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }
}

/// Whether a thread is about to end by SIGKILL, to which the kernel turns every other signal that ends a program, too.
fn is_killed(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return false };
    let pending = status.lines().filter_map(|line| {
        let (name, mask) = line.split_once(':')?;
        ["SigPnd", "ShdPnd"].contains(&name).then(|| u64::from_str_radix(mask.trim(), 16).ok())?
    });
    pending.fold(0, |all, mask| all | mask) & SIGKILL != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Instant};

    /// After this long, a test has failed.
    const NEVER: Duration = Duration::from_secs(20);

    /// A request that is held; it says how it went on.
    fn hold(gate: &Arc<Gate>, program: u32) -> mpsc::Receiver<Answer<()>> {
        let (to, from) = mpsc::channel();
        gate.hold(program, Box::new(move |pass| to.send(pass.map(drop)).unwrap()));
        from
    }

    fn wait_for(condition: impl Fn() -> bool) {
        let end = Instant::now() + NEVER;
        while !condition() {
            assert!(Instant::now() < end, "never came true");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_gate_closes_behind_the_last_request_inside() {
        let gate = Gate::new();
        let first = gate.try_pass().expect("open");
        let second = gate.try_pass().expect("open");
        let (to, from) = mpsc::channel();
        let closing = gate.clone();
        thread::spawn(move || {
            closing.close(|| {});
            to.send(()).unwrap();
        });
        wait_for(|| gate.is_closed());
        assert!(gate.try_pass().is_none());
        drop(first);
        assert!(from.try_recv().is_err(), "one is inside");
        drop(second);
        from.recv_timeout(NEVER).expect("nobody is inside");
    }

    #[test]
    fn requests_are_held_until_it_opens_or_ends() {
        let gate = Gate::new();
        assert!(hold(&gate, 1).recv_timeout(NEVER).expect("open").is_ok());
        gate.close(|| {});
        let held = hold(&gate, 1);
        assert!(held.try_recv().is_err());
        assert_eq!(gate.held(), 1);
        gate.open(|work, pass| work(Ok(pass)));
        assert!(held.recv_timeout(NEVER).expect("open").is_ok());
        gate.close(|| {});
        gate.shut();
        let held = hold(&gate, 1);
        gate.end();
        assert!(held.recv_timeout(NEVER).expect("ended").is_err());
        assert!(hold(&gate, 1).recv_timeout(NEVER).expect("ended").is_err());
    }

    #[test]
    fn what_a_locked_vault_need_not_do_waits_only_while_the_gate_closes() {
        let gate = Gate::new();
        assert!(gate.pass_unless_shut().is_some());
        gate.close(|| {});
        let (to, from) = mpsc::channel();
        let other = gate.clone();
        thread::spawn(move || to.send(other.pass_unless_shut().is_some()));
        gate.shut();
        assert_eq!(from.recv_timeout(NEVER), Ok(false));
    }

    #[test]
    fn an_open_gate_does_not_end() {
        let gate = Gate::new();
        gate.end();
        assert!(gate.try_pass().is_some());
    }

    #[test]
    fn programs_that_go_on_are_held_on() {
        let gate = Gate::new();
        gate.close(|| {});
        let held = [std::process::id(), u32::MAX].map(|program| hold(&gate, program));
        gate.let_killed_go();
        assert!(held.iter().all(|held| held.try_recv().is_err()));
    }
}
