//! Root runs a command on a store whose owner has replaced one of its files with something else. The
//! replacement must never be opened, and nothing may hang.

use crate::support::{
    command::{run, script},
    mounted::{Vault, program_path},
    ready_as_root,
};
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
const FILES: [&str; 6] = [
    "warpcrypt.lock",
    "warpcrypt.json",
    "warpcrypt.json.copy",
    "warpcrypt.dir",
    "warpcrypt.times",
    ".warpcrypt.reverse.json",
];
const KINDS: [&str; 4] = ["pipe", "link", "socket", "device"];

/// Creates a node of this kind, and watches whether it is opened.
fn plant(kind: &str, at: &Path, aside: &Path) -> OwnedFd {
    let node = |kind, device| mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), device).expect("mknod");
    match kind {
        "pipe" => node(FileType::Fifo, 0),
        "device" => node(FileType::CharacterDevice, makedev(1, 3)),
        "socket" => drop(UnixListener::bind(at).expect("a socket")),
        _ => symlink(aside, at).expect("a link"),
    }
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
    // For a symlink, this watches the target.
    inotify::add_watch(&watch, at, WatchFlags::OPEN).expect("a watch");
    watch
}

fn was_opened(watch: &OwnedFd) -> bool {
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(watch, &mut room);
    // Another event reports that the node is gone, because a copy of the configuration replaced it.
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
        // While the vault is mounted.
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
        // While it is not mounted.
        if at.exists() {
            fs::rename(&at, &kept).expect("rename");
        }
        for command in [&["check"][..], &["check", "--full"], &["ls"], &["key", "list"]] {
            check(command[0], command, command != ["key", "list"], &vault.store);
        }
        let new = vault.place_path().join("new-key");
        fs::write(&new, format!("{kind} in the place of {file}")).expect("key file");
        let to_new = ["key", "rotate", "--new-key-file", new.to_str().expect("UTF-8")];
        check("rotate", &to_new, true, &vault.store);
        let mut list = Vault::program();
        if run(list.arg("ls").arg(&vault.store).arg("--key-file").arg(&vault.key), 60).code() != 0 {
            fs::rename(&new, &vault.key).expect("rename");
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

/// A log, metrics, the state of a check, a list of hashes and measurements that root writes to another
/// user's directory.
#[test]
fn root_writes_through_no_link_that_is_planted_in_a_directory() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let place = vault.place_path().join("theirs");
    fs::create_dir_all(place.join(".cache/warpcrypt")).expect("mkdir");
    let aside = vault.place_path().join("aside");
    fs::write(&aside, "kept").expect("write");
    for link in ["log", "metrics.new", "metrics", "state.new"] {
        symlink(&aside, place.join(link)).expect("a link");
    }
    for dir in ["", ".cache", ".cache/warpcrypt"] {
        chown(place.join(dir), Some(USER), Some(USER)).expect("chown");
    }
    let says = |done: &str| assert_eq!(fs::read_to_string(&aside).expect("read"), "kept", "{done}");
    let root = |text: &str| {
        let text = format!(
            "program={} vault={} key={} mnt={}; {text}",
            program_path().display(),
            vault.store.display(),
            vault.key.display(),
            vault.mount_point.display()
        );
        run(&mut script(&place, &text), 120)
    };
    let mounted = root("\"$program\" mount \"$vault\" \"$mnt\" --key-file \"$key\" --log-file log");
    assert!(mounted.status.success() && mounted.stderr.contains("log file"), "{}", mounted.stderr);
    says("mount --log-file");
    let stat = root("\"$program\" stat --prometheus metrics \"$mnt\"");
    assert!(stat.status.success(), "{}", stat.stderr);
    says("stat --prometheus");
    assert!(fs::read_to_string(place.join("metrics")).expect("read").contains("warpcrypt_uptime_seconds"));
    root("\"$program\" umount \"$mnt\"");
    // State planted by another user could make a check skip files.
    fs::write(place.join("state"), "{}").expect("write");
    chown(place.join("state"), Some(USER), Some(USER)).expect("chown");
    let check = root("\"$program\" check \"$vault\" --key-file \"$key\" --resume state");
    assert!(check.code() == 1 && check.stderr.contains("belongs to uid 65534"), "{}", check.stderr);
    let empty = vault.place_path().join("empty");
    fs::write(&empty, "").expect("write");
    symlink(&empty, place.join("list")).expect("a link");
    let hashed = root("echo a >f; \"$program\" hash -k list --append f");
    assert!(!hashed.status.success() && hashed.stderr.contains("symbolic links"), "{}", hashed.stderr);
    assert_eq!(fs::read(&empty).expect("read"), b"");
    // The file name that a process with this id would use.
    let devices = root(
        "ln -s ../../../aside .cache/warpcrypt/engines.$$; export HOME=\"$PWD\"; unset XDG_CACHE_HOME
        exec \"$program\" devices",
    );
    assert!(devices.status.success(), "{}", devices.stderr);
    says("devices");
}
