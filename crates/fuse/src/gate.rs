//! The gate in front of the vault: open, or closed because the vault is locked or frozen.
//!
//! Requests that reach a closed gate are held, and no event loop blocks on them. The loops must stay free
//! to answer a program that closes a file, exits, or starts another program; otherwise it could not even
//! be killed. The gate notices when the program behind a held request is killed, so that the program can
//! exit.
//!
//! Requests that a locked vault can answer, such as FLUSH, queue only while the gate is closing. The
//! thread that received one does not block meanwhile: it may have queued reads that have already passed,
//! and no other thread would serve them.
//!
//! A request inside may depend on one that is held. To drop a page that a direct write has made stale,
//! the kernel waits for an earlier read of that page, and the read may have arrived after the gate began
//! to close. So while the gate is closing, held requests are let in from time to time, at growing
//! intervals. Requests that depend on them then complete, and later ones are held again.

use super::errno::{Answer, ENDED, INTERRUPTED, SHUT};
use crypto::traces;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How often the closing thread checks the gate.
const LOOK: Duration = Duration::from_millis(250);

/// Continuation of a held request: it gets a pass, or an error.
pub type QueuedRequest = Box<dyn FnOnce(Answer<RequestGuard>) + Send>;

/// Admits requests or holds them.
pub struct Gate {
    /// Whether the stage is not `Open`.
    closed: AtomicBool,
    /// Requests that have passed and are not yet answered.
    inside: AtomicUsize,
    /// Number of requests that programs have made.
    came: AtomicU64,
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    stage: GateStage,
    /// Whether the mount is ending. Never reset: a gate that closed after that could not be opened again.
    ending: bool,
    /// Held requests, each with the thread that waits for its answer.
    held: Vec<(u32, QueuedRequest)>,
    /// Requests to hold only until the vault is locked or frozen.
    until_shut: Vec<QueuedRequest>,
}

impl GateState {
    /// Takes all held requests.
    fn take(&mut self) -> Vec<QueuedRequest> {
        let held = self.held.drain(..).map(|(_, work)| work);
        held.chain(self.until_shut.drain(..)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateStage {
    Open,
    /// Requests wait; some may be inside.
    Closing,
    /// Requests wait; the vault is locked or frozen.
    Shut,
    /// The mount is ending; requests fail.
    Ended,
}

/// The gate can no longer close, because no one could unlock or thaw the vault for the requests held at
/// it.
#[derive(Debug, thiserror::Error)]
#[error("the mount is shutting down")]
pub struct Ending;

/// A request inside; dropped once it is answered.
pub struct RequestGuard(Arc<Gate>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // When no request is inside, no thread that served one may still hold keys.
        traces::wipe();
        self.0.leave();
    }
}

impl Gate {
    /// Creates an open gate.
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate {
            closed: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            came: AtomicU64::new(0),
            state: Mutex::new(GateState {
                stage: GateStage::Open,
                ending: false,
                held: Vec::new(),
                until_shut: Vec::new(),
            }),
            changed: Condvar::new(),
        })
    }

    /// Returns a pass, unless the gate is closed.
    pub fn try_pass(self: &Arc<Self>) -> Option<RequestGuard> {
        // Count before checking the gate: the closing thread sets the flag first and then checks the
        // count.
        let pass = self.enter();
        (!self.closed.load(Ordering::SeqCst)).then_some(pass)
    }

    /// Counts a program's request.
    pub fn count(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// Holds a request of the thread `program` until it may pass, its program is killed, or the mount is
    /// ending.
    pub fn hold(self: &Arc<Self>, program: u32, work: QueuedRequest) {
        let mut state = self.state.lock();
        let answer = match state.stage {
            GateStage::Closing | GateStage::Shut => return state.held.push((program, work)),
            GateStage::Open => Ok(self.enter()), // The gate cannot close before this.
            GateStage::Ended => Err(ENDED),
        };
        drop(state);
        work(answer);
    }

    /// Holds a request while the gate is closing. The request fails once the vault is locked or frozen.
    pub fn hold_unless_shut(self: &Arc<Self>, work: QueuedRequest) {
        let mut state = self.state.lock();
        let answer = match state.stage {
            GateStage::Closing => return state.until_shut.push(work),
            GateStage::Open => Ok(self.enter()),
            GateStage::Shut | GateStage::Ended => Err(SHUT),
        };
        drop(state);
        work(answer);
    }

    /// Counts a request as inside.
    fn enter(self: &Arc<Self>) -> RequestGuard {
        self.inside.fetch_add(1, Ordering::SeqCst);
        RequestGuard(self.clone())
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// Closes the gate and waits until every request inside is answered. `on_wait` is called from time to
    /// time. Held requests are occasionally passed to `run` with a pass, because those inside may depend
    /// on them.
    ///
    /// # Errors
    /// If the mount is ending. The gate is then unchanged.
    pub fn close(
        self: &Arc<Self>,
        on_wait: impl Fn(),
        run: impl Fn(QueuedRequest, RequestGuard),
    ) -> Result<(), Ending> {
        let mut state = self.state.lock();
        if state.ending {
            return Err(Ending);
        }
        state.stage = GateStage::Closing;
        self.closed.store(true, Ordering::SeqCst);
        let mut waits = 0_u64;
        while self.inside.load(Ordering::SeqCst) > 0 {
            if !self.changed.wait_for(&mut state, LOOK).timed_out() {
                continue;
            }
            waits += 1;
            // At growing intervals, so that the gate closes however many requests arrive.
            let held = if waits.is_power_of_two() { state.take() } else { Vec::new() };
            // Unlock: both calls may cause requests to leave, which takes the lock.
            MutexGuard::unlocked(&mut state, || {
                on_wait();
                self.let_in(held, &run);
            });
        }
        Ok(())
    }

    /// Marks the vault as locked or frozen. Requests fail if the mount began to end in the meantime.
    pub fn shut(&self) {
        let (needless, ending) = {
            let mut state = self.state.lock();
            state.stage = GateStage::Shut;
            (std::mem::take(&mut state.until_shut), state.ending)
        };
        needless.into_iter().for_each(|work| work(Err(SHUT)));
        if ending {
            self.end();
        }
    }

    /// Opens the gate and passes each held request to `run` with a pass.
    pub fn open(self: &Arc<Self>, run: impl Fn(QueuedRequest, RequestGuard)) {
        let held = {
            let mut state = self.state.lock();
            state.stage = GateStage::Open;
            self.closed.store(false, Ordering::SeqCst);
            state.take()
        };
        self.let_in(held, run);
    }

    fn let_in(self: &Arc<Self>, held: Vec<QueuedRequest>, run: impl Fn(QueuedRequest, RequestGuard)) {
        held.into_iter().for_each(|work| run(work, self.enter()));
    }

    /// Marks the mount as ending. If the vault is locked or frozen, held requests and all later ones
    /// fail. While the gate is open, requests still pass, and it stays open.
    pub fn end(&self) {
        let held = {
            let mut state = self.state.lock();
            state.ending = true;
            if state.stage != GateStage::Shut {
                return;
            }
            state.stage = GateStage::Ended;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|(_, work)| work(Err(ENDED)));
    }

    /// Fails held requests whose program was killed.
    pub fn let_killed_go(&self) {
        let killed: Vec<QueuedRequest> = {
            let mut state = self.state.lock();
            let (killed, held) =
                std::mem::take(&mut state.held).into_iter().partition(|(program, _)| is_killed(*program));
            state.held = held;
            let killed: Vec<(u32, QueuedRequest)> = killed;
            killed.into_iter().map(|(_, work)| work).collect()
        };
        killed.into_iter().for_each(|work| work(Err(INTERRUPTED)));
    }

    /// Whether the mount is ending.
    pub fn is_ending(&self) -> bool {
        self.state.lock().ending
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Number of requests held until the vault is unlocked or thawed.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Number of requests that programs have made so far.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }
}

/// Whether a thread is being killed by SIGKILL. The kernel converts every other fatal signal to SIGKILL,
/// too.
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

    /// A test fails if it waits longer than this.
    const NEVER: Duration = Duration::from_secs(20);

    /// Holds a request and returns a channel with its result.
    fn hold(gate: &Arc<Gate>, program: u32) -> mpsc::Receiver<Answer<()>> {
        let (to, from) = mpsc::channel();
        gate.hold(program, Box::new(move |pass| to.send(pass.map(drop)).unwrap()));
        from
    }

    /// Like `hold`, for requests that a locked vault can answer. Checks that the receiving thread does
    /// not block.
    fn hold_unless_shut(gate: &Arc<Gate>) -> mpsc::Receiver<Answer<()>> {
        let (to, from) = mpsc::channel();
        let (goes_on, has_gone_on) = mpsc::channel();
        let gate = gate.clone();
        thread::spawn(move || {
            gate.hold_unless_shut(Box::new(move |pass| to.send(pass.map(drop)).unwrap()));
            goes_on.send(()).unwrap();
        });
        has_gone_on.recv_timeout(NEVER).expect("it does not wait");
        from
    }

    fn run(work: QueuedRequest, pass: RequestGuard) {
        work(Ok(pass));
    }

    fn close(gate: &Arc<Gate>) {
        gate.close(|| {}, run).expect("it closes");
    }

    /// Closes the gate on another thread; the channel tells when that is done.
    fn close_behind(gate: &Arc<Gate>, on_wait: impl Fn() + Send + 'static) -> mpsc::Receiver<()> {
        let (to, from) = mpsc::channel();
        let closing = gate.clone();
        thread::spawn(move || {
            closing.close(on_wait, run).expect("it closes");
            to.send(()).unwrap();
        });
        wait_for(|| gate.is_closed());
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
        let closed = close_behind(&gate, || {});
        assert!(gate.try_pass().is_none());
        drop(first);
        assert!(closed.try_recv().is_err(), "one is inside");
        drop(second);
        closed.recv_timeout(NEVER).expect("nobody is inside");
    }

    #[test]
    fn requests_are_held_until_it_opens_or_ends() {
        let gate = Gate::new();
        assert!(hold(&gate, 1).recv_timeout(NEVER).expect("open").is_ok());
        close(&gate);
        let held = hold(&gate, 1);
        assert!(held.try_recv().is_err());
        assert_eq!(gate.held(), 1);
        gate.open(run);
        assert!(held.recv_timeout(NEVER).expect("open").is_ok());
        close(&gate);
        gate.shut();
        let held = hold(&gate, 1);
        gate.end();
        assert!(held.recv_timeout(NEVER).expect("ended").is_err());
        assert!(hold(&gate, 1).recv_timeout(NEVER).expect("ended").is_err());
    }

    #[test]
    fn what_a_locked_vault_need_not_do_is_held_only_while_the_gate_closes() {
        let gate = Gate::new();
        assert!(hold_unless_shut(&gate).recv_timeout(NEVER).expect("open").is_ok());
        close(&gate);
        let held = hold_unless_shut(&gate);
        assert!(held.try_recv().is_err());
        gate.shut();
        assert!(held.recv_timeout(NEVER).expect("shut").is_err());
        assert!(hold_unless_shut(&gate).recv_timeout(NEVER).expect("shut").is_err());
        gate.end();
        assert!(hold_unless_shut(&gate).recv_timeout(NEVER).expect("ended").is_err());
    }

    #[test]
    fn what_a_locked_vault_need_not_do_passes_a_gate_that_opens_again() {
        let gate = Gate::new();
        close(&gate);
        let held = hold_unless_shut(&gate);
        assert!(held.try_recv().is_err());
        gate.open(run);
        assert!(held.recv_timeout(NEVER).expect("open").is_ok());
        close(&gate); // No request is left inside.
    }

    #[test]
    fn the_last_request_inside_may_be_one_that_is_queued() {
        let gate = Gate::new();
        let queued = Mutex::new(gate.try_pass());
        let closed = close_behind(&gate, move || drop(queued.lock().take()));
        closed.recv_timeout(NEVER).expect("what was queued is done");
    }

    #[test]
    fn a_request_inside_that_waits_for_one_that_is_held_does_not_keep_the_gate_from_closing() {
        let gate = Gate::new();
        let waiting = gate.try_pass().expect("open");
        let closed = close_behind(&gate, || {});
        let held = hold(&gate, 1);
        let waited = thread::spawn(move || {
            let answer = held.recv_timeout(NEVER);
            drop(waiting);
            answer
        });
        closed.recv_timeout(NEVER).expect("nobody is inside");
        assert!(waited.join().unwrap().expect("let in").is_ok());
        assert!(gate.try_pass().is_none());
        assert!(hold(&gate, 1).try_recv().is_err(), "who comes later is held");
    }

    #[test]
    fn an_open_gate_does_not_end() {
        let gate = Gate::new();
        gate.end();
        assert!(gate.try_pass().is_some());
        assert!(gate.close(|| {}, run).is_err(), "nobody would open it again");
        assert!(gate.try_pass().is_some());
    }

    #[test]
    fn a_gate_that_closes_when_the_mount_is_to_end_holds_nothing() {
        let gate = Gate::new();
        close(&gate);
        let held = hold(&gate, 1);
        gate.end();
        assert!(held.try_recv().is_err(), "it may open still");
        gate.shut();
        assert!(held.recv_timeout(NEVER).expect("ended").is_err());
        assert!(hold(&gate, 1).recv_timeout(NEVER).expect("ended").is_err());
    }

    #[test]
    fn a_gate_that_opens_when_the_mount_is_to_end_stays_open() {
        let gate = Gate::new();
        close(&gate);
        let held = hold(&gate, 1);
        gate.end();
        gate.open(run);
        assert!(held.recv_timeout(NEVER).expect("open").is_ok());
        assert!(gate.close(|| {}, run).is_err(), "nobody would open it again");
    }

    #[test]
    fn programs_that_go_on_are_held_on() {
        let gate = Gate::new();
        close(&gate);
        let held = [std::process::id(), u32::MAX].map(|program| hold(&gate, program));
        gate.let_killed_go();
        assert!(held.iter().all(|held| held.try_recv().is_err()));
    }
}
