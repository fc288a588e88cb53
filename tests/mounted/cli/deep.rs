//! A tree deeper than both the open-file limit and the maximum path length: commands traverse it without
//! a mount.

use super::transfer::json;
use crate::support::{
    command::{ok, run},
    is_proof,
    mounted::{Vault, memory, program_path},
    ready,
};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use serde_json::Value;
use std::{
    ffi::{CString, OsStr},
    fs::{self, File},
    io::Write,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
};

/// Levels of the tree. With Landlock the kernel checks every ancestor of a file that is opened.
const SAMPLE: usize = 3000;
const PROOF: usize = 8000;
/// There is a file at every so many levels.
const FILES: usize = 16;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// Open-file limit of a command.
const OPEN_MAX: &str = "1024";

/// A directory tree that is removed level by level on drop; the standard library would recurse.
struct Deep(PathBuf);

impl Drop for Deep {
    fn drop(&mut self) {
        let Ok(mut at) = openat(CWD, &self.0, DIRECTORY, Mode::empty()) else { return };
        let mut depth = 0;
        loop {
            let next = match remove_in(&at) {
                Some(name) => {
                    depth += 1;
                    name
                }
                None if depth == 0 => return,
                None => {
                    depth -= 1;
                    c"..".to_owned()
                }
            };
            at = openat(&at, next, DIRECTORY, Mode::empty()).expect("a directory");
        }
    }
}

/// Removes everything in a directory except non-empty subdirectories, and returns one of those.
fn remove_in(dir: &OwnedFd) -> Option<CString> {
    let names = Dir::read_from(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_owned());
    names.filter(|name| ![c".", c".."].contains(&name.as_c_str())).fold(None, |left, name| {
        let removed =
            unlinkat(dir, &name, AtFlags::empty()).or_else(|_| unlinkat(dir, &name, AtFlags::REMOVEDIR));
        removed.err().map(|_| name).or(left)
    })
}

/// Each level has a directory that continues downwards, and another one that a traversal must return to.
fn dig(top: &Path, levels: usize) {
    fs::create_dir(top).expect("a directory");
    let mut at = openat(CWD, top, DIRECTORY, Mode::empty()).expect("a directory");
    for level in 0..levels {
        if level.is_multiple_of(FILES) {
            let file = openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).expect("a file");
            File::from(file).write_all(level.to_string().as_bytes()).expect("content");
        }
        for name in ["a", "b"] {
            mkdirat(&at, name, Mode::RWXU).expect("a directory");
        }
        at = openat(&at, "a", DIRECTORY, Mode::empty()).expect("a directory");
    }
}

/// The program with a low open-file limit. Root could raise the limit again, so that privilege is
/// dropped.
fn limited() -> Command {
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource", "sh"]);
            command
        }
        false => Command::new("sh"),
    };
    command.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", OPEN_MAX]).arg(program_path());
    command
}

#[test]
fn a_tree_deeper_than_the_limit_of_open_files_is_walked() {
    if !ready(&["setpriv"]) {
        return;
    }
    let (vault, memory) = (Vault::in_memory("aes-256-ctr"), memory(1 << 30));
    let place = memory.as_ref().map_or_else(|| vault.place_path(), |memory| memory.path());
    let [tree, copy] = ["tree", "copy"].map(|name| place.join(name));
    let _removed = [&tree, &copy, &vault.store].map(|dir| Deep(dir.clone()));
    let levels = if is_proof() { PROOF } else { SAMPLE };
    dig(&tree, levels);
    let (all, files) = (2 * levels as u64, levels.div_ceil(FILES) as u64);
    let with = |args: &[&dyn AsRef<OsStr>]| {
        let mut command = limited();
        args.iter().for_each(|arg| _ = command.arg(arg));
        command.arg("--key-file").arg(&vault.key);
        command
    };
    let copied = |args: &[&dyn AsRef<OsStr>], directories: u64, copied: u64| {
        let (code, said) = json(&mut with(args));
        assert_eq!((code, &said["problems"]), (0, &Value::Array(Vec::new())), "{said}");
        assert_eq!((&said["directories"], &said["files"]), (&directories.into(), &copied.into()), "{said}");
    };
    copied(&[&"import", &vault.store, &tree], all, files);
    let (code, said) = json(&mut with(&[&"check", &"--full", &vault.store]));
    assert_eq!((code, &said["directories"], &said["files"]), (0, &(all + 1).into(), &files.into()), "{said}");
    let listed = run(&mut with(&[&"ls", &"--recursive", &vault.store]), 120);
    assert_eq!(listed.code(), 0, "{}", listed.stderr);
    assert_eq!(listed.stdout.iter().filter(|byte| **byte == b'\n').count() as u64, all + files);
    let hashed = ok(&mut with(&[&"hash", &"--sum", &"--vault", &vault.store]), 120);
    assert_eq!(hashed.lines().count() as u64, files);
    fs::create_dir(&copy).expect("a directory");
    copied(&[&"export", &vault.store, &"/", &copy], all, files);
    // Everything exists already, including the directory times, which are set last.
    copied(&[&"export", &vault.store, &"/", &copy], 0, 0);
}
