//! Tests of the behaviour that an ordinary user sees. Each runs in a separate process; if root runs the
//! tests, as an ordinary user.

use super::{
    command::{copy_program, run},
    disk::Disk,
    mounted::{memory, program_path},
    ready, ready_as_root, say, skip, source, test_name,
};
use rustix::process::geteuid;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The user and its groups when root runs the tests.
const USER: u32 = 65534;
const GROUPS: &str = "65534,61100,61101";
/// Set in the process of such a test.
const MARK: &str = "WARPCRYPT_TEST_ORDINARY";
/// Set there to the path of a filesystem owned by that user.
const DISK: &str = "WARPCRYPT_TEST_DISK";
/// Environment variables that are passed on to such a test.
const SETTINGS: [&str; 4] = ["SEED", "TREE_SECONDS", "TREE_SEQUENCES", "LANG"];

/// Whether this is the ordinary user's process, in which the calling test should run. If this returns
/// false, the test has already run there, unless the machine lacks something (see `ready`).
pub fn is_ordinary_user(programs: &[&str], seconds: u64) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    run_there(programs, seconds, None);
    false
}

/// As `is_ordinary_user`, but returns there a small in-memory filesystem owned by that user; `size` is in
/// the syntax of tmpfs. Only root can mount it.
pub fn disk_of_ordinary_user(size: &str, seconds: u64) -> Option<PathBuf> {
    if let Some(disk) = std::env::var_os(DISK) {
        return Some(disk.into());
    }
    if ready_as_root(&["mount"]) {
        let disk = Disk::new(size);
        chown(disk.0.path(), Some(USER), Some(USER)).expect("owner");
        run_there(&[], seconds, Some(disk.0.path()));
    }
    None
}

/// As `is_ordinary_user`, but returns there an in-memory directory with room for `bytes`, and a guard if it
/// has to be removed. If root runs the tests, a filesystem is mounted for it; for an ordinary user it is in
/// /dev/shm.
pub fn memory_of_ordinary_user(bytes: u64, seconds: u64) -> Option<(PathBuf, Option<TempDir>)> {
    if geteuid().is_root() || std::env::var_os(DISK).is_some() {
        return disk_of_ordinary_user(&format!("{}k", bytes >> 10), seconds).map(|disk| (disk, None));
    }
    if !is_ordinary_user(&[], seconds) {
        return None;
    }
    let place = memory(bytes);
    if place.is_none() {
        skip("needs room in /dev/shm".into());
    }
    place.map(|place| (place.path().to_path_buf(), Some(place)))
}

/// Runs the calling test as an ordinary user.
fn run_there(programs: &[&str], seconds: u64, disk: Option<&Path>) {
    let root = geteuid().is_root();
    let needed: Vec<&str> = programs.iter().copied().chain(root.then_some("setpriv")).collect();
    let closed = root && fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o666 != 0o666);
    if !ready(&needed) || closed && !skip("needs /dev/fuse with mode 666".into()) {
        return;
    }
    let place = TempDir::with_prefix("warpcrypt-user-").expect("temporary directory");
    let [tests, program] = ["tests", "warpcrypt"].map(|name| place.path().join(name));
    copy_program(&std::env::current_exe().expect("this program"), &tests);
    copy_program(&program_path(), &program);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let mut command = Command::new(if root { "setpriv" } else { "env" });
    if root {
        chown(place.path(), Some(USER), Some(USER)).expect("owner");
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), format!("--groups={GROUPS}")];
        command.args(user).arg("env");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.arg("-i").arg(format!("PATH={path}")).arg(format!("HOME={}", place.path().display()));
    command.args([format!("{MARK}=1"), "REQUIRE_FUSE=user".into()]);
    command.arg(format!("WARPCRYPT_TEST_PROGRAM={}", program.display()));
    command.arg(format!("WARPCRYPT_TEST_SOURCES={}", source("").display()));
    command.args(disk.map(|disk| format!("{DISK}={}", disk.display())));
    for name in SETTINGS {
        command.args(std::env::var(name).map(|value| format!("{name}={value}")).ok());
    }
    let name = test_name();
    command.arg(tests).args(["--exact", "--nocapture", &name]).current_dir(place.path());
    let done = run(&mut command, seconds);
    assert!(done.status.success() && done.text().contains("1 passed"), "{}\n{}", done.text(), done.stderr);
    say(done.stderr.trim_end());
}
