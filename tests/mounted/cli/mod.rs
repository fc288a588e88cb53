//! The command line, driven through the real program: every exit code with its message, every source of
//! a secret, the life of a mount, and what a user without root privileges can do.

mod automount;
mod bench;
mod check;
mod codes;
mod deep;
mod doctor;
mod documents;
mod everyday;
mod fstab;
mod full;
pub mod hung;
mod install;
mod json;
mod keys;
mod logs;
mod mounts;
mod places;
mod planted;
mod prompts;
mod repair;
mod secrets;
mod terminal;
mod transfer;
mod users;

use crate::support::{
    command::{Done, run},
    mounted::Vault,
};
use std::{ffi::OsStr, fs, path::Path, process::Command};

/// Runs the program with these arguments.
fn warpcrypt<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Done {
    run(Vault::program().args(args), 60)
}

/// Runs a prepared command and requires this exit code, and this text on standard error.
#[track_caller]
fn fails(command: &mut Command, code: i32, says: &str) {
    let done = run(command, 60);
    assert_eq!(done.code(), code, "{command:?} said: {}", done.stderr);
    assert!(done.stderr.contains(says), "{command:?} said: {}", done.stderr);
    let said = done.stderr.matches("warpcrypt: ").count();
    assert!(said == 1 || code == 2, "{command:?} said: {}", done.stderr);
}

/// A `mount` command for this vault, with its mount point and key file.
fn mount_command(vault: &Vault) -> Command {
    let mut command = Vault::program();
    command.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&vault.key);
    command.arg("--log-file").arg(&vault.log);
    command
}

/// A shell script in a private mount namespace; its arguments may be appended. First unmounts the other
/// tests' mounts there, which the namespace would otherwise keep alive.
fn in_namespace(script: &str) -> Command {
    let alone =
        "awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | xargs -r -n1 umount -i -l 2>/dev/null || true";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc", &format!("{alone}\n{script}"), "sh"]);
    command
}

/// Writes a file and returns its path as text.
fn file(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, content).expect("write");
    path.to_str().expect("UTF-8").to_owned()
}

/// A path as text.
fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
