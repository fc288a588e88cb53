//! Root runs a command on a store whose owner has put something else in the place of one of its files: nothing of that is
//! opened, and nothing hangs.

use crate::support::{command::run, mounted::Vault, ready_as_root};
use rustix::fs::{
    CWD, FileType, Mode, inotify,
    inotify::{CreateFlags, ReadFlags, Reader, WatchFlags},
    makedev, mknodat,
};
use std::{
    fs,
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{PermissionsExt, chown, symlink},
            net::UnixListener,
        },
    },
    path::Path,
};

const USER: u32 = 65_534;
const FILES: [&str; 5] =
    ["warpcrypt.lock", "warpcrypt.json", "warpcrypt.json.copy", "warpcrypt.dir", ".warpcrypt.reverse.json"];
const KINDS: [&str; 4] = ["pipe", "link", "socket", "device"];

/// Puts something there, and watches whether it is opened.
fn plant(kind: &str, at: &Path, aside: &Path) -> OwnedFd {
    let node = |kind, device| mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), device).expect("mknod");
    match kind {
        "pipe" => node(FileType::Fifo, 0),
        "device" => node(FileType::CharacterDevice, makedev(1, 3)),
        "socket" => drop(UnixListener::bind(at).expect("a socket")),
        _ => symlink(aside, at).expect("a link"),
    }
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
    // Of a link, what it leads to.
    inotify::add_watch(&watch, at, WatchFlags::OPEN).expect("a watch");
    watch
}

fn was_opened(watch: &OwnedFd) -> bool {
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(watch, &mut room);
    // Another event says that the node is gone: a copy of the configuration was put in its place.
    std::iter::from_fn(|| reader.next().ok().map(|event| event.events()))
        .any(|events| events.contains(ReadFlags::OPEN))
}

#[test]
fn nothing_that_is_planted_in_a_store_is_opened() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let aside = vault.place_path().join("aside");
    fs::write(&aside, "").expect("write");
    chown(&vault.store, Some(USER), Some(USER)).expect("chown");
    fs::set_permissions(&vault.store, fs::Permissions::from_mode(0o700)).expect("chmod");
    let mut opened = Vec::new();
    for (file, kind) in FILES.iter().flat_map(|file| KINDS.map(|kind| (file, kind))) {
        let (at, kept) = (vault.store.join(file), vault.store.with_file_name("kept"));
        let mut check = |shown: &str, command: &[&str], with_key: bool, place: &Path| {
            let watch = plant(kind, &at, &aside);
            let mut program = Vault::program();
            program.args(command).arg(place);
            if with_key {
                program.arg("--key-file").arg(&vault.key);
            }
            run(&mut program, 60);
            if was_opened(&watch) {
                opened.push(format!("{shown}: {file}: {kind}"));
            }
            let _ = fs::remove_file(&at);
        };
        // While it is mounted.
        let mount = vault.mount();
        let has_it = at.exists();
        if has_it {
            fs::rename(&at, &kept).expect("rename");
        }
        check("stat", &["stat"], false, mount.path());
        check("info", &["info"], false, mount.path());
        check("umount", &["umount"], false, mount.path());
        drop(mount);
        if has_it {
            fs::rename(&kept, &at).expect("rename");
        }
        // While it is not.
        if at.exists() {
            fs::rename(&at, &kept).expect("rename");
        }
        for command in [&["check"][..], &["check", "--full"], &["ls"], &["key", "rotate"], &["key", "list"]] {
            check(command[0], command, command != ["key", "list"], &vault.store);
        }
        check("info", &["info"], false, &vault.store);
        let mount = |options: &[&str]| {
            let watch = plant(kind, &at, &aside);
            vault.try_mount(options);
            let opened = was_opened(&watch);
            run(Vault::program().arg("umount").arg(&vault.mount_point), 60);
            let _ = fs::remove_file(&at);
            opened
        };
        for options in [&[][..], &["--read-only"], &["--reverse"]] {
            if mount(options) {
                opened.push(format!("mount {options:?}: {file}: {kind}"));
            }
        }
        if kept.exists() {
            fs::rename(&kept, &at).expect("rename");
        }
    }
    assert!(opened.is_empty(), "{}", opened.join("\n"));
}
