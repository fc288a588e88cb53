//! A mount with an anchor, driven by real programs. Anything rolled back, removed, added or swapped in
//! the store is refused and reported, and no kill makes the anchor refuse valid data.
//!
//! `ANCHOR_KILLS` is the number of kills (default 16, or 40 with `PROVE=1`).

use crate::support::{
    command::{Done, ok, run, sh},
    disk::Disk,
    is_proof,
    mounted::{Mount, Vault},
    random::Random,
    ready, ready_as_root, setting,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread::{scope, sleep},
    time::Duration,
};

const CIPHER: &str = "aes-256-ctr";
/// Exit code of a check that found damage.
const UNREADABLE: i32 = 41;

/// A vault, with its anchor next to it.
struct Anchored {
    vault: Vault,
    anchor: PathBuf,
}

impl Anchored {
    fn new() -> Self {
        let vault = Vault::new(CIPHER);
        let anchor = vault.place_path().join("anchor");
        Anchored { vault, anchor }
    }

    fn mount(&self) -> Mount<'_> {
        self.vault.mount_with(&["--anchor", self.anchor.to_str().expect("UTF-8")])
    }

    /// Runs a script in a fresh mount, then unmounts.
    fn change(&self, script: &str) {
        let mount = self.mount();
        sh(mount.path(), script, &[], 60);
        mount.unmount();
    }

    fn check(&self, more: &[&str]) -> Done {
        let mut command = Vault::program();
        command.arg("check").arg(&self.vault.store).arg("--key-file").arg(&self.vault.key);
        run(command.arg("--anchor").arg(&self.anchor).args(more), 120)
    }

    /// Findings of a check: kind and path.
    fn findings(&self) -> BTreeSet<(String, String)> {
        let done = self.check(&["--json"]);
        let value: Value = serde_json::from_str(&done.text()).expect("JSON");
        let text = |finding: &Value, key: &str| finding[key].as_str().expect("text").to_owned();
        let all = value["findings"].as_array().expect("a list");
        let found: BTreeSet<_> = all
            .iter()
            .filter(|f| f["kind"] != "left over")
            .map(|f| (text(f, "kind"), text(f, "path")))
            .collect();
        let expected = if found.is_empty() { 0 } else { UNREADABLE };
        assert_eq!(done.code(), expected, "{found:?}: {}", done.stderr);
        assert_eq!(value["refused"], found.len(), "{found:?}");
        found
    }

    fn finds(&self, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(kind, path)| (kind.to_string(), path.to_string())).collect();
        assert_eq!(self.findings(), expected);
    }

    /// Copies the store's current state.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.vault.place_path().join(name);
        ok(Command::new("cp").arg("-a").arg(&self.vault.store).arg(&copy), 60);
        copy
    }

    /// Path in the store of a file of the vault.
    fn stored(&self, path: &str) -> PathBuf {
        let mount = self.mount();
        let number =
            |path: &Path| fs::symlink_metadata(path).map(|m| std::os::unix::fs::MetadataExt::ino(&m));
        fn all(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").path()) {
                if entry.is_dir() && !entry.is_symlink() {
                    all(&entry, found);
                }
                found.push(entry);
            }
        }
        let mut found = Vec::new();
        all(&self.vault.store, &mut found);
        let wanted = number(&mount.join(path)).expect("stat");
        // Inode numbers in the mount are those of the store.
        let place =
            found.into_iter().find(|stored| number(stored).is_ok_and(|n| n == wanted)).expect("stored");
        mount.unmount();
        place.strip_prefix(&self.vault.store).expect("below the store").to_owned()
    }

    /// Waits until a mount has moved everything to the new key.
    fn wait_until_rotated(&self) {
        let rotated = || self.vault.log_text().contains("everything in the vault is under the new key");
        (0..600).any(|_| {
            rotated() || {
                sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(rotated(), "{}", self.vault.log_text());
    }

    fn put_back(&self, copy: &Path, stored: &Path) {
        let to = self.vault.store.join(stored);
        ok(Command::new("cp").args(["-a", "--remove-destination"]).arg(copy.join(stored)).arg(to), 60);
    }
}

fn is_refused(path: PathBuf) -> bool {
    fs::read(path).is_err_and(|e| e.raw_os_error() == Some(libc::EIO))
}

/// Contents of the named files in the mount; `None` for an unreadable one.
fn shown(mount: &Mount, names: &[&str]) -> Vec<Option<Vec<u8>>> {
    names.iter().map(|name| fs::read(mount.join(name)).ok()).collect()
}

const FURNISH: &str = "mkdir dir; echo one >one; echo two >two; echo three >dir/three; echo four >dir/four; \
    ln -s one link; ln -s two other; mkfifo pipe; touch empty; sync one two dir/three";

#[test]
fn one_old_file_is_refused_and_named() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let stored = a.stored("one");
    let before = a.copy("before");
    a.change("echo more >>one; sync one");
    a.finds(&[]);
    a.put_back(&before, &stored);
    a.finds(&[("old", "one")]);
    let mount = a.mount();
    assert!(is_refused(mount.join("one")));
    assert_eq!(shown(&mount, &["two", "dir/three"]), [Some(b"two\n".to_vec()), Some(b"three\n".to_vec())]);
    mount.unmount();
    let log = a.vault.log_text();
    assert!(log.contains("is older than what was confirmed: commit record"), "{log}");
    assert!(log.contains(stored.to_str().expect("base64")), "{log}");
    // A read-only mount checks too. After `--accept`, the same content is valid again.
    let mount = a.vault.mount_with(&["--read-only", "--anchor", a.anchor.to_str().expect("UTF-8")]);
    assert!(is_refused(mount.join("one")));
    mount.unmount();
    assert_eq!(a.check(&["--accept"]).code(), 0);
    a.finds(&[]);
    a.change("test \"$(cat one)\" = one");
}

#[test]
fn the_whole_old_store_is_refused_and_named() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let before = a.copy("before");
    a.change("echo more >>one; rm two; echo new >dir/new; mkdir dir2; echo x >dir2/x; mv dir/four dir/five; ln -sfn new link");
    a.finds(&[]);
    let now = a.vault.place_path().join("now");
    fs::rename(&a.vault.store, &now).expect("rename");
    fs::rename(&before, &a.vault.store).expect("rename");
    a.finds(&[
        ("old", "one"),
        ("added", "two"),
        ("lost", "dir/new"),
        ("lost", "dir2"),
        ("added", "dir/four"),
        ("lost", "dir/five"),
        ("exchanged", "link"),
    ]);
    let mount = a.mount();
    assert!(
        ["one", "two", "dir/new", "dir2/x", "dir/four", "dir/five"].iter().all(|n| is_refused(mount.join(n)))
    );
    assert!(fs::read_link(mount.join("link")).is_err_and(|e| e.raw_os_error() == Some(libc::EIO)));
    assert_eq!(shown(&mount, &["dir/three", "empty"]), [Some(b"three\n".to_vec()), Some(Vec::new())]);
    let names: BTreeSet<OsString> = fs::read_dir(mount.join("dir"))
        .expect("list")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["three".into()].into());
    mount.unmount();
    fs::rename(&a.vault.store, a.vault.place_path().join("old")).expect("rename");
    fs::rename(&now, &a.vault.store).expect("rename");
    a.finds(&[]);
}

#[test]
fn lost_added_and_exchanged_files_are_refused_and_named() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let [one, two, three, four] = ["one", "two", "dir/three", "dir/four"].map(|name| a.stored(name));
    let [link, other] = ["link", "other"].map(|name| a.stored(name));
    let before = a.copy("before");
    a.change("rm dir/four");
    a.put_back(&before, &four);
    fs::remove_file(a.vault.store.join(three)).expect("remove");
    for (first, second) in [(&one, &two), (&link, &other)] {
        sh(
            &a.vault.store,
            "mv -- \"$1\" away && mv -- \"$2\" \"$1\" && mv -- away \"$2\"",
            &[first, second],
            30,
        );
    }
    let expected = [
        ("added", "dir/four"),
        ("lost", "dir/three"),
        ("exchanged", "one"),
        ("exchanged", "two"),
        ("exchanged", "link"),
        ("exchanged", "other"),
    ];
    a.finds(&expected);
    let mount = a.mount();
    assert!(["one", "two", "dir/three", "dir/four"].iter().all(|name| is_refused(mount.join(name))));
    assert!(["link", "other"].iter().all(|name| fs::read_link(mount.join(name)).is_err()));
    sh(mount.path(), "echo goes on >new; sync new; test -p pipe; rm one; echo again >one", &[], 60);
    mount.unmount();
    a.finds(
        &expected.map(|(kind, path)| (kind, path)).into_iter().filter(|f| f.1 != "one").collect::<Vec<_>>(),
    );
}

#[test]
fn another_root_and_a_directory_without_its_id_are_refused() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let (dir, before) = (a.vault.store.join(a.stored("dir")), a.copy("before"));
    for entry in fs::read_dir(&dir).expect("list") {
        fs::remove_file(entry.expect("entry").path()).expect("remove");
    }
    let mount = a.mount();
    let refused = fs::read_dir(mount.join("dir")).expect_err("another directory");
    assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    mount.unmount();
    sh("/", "rm -r \"$1\"; cp -a \"$2\" \"$1\"", &[&a.vault.store, &before], 60);
    a.finds(&[]);
    // Delete everything but the configuration, including the root's directory id.
    let keep = ["warpcrypt.json", "warpcrypt.json.copy"];
    for entry in fs::read_dir(&a.vault.store).expect("list").map(|entry| entry.expect("entry")) {
        let path = entry.path();
        match path.is_dir() && !path.is_symlink() {
            _ if keep.iter().any(|kept| entry.file_name() == *kept) => {}
            true => fs::remove_dir_all(path).expect("remove"),
            false => fs::remove_file(path).expect("remove"),
        }
    }
    let done = a.check(&[]);
    assert_eq!(done.code(), UNREADABLE, "{}", done.stderr);
    assert!(done.stderr.contains("root"), "{}", done.stderr);
}

/// Copying a file's records to another name and waiting for that name to be removed does not allow the
/// file to be rolled back.
#[test]
fn what_is_removed_elsewhere_is_not_forgotten() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let (one, two, before) = (a.stored("one"), a.stored("two"), a.copy("before"));
    a.change("echo more >>one; sync one");
    ok(Command::new("cp").arg(before.join(&one)).arg(a.vault.store.join(&two)), 60);
    a.change("rm two");
    a.put_back(&before, &one);
    assert!(a.findings().contains(&("old".to_owned(), "one".to_owned())));
}

#[test]
fn a_mount_without_the_anchor_is_named_with_the_command_that_mends_it() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let mount = a.vault.mount();
    fs::write(mount.join("beside"), "the anchor").expect("write");
    mount.unmount();
    a.finds(&[("added", "beside")]);
    let done = a.check(&[]);
    let command = format!("--anchor {} --accept", a.anchor.display());
    assert!(done.stderr.contains(&command), "{}", done.stderr);
    assert_eq!(a.check(&["--accept"]).code(), 0);
    a.change("test -f beside");
    // An old configuration cannot be used to open the vault.
    let config = fs::read(a.vault.store.join("warpcrypt.json")).expect("read");
    let other = a.vault.place_path().join("other");
    fs::write(&other, [7; 64]).expect("write");
    let mut add = Vault::program();
    add.args(["key", "add"])
        .arg(&a.vault.store)
        .arg("--key-file")
        .arg(&a.vault.key)
        .arg("--new-key-file")
        .arg(&other);
    ok(&mut add, 60);
    a.change("true");
    for name in ["warpcrypt.json", "warpcrypt.json.copy"] {
        fs::write(a.vault.store.join(name), &config).expect("write");
    }
    let refused = a.check(&[]);
    assert_eq!(refused.code(), UNREADABLE);
    assert!(refused.stderr.contains("its configuration is number"), "{}", refused.stderr);
}

/// The mount's process may open only the paths that it was given.
#[test]
fn an_anchor_is_made_where_its_name_leads() {
    if !ready(&[]) {
        return;
    }
    let mut a = Anchored::new();
    let [names, places] = ["names", "places"].map(|name| a.vault.place_path().join(name));
    for dir in [&names, &places] {
        fs::create_dir(dir).expect("a directory");
    }
    let made = places.join("anchor");
    a.anchor = names.join("anchor");
    symlink("more", &a.anchor).expect("a link");
    symlink("../places/anchor", names.join("more")).expect("a link to nothing");
    a.change("echo content >file");
    a.finds(&[]);
    assert!(fs::metadata(&made).expect("the anchor").len() > 0);
    fs::write(&made, "").expect("an empty file");
    a.change("echo more >file");
    a.finds(&[]);
    // The same without a symlink.
    a.anchor = made;
    fs::write(&a.anchor, "").expect("an empty file");
    a.change("echo last >file");
    a.finds(&[]);
}

#[test]
fn what_is_no_anchor_of_the_vault_is_refused() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    let (store, mount) = (&a.vault.store, &a.vault.mount_point);
    let text = a.vault.place_path().join("text");
    fs::write(&text, "some text").expect("write");
    let b = Anchored::new();
    b.change("true");
    for (file, code, message) in [
        (store.join("anchor"), 2, "lies inside of"),
        (mount.join("anchor"), 2, "lies inside of"),
        (text, 1, "is no anchor, or damaged"),
        (b.anchor.clone(), 1, "is the anchor of another vault"),
        (a.vault.place_path().join("no/where"), 1, "No such file or directory"),
    ] {
        let done = a.vault.try_mount(&["--anchor", file.to_str().expect("UTF-8")]);
        assert!(done.code() == code && done.stderr.contains(message), "{}: {}", file.display(), done.stderr);
    }
    let missing = a.check(&[]);
    assert!(missing.code() == 1 && missing.stderr.contains("there is no anchor"), "{}", missing.stderr);
    let kept = a.mount();
    let beside = a.vault.try_mount(&["--read-only", "--anchor", a.anchor.to_str().expect("UTF-8")]);
    assert_ne!(beside.code(), 0);
    kept.unmount();
}

#[test]
fn another_master_key_and_a_lock_leave_the_anchor_as_it_is() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let mount = a.mount();
    fs::write(mount.join("before"), "x").expect("write");
    ok(Vault::program().arg("lock").arg(mount.path()), 60);
    ok(Vault::program().arg("unlock").arg(mount.path()).arg("--key-file").arg(&a.vault.key), 60);
    fs::write(mount.join("after"), "x").expect("write");
    assert_eq!(a.vault.rotate(&[]).code(), 0);
    fs::write(mount.join("dir/later"), "x").expect("write");
    a.wait_until_rotated();
    mount.unmount();
    a.finds(&[]);
    let anchored = ["--anchor", a.anchor.to_str().expect("UTF-8"), "--drop-other-slots"];
    assert_eq!(a.vault.rotate(&anchored).code(), 0);
    a.finds(&[]);
    let before = a.copy("before");
    let stored = a.stored("one");
    a.change("echo more >>one");
    a.put_back(&before, &stored);
    a.finds(&[("old", "one")]);
    // After a rotation without the anchor, the key that opens the anchor is lost.
    assert_eq!(a.vault.rotate(&[]).code(), 0);
    let done = a.check(&[]);
    assert!(done.code() == 1 && done.stderr.contains("another master key"), "{}", done.stderr);
    assert_eq!(a.check(&["--accept"]).code(), 0);
    a.finds(&[]);
}

#[test]
fn an_old_configuration_put_back_while_locked_is_refused() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let configs = || ["warpcrypt.json", "warpcrypt.json.copy"].map(|name| a.vault.store.join(name));
    let other = a.vault.place_path().join("other");
    fs::write(&other, [7; 64]).expect("write");
    let old = configs().map(|path| fs::read(path).expect("read"));
    ok(&mut a.vault.add_key(&other), 60);
    let new = configs().map(|path| fs::read(path).expect("read"));
    let put = |texts: &[Vec<u8>; 2]| {
        configs().iter().zip(texts).for_each(|(path, text)| fs::write(path, text).expect("write"));
    };
    let mount = a.mount();
    let unlock =
        || run(Vault::program().arg("unlock").arg(mount.path()).arg("--key-file").arg(&a.vault.key), 60);
    ok(Vault::program().arg("lock").arg(mount.path()), 60);
    put(&old);
    for _ in 0..2 {
        let done = unlock();
        assert_eq!(done.code(), UNREADABLE, "{}", done.stderr);
        assert!(done.stderr.contains("its configuration is number"), "{}", done.stderr);
    }
    put(&new);
    assert_eq!(unlock().code(), 0);
    assert_eq!(fs::read(mount.join("one")).expect("read"), b"one\n");
    mount.unmount();
    a.finds(&[]);
}

/// The configuration opens with a key, but that key does not match the vault's root.
#[test]
fn a_configuration_from_before_a_rotation_is_old_and_no_wrong_key() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    a.change(FURNISH);
    let before = a.copy("before");
    let mount = a.mount();
    let former = fs::read(&a.vault.key).expect("key");
    assert_eq!(a.vault.rotate(&[]).code(), 0);
    a.wait_until_rotated();
    ok(Vault::program().arg("lock").arg(mount.path()), 60);
    for name in ["warpcrypt.json", "warpcrypt.json.copy"] {
        fs::copy(before.join(name), a.vault.store.join(name)).expect("put it back");
    }
    fs::write(&a.vault.key, former).expect("key");
    let mut unlock = Vault::program();
    unlock.arg("unlock").arg(mount.path()).arg("--key-file").arg(&a.vault.key);
    let done = run(&mut unlock, 60);
    assert_eq!(done.code(), UNREADABLE, "{}", done.stderr);
    mount.unmount();
    let done = a.vault.try_mount(&["--anchor", a.anchor.to_str().expect("UTF-8")]);
    assert_eq!(done.code(), UNREADABLE, "{}", done.stderr);
}

#[test]
fn a_full_disk_under_the_anchor_is_told_and_loses_nothing() {
    if !ready_as_root(&[]) {
        return;
    }
    let mut a = Anchored::new();
    let disk = Disk::new("2m");
    a.anchor = disk.0.path().join("anchor");
    a.change(FURNISH);
    let mount = a.mount();
    let mut one = fs::OpenOptions::new().append(true).open(mount.join("one")).expect("open");
    let ballast = disk.0.path().join("ballast");
    let fill = || {
        let mut file = fs::File::create(&ballast).expect("create");
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    let (mut told, mut written) = (false, b"one\n".to_vec());
    fill();
    for round in 0..5000 {
        let line = format!("line {round}, as all of them synced\n");
        one.write_all(line.as_bytes()).expect("write");
        written.extend(line.as_bytes());
        let other = fs::File::create(mount.join(format!("of round {round}"))).and_then(|mut other| {
            other.write_all(b"content")?;
            other.sync_all()
        });
        told = one.sync_all().is_err() || other.is_err();
        if told {
            break;
        }
    }
    assert!(told, "nobody was told of the full disk");
    assert_eq!(fs::read(mount.join("one")).expect("read"), written);
    fs::remove_file(&ballast).expect("remove");
    one.sync_all().expect("there is room again");
    fs::write(mount.join("dir/later"), "x").expect("write");
    drop(one);
    mount.unmount();
    a.finds(&[]);
    let mount = a.mount();
    assert_eq!(fs::read(mount.join("one")).expect("read"), written);
    mount.unmount();
}

#[test]
fn a_full_disk_under_the_anchor_keeps_nobody_from_unlocking() {
    if !ready_as_root(&[]) {
        return;
    }
    let mut a = Anchored::new();
    let disk = Disk::new("4m");
    a.anchor = disk.0.path().join("anchor");
    a.change(FURNISH);
    let mount = a.mount();
    let mut ballast = fs::File::create(disk.0.path().join("ballast")).expect("create");
    while ballast.write_all(&[1; 4096]).is_ok() {}
    let program = |command: &str| {
        let mut program = Vault::program();
        program.arg(command).arg(mount.path());
        program
    };
    for _ in 0..2 {
        ok(&mut program("lock"), 60);
        ok(program("unlock").arg("--key-file").arg(&a.vault.key), 60);
    }
    assert_eq!(fs::read(mount.join("one")).expect("read"), b"one\n");
    fs::remove_file(disk.0.path().join("ballast")).expect("remove");
    mount.unmount();
    a.finds(&[]);
}

/// Creates, changes, moves and removes files until told to stop or the mount ends.
fn load(dir: &Path, seed: u64, stop: &AtomicBool) {
    let mut random = Random::from_seed(seed);
    let place = |n: u64| dir.join(["", "a", "b", "a/c"][n as usize % 4]).join(format!("{}", n / 4));
    while !stop.load(Ordering::Relaxed) {
        let (here, there) = (place(random.below(40)), place(random.below(40)));
        let len = 1 + random.below(9000) as usize;
        let content = random.bytes(len);
        let synced = |path: &Path| fs::File::open(path).and_then(|file| file.sync_all());
        // Errors are expected: they come from the current state of the names, or from the kill.
        let _ = match random.below(12) {
            0 | 1 => fs::write(&here, content),
            2 => fs::write(&here, content).and_then(|()| synced(&here)),
            3 => fs::OpenOptions::new().append(true).open(&here).and_then(|mut file| {
                file.write_all(&content)?;
                file.sync_data()
            }),
            4 => fs::remove_file(&here),
            5 => fs::rename(&here, &there),
            6 => fs::hard_link(&here, &there),
            7 => symlink("somewhere", &here),
            8 => synced(here.parent().expect("a directory")),
            9 => fs::File::create(&here).map(drop),
            10 => fs::create_dir_all(dir.join(["a", "b", "a/c"][random.below(3) as usize])),
            _ => fs::remove_dir_all(dir.join(["a/c", "b"][random.below(2) as usize])),
        };
    }
}

#[test]
fn no_kill_makes_the_anchor_refuse_what_is_right() {
    if !ready(&[]) {
        return;
    }
    let a = Anchored::new();
    let mut random = Random::new("anchor");
    for round in 0..setting("ANCHOR_KILLS").unwrap_or(if is_proof() { 40 } else { 16 }) {
        let mount = a.mount();
        let (stop, seeds) = (AtomicBool::new(false), [random.next(), random.next()]);
        scope(|scope| {
            for (number, seed) in seeds.into_iter().enumerate() {
                let dir = mount.join(format!("of {number}"));
                let _ = fs::create_dir(&dir); // It exists from the second round on.
                let stop = &stop;
                scope.spawn(move || load(&dir, seed, stop));
            }
            // Some rounds last long enough for the anchor's thread to run.
            sleep(Duration::from_millis(if round % 8 == 7 { 9000 } else { random.below(700) }));
            mount.kill_server();
            stop.store(true, Ordering::Relaxed);
        });
        mount.kill();
        assert_eq!(a.findings(), BTreeSet::new(), "round {round}: {}", a.vault.log_text());
    }
    a.change("echo still >works");
    a.finds(&[]);
}
