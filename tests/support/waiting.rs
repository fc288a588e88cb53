//! Waiting for conditions that become true on their own.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// A test that waits longer than this has failed.
pub const NEVER: Duration = Duration::from_secs(60);

/// Waits until the condition holds.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + NEVER;
    while !condition() {
        assert!(Instant::now() < end, "{what}: never");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a process, and waits until all its threads have stopped: they continue for a moment after the
/// signal.
pub fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("stop");
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    wait_for("it is stopped", || fs::read_dir(&tasks).expect("threads").flatten().all(is_stopped));
}

/// Waits until a process has a handler for SIGINT, or has ended.
pub fn wait_for_handlers(process: u32) {
    wait_for("it handles SIGINT", || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let caught = line("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        caught & 2 != 0 || line("State:").is_none_or(|state| state.starts_with('Z'))
    });
}
