//! The fake driver: building it, and running tests of this program over it.

use crate::support::{command::run, say, which};
use engine::GPU_COMMAND;
use rustix::process::Pid;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use tempfile::TempDir;

/// Directory of the driver, which is built once. `None` without g++; with `REQUIRE_GXX=1` that is a
/// failure.
pub fn driver() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<TempDir>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref().map(TempDir::path)
}

fn build() -> Option<TempDir> {
    if which("g++").is_none() {
        assert!(std::env::var_os("REQUIRE_GXX").is_none_or(|v| v != "1"), "there is no g++");
        say("SKIPPED: the GPU engine over a fake driver: there is no g++");
        return None;
    }
    let dir = tempfile::tempdir().expect("directory");
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/build-fake.sh"));
    command.arg(dir.path());
    let done = run(&mut command, 300);
    assert!(done.status.success(), "g++: {}", done.stderr);
    Some(dir)
}

/// Runs an ignored test of this program in a process that loads its driver from `library`. Returns what
/// it printed.
pub fn run_over(library: &Path, test: &str, variables: &[(&str, &str)], seconds: u64) -> String {
    let faults = tempfile::tempdir().expect("directory");
    let orders = faults.path().join("order");
    let places: [(&str, &Path); 3] =
        [("LD_LIBRARY_PATH", library), ("FAKE_CUDA_FAULT", &orders), ("CUDA_FAULTS", faults.path())];
    run_again(test, |command| command.envs(places).envs(variables.iter().copied()), seconds)
}

/// As `run_over`, with the system's driver.
pub fn run_real(test: &str, variables: &[(&str, &str)], seconds: u64) -> String {
    run_again(test, |command| command.envs(variables.iter().copied()), seconds)
}

fn run_again(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command, seconds: u64) -> String {
    let cache = tempfile::tempdir().expect("directory");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "--nocapture", test]).env("XDG_CACHE_HOME", cache.path());
    prepare(&mut command);
    let done = run(&mut command, seconds);
    assert!(done.status.success(), "{test}: {}\n{}{}", done.status, done.text(), done.stderr);
    assert!(done.text().contains("1 passed"), "{test} did not run: {}", done.text());
    done.text() + &done.stderr
}

/// As `run_over`, with the fake driver, if it can be built.
pub fn run_here(test: &str, variables: &[(&str, &str)], seconds: u64) -> Option<String> {
    driver().map(|library| run_over(library, test, variables, seconds))
}

/// Builds a wrapper around the library `driver` whose launches fail on request, see `inject`.
pub fn faulty(driver: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("directory");
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/build-faulty.sh"));
    command.args([dir.path(), driver]);
    let done = run(&mut command, 300);
    assert!(done.status.success(), "g++: {}", done.stderr);
    dir
}

/// Makes the next launch fail with `fault` (`fault` or `refuse`), over a driver that `faulty` built.
pub fn inject(fault: &str) {
    let folder = PathBuf::from(std::env::var_os("CUDA_FAULTS").expect("a place for faults"));
    fs::write(folder.join(fault), "").expect("a fault");
}

/// The GPU processes of a process, started either by it or by its child.
pub fn processes_of(user: u32) -> Vec<Pid> {
    let parent = |pid: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.parse().ok()
    };
    let is_used = |pid: u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let starter = parent(pid);
        line.split('\0').any(|word| word == GPU_COMMAND)
            && (starter == Some(user) || starter.and_then(parent) == Some(user))
    };
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&pid| is_used(pid)).filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect()
}

/// Orders a fault. `call` is a function's name, or `name:k` for its k-th call from now on.
pub fn order(call: &str, fault: &str) {
    static ORDERS: AtomicU32 = AtomicU32::new(1);
    let path = orders();
    let temporary = path.with_extension("new");
    fs::write(&temporary, format!("{} {call} {fault}\n", ORDERS.fetch_add(1, Relaxed))).expect("order");
    fs::rename(&temporary, &path).expect("order");
}

/// Withdraws an order that no call has carried out.
pub fn withdraw() {
    let _ = fs::remove_file(orders());
}

/// Whether an order is still pending.
pub fn is_ordered() -> bool {
    orders().exists()
}

fn orders() -> PathBuf {
    PathBuf::from(std::env::var_os("FAKE_CUDA_FAULT").expect("a place for orders"))
}
