//! `lock` and `unlock`: programs wait and then continue, and the process of a locked mount has neither
//! keys nor content in memory.

mod secrets;
use crate::support::{
    command::{Done, Running, ok, run},
    disk::Disk,
    fake::Fake,
    mounted::{Mount, Vault, is_mounted},
    random::Random,
    ready, ready_as_root, say,
    waiting::{NEVER, wait_for},
};
use fuse::{ControlCommand, Patience, tell};
use rustix::{
    process::{Signal, Uid, geteuid, kill_process},
    thread::set_thread_res_uid,
};
use secrets::Secrets;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

const MIB: usize = 1 << 20;

fn lock(mount: &Mount, options: &[&str]) -> Done {
    run(Vault::program().arg("lock").args(options).arg(mount.path()), 60)
}

fn unlock(vault: &Vault) {
    ok(Vault::program().arg("unlock").arg(&vault.mount_point).arg("--key-file").arg(&vault.key), 60);
}

/// Programs that read and write on a mount until stopped.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Load {
    /// Repeatedly reads a file with these bytes: completely, and in small random pieces.
    fn read(&self, path: &Path, bytes: &[u8]) {
        let mut random = Random::new("places");
        let mut part = vec![0; 10_000];
        while !self.stop.load(SeqCst) {
            assert!(fs::read(path).expect("read") == bytes, "a file reads otherwise");
            let file = File::open(path).expect("open");
            for _ in 0..20 {
                let at = random.below((bytes.len() - part.len()) as u64);
                file.read_exact_at(&mut part, at).expect("read");
                assert!(part == bytes[at as usize..][..part.len()], "a part reads otherwise");
            }
            self.reads.fetch_add(1, SeqCst);
        }
    }

    /// Repeatedly writes a file and reads it back.
    fn write(&self, path: &Path, marker: &[u8]) {
        for round in 0.. {
            if self.stop.load(SeqCst) {
                return;
            }
            let bytes = [&u64::to_le_bytes(round)[..], &marker.repeat(2 * MIB / marker.len())].concat();
            fs::write(path, &bytes).expect("write");
            assert!(fs::read(path).expect("read") == bytes, "a file reads otherwise than written");
            self.writes.fetch_add(1, SeqCst);
        }
    }

    fn done(&self) -> (u64, u64) {
        (self.reads.load(SeqCst), self.writes.load(SeqCst))
    }
}

/// Locks a mount under load with these `mount` options, and searches the memory of its process for all
/// secrets.
fn lock_under_load(options: &[&str]) {
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(options);
    let mut random = Random::new("content");
    let marker = random.bytes(64);
    let bytes = marker.repeat(8 * MIB / marker.len());
    let files = ["a", "b"].map(|name| mount.join(name));
    files.iter().for_each(|file| fs::write(file, &bytes).expect("write"));
    let written = mount.join("written");
    // Use a new process: some recently written data may remain in the buffers that receive the kernel's
    // requests.
    let mount = mount.remount();
    let load = Load::default();
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| load.read(file, &bytes));
        }
        // Separate content: if programs write while the vault is locked, the process holds the data that
        // the kernel has handed over.
        let other = random.bytes(64);
        let written = &written;
        let load = &load;
        scope.spawn(move || load.write(written, &other));
        wait_for("load", || load.done().0 > 2 && load.done().1 > 2);
        // An open handle, and content without a name.
        let kept = File::open(&files[0]).expect("open");
        let nameless = File::options().read(true).write(true).create_new(true).open(mount.join("nameless"));
        let mut nameless = nameless.expect("open");
        let content = random.bytes(100_000);
        nameless.write_all(&content).expect("write");
        fs::remove_file(mount.join("nameless")).expect("remove");

        let mut secrets = Secrets::of(&vault);
        secrets.add("content", &marker);
        let before = secrets.found_in(mount.pid);

        for name in ["sub-key contents", "content"] {
            assert!(before.contains_key(name), "the search does not find what is there: {before:?}");
        }
        let of_file =
            |ending: &str| before.keys().any(|name| name.starts_with("file ") && name.ends_with(ending));
        for ending in ["key, to encrypt", "state of warpcrypt v2 chunk", "state of warpcrypt v2 record"] {
            assert!(of_file(ending), "the search does not find {ending}: {before:?}");
        }

        let done = lock(&mount, &[]);
        assert!(done.status.success(), "{}", done.stderr);
        let at_lock = load.done();
        // Include the secrets of files created since.
        let mut secrets = Secrets::of(&vault);
        secrets.add("content", &marker);
        let after = secrets.found_in(mount.pid);
        say(format_args!(
            "{} secrets: {} found before the lock, {} after: {after:?}",
            secrets.len(),
            before.len(),
            after.len()
        ));
        assert_eq!(load.done(), at_lock, "a program went on while the vault was locked");
        assert!(is_locked(&mount));
        assert!(lock(&mount, &[]).status.success(), "a lock of what is locked");

        unlock(&vault);
        wait_for("programs go on", || load.done().0 > at_lock.0 + 2 && load.done().1 > at_lock.1 + 2);
        let mut part = [0; 1000];
        kept.read_exact_at(&mut part, 5 * MIB as u64).expect("read");
        assert!(part == bytes[5 * MIB..][..1000]);
        let mut whole = vec![0; 100_000];
        nameless.read_exact_at(&mut whole, 0).expect("read");
        assert!(whole == content);
        load.stop.store(true, SeqCst);
        // Asserted only now: after an earlier failure, waiting programs would keep the test from ending.
        assert_eq!(after, BTreeMap::new());
    });
    mount.unmount();
    let log = vault.log_text();
    assert!(!log.contains("ERROR") && log.contains("locked"), "{log}");
    let mount = vault.mount();
    assert!(fs::read(mount.join("b")).expect("read") == bytes);
    mount.unmount();
}

#[test]
fn under_load_programs_wait_and_nothing_secret_is_left() {
    // Root is needed to read the memory of the mount's process.
    if ready_as_root(&[]) {
        lock_under_load(&[]);
    }
}

/// A mount with a file, in the locked state.
fn locked(vault: &Vault) -> Mount<'_> {
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    let done = lock(&mount, &[]);
    assert!(done.status.success(), "{}", done.stderr);
    mount
}

fn has_file(vault: &Vault) {
    let mount = vault.mount();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();
}

#[test]
fn a_wrong_key_unlocks_nothing() {
    if !ready(&["cat"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = locked(&vault);
    let wrong = vault.place_path().join("wrong");
    fs::write(&wrong, [1; 64]).expect("key file");
    let done = run(Vault::program().arg("unlock").arg(&vault.store).arg("--key-file").arg(&wrong), 60);
    assert_eq!(done.code(), 10, "{}", done.stderr);
    // `info` reports the lock, for the vault and for the mount point, and does not block.
    for place in [&vault.store, &vault.mount_point] {
        assert!(info(place).contains(", locked\n"), "{place:?}");
    }
    // A waiting program blocks, and ends when it is killed.
    let mut reader = Running::start(Command::new("cat").arg(mount.join("file")));
    wait_for("a program waits", || waits(reader.pid()));
    reader.kill();
    unlock(&vault);
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    assert!(!info(&vault.store).contains("locked"));
    mount.unmount();
}

fn info(place: &Path) -> String {
    ok(Vault::program().arg("info").arg(place), 60)
}

/// Whether a process is in a wait that only SIGKILL can interrupt.
fn waits(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['D', 'S']))
}

#[test]
fn a_locked_mount_ends_by_unmount_by_kill_and_as_asked() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    locked(&vault).unmount();
    has_file(&vault);
    locked(&vault).kill();
    has_file(&vault);
    let mount = vault.mount();
    let held = File::open(mount.join("file")).expect("open");
    let done = lock(&mount, &["--end"]);
    assert!(done.status.success(), "{}", done.stderr);
    assert!(held.read_at(&mut [0; 10], 0).is_err(), "a program still reads");
    drop(held);
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    has_file(&vault);
}

#[test]
fn big_writes_go_on_after_a_lock() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let bytes = Random::new("big").bytes(64 * MIB);
    let path = mount.join("big");
    let file = File::create(&path).expect("create");
    let (writes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                file.write_all_at(&bytes, 0).expect("write");
                writes.fetch_add(1, SeqCst);
            }
        });
        wait_for("writes", || writes.load(SeqCst) > 0);
        let done = lock(&mount, &[]);
        assert!(done.status.success(), "{}", done.stderr);
        let before = writes.load(SeqCst);
        unlock(&vault);
        wait_for("writes go on", || writes.load(SeqCst) > before + 1);
        stop.store(true, SeqCst);
    });
    assert!(fs::read(&path).expect("read") == bytes);
    drop(file);
    mount.unmount();
    let mount = vault.mount();
    assert!(fs::read(mount.join("big")).expect("read") == bytes);
    mount.unmount();
}

#[test]
fn an_idle_vault_is_locked() {
    if !ready(&["cat"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(&["--idle", "1s"]);
    fs::write(mount.join("file"), "content").expect("write");
    wait_for("the lock", || is_locked(&mount));
    let reader = Running::start(Command::new("cat").arg(mount.join("file")));
    wait_for("a program waits", || waits(reader.pid()));
    assert!(is_locked(&mount));
    unlock(&vault);
    let done = reader.finish(NEVER);
    assert_eq!(done.text(), "content", "{}", done.stderr);
    mount.unmount();
}

#[test]
fn an_idle_vault_is_unmounted_once_nobody_uses_it() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    for options in [&["--idle-unmount", "1s"][..], &["-o", "idle=1s,idle-unmount=2s"]] {
        let mount = vault.mount_with(options);
        fs::write(mount.join("file"), "content").expect("write");
        let file = fs::File::open(mount.join("file")).expect("open");
        // Long enough for two attempts.
        thread::sleep(Duration::from_secs(5));
        assert!(mount.alive() && is_mounted(mount.path()), "{options:?}: a program has a file open");
        drop(file);
        wait_for("the end of the mount", || !is_mounted(mount.path()) && !mount.alive());
        drop(mount);
        has_file(&vault);
    }
}

/// If it were locked, nobody could unlock it again for the programs that still have files open.
#[test]
fn an_idle_vault_that_was_detached_is_not_locked() {
    idle_and_detached(|mount| kill_process(mount.pid, Signal::TERM).expect("kill"));
}

#[test]
fn an_idle_vault_that_others_detached_is_not_locked() {
    idle_and_detached(detach);
}

fn detach(mount: &Mount) {
    ok(Command::new("umount").arg("-l").arg(mount.path()), 60);
}

fn idle_and_detached(detach: impl Fn(&Mount)) {
    if !ready_as_root(&["sh", "cat", "umount"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(&["--idle", "8s"]);
    fs::write(mount.join("file"), "content").expect("write");
    let [opened, go_on] = ["opened", "go-on"].map(|name| vault.place_path().join(name));
    let script = "exec 3<$1; touch $2; until [ -e $3 ]; do sleep 0.1; done; cat <&3";
    let mut reader = Command::new("sh");
    reader.args(["-c", script, "sh"]).args([mount.join("file"), opened.clone(), go_on.clone()]);
    let reader = Running::start(&mut reader);
    wait_for("the open file", || opened.exists());
    detach(&mount);
    wait_for("the detach", || !is_mounted(mount.path()));
    // Longer than it would take to lock the vault.
    thread::sleep(Duration::from_secs(12));
    fs::write(go_on, "").expect("write");
    let done = reader.finish(NEVER);
    assert_eq!(done.text(), "content", "{}", done.stderr);
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    assert!(!vault.log_text().contains("locked"), "{}", vault.log_text());
    has_file(&vault);
}

#[test]
fn who_waits_for_a_locked_vault_that_others_detach_gets_an_error() {
    if !ready_as_root(&["cat", "umount"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = locked(&vault);
    let mut reader = Running::start(Command::new("cat").arg(mount.join("file")));
    wait_for("a program waits", || waits(reader.pid()));
    detach(&mount);
    let ended = reader.ends(Duration::from_secs(20));
    if !ended {
        mount.kill_server();
    }
    assert!(ended && reader.finish(NEVER).code() == 1, "a program waits for ever");
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    has_file(&vault);
}

fn is_locked(mount: &Mount) -> bool {
    let status = run(Vault::program().arg("stat").arg("--json").arg(mount.path()), 20);
    status.text().contains("\"locked\": true")
}

#[test]
fn what_cannot_be_stored_keeps_a_vault_from_being_locked() {
    // Large enough that a write reserves no space in advance.
    const SIZE: &str = "128m";
    if !ready_as_root(&["mount"]) {
        return;
    }
    let store = Disk::new(SIZE);
    let vault = Vault::at(&store.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount();
    let path = mount.join("file");
    // Few enough bytes that nothing is flushed before it is requested.
    let bytes = Random::new("full").bytes(100_000);
    let file = store.write_unstored(SIZE, &vault, &path, &bytes);
    let done = lock(&mount, &[]);
    assert!(!done.status.success(), "locked");
    // The stored name, which reveals nothing to others.
    let stored = fs::read_dir(&vault.store).expect("the store").flatten();
    let mut names = stored.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(names.any(|name| done.stderr.contains(&format!(": {name}: "))), "{}", done.stderr);
    assert!(!is_locked(&mount));
    assert!(fs::read(&path).expect("read") == bytes);
    store.resize(SIZE).expect("resize");
    file.write_all_at(b"goes on", 0).expect("write");
    fs::write(mount.join("another"), "made meanwhile").expect("write");
    let done = lock(&mount, &[]);
    assert!(done.status.success(), "{}", done.stderr);
    unlock(&vault);
    let read = fs::read(&path).expect("read");
    assert!(read.starts_with(b"goes on") && read[7..] == bytes[7..]);
    assert_eq!(fs::read_to_string(mount.join("another")).expect("read"), "made meanwhile");
    drop(file);
    mount.unmount();
}

/// A program could neither close the file nor be killed until the unlock, because of data in the
/// kernel's write-back cache.
#[test]
fn with_write_back_a_lock_waits_for_no_writer() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(&["--cache", "write-back"]);
    let path = mount.join("file");
    let mut file = File::create(&path).expect("create");
    file.write_all(b"written, ").expect("write");
    let done = lock(&mount, &[]);
    assert!(!done.status.success() && done.stderr.contains("open for writing"), "{}", done.stderr);
    assert!(!is_locked(&mount));
    file.write_all(b"and more").expect("a refused lock changes nothing");
    drop(file);
    // The kernel sends the release after close has returned.
    wait_for("the file to be closed", || lock(&mount, &[]).status.success());
    assert!(is_locked(&mount));
    unlock(&vault);
    assert_eq!(fs::read_to_string(&path).expect("read"), "written, and more");

    let mut file = File::options().append(true).open(&path).expect("open");
    file.write_all(b", and last").expect("write");
    let done = lock(&mount, &["--end"]);
    assert!(done.status.success(), "{}", done.stderr);
    drop(file);
    wait_for("the end of the process", || !mount.alive());
    drop(mount);
    let mount = vault.mount();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "written, and more, and last");
    mount.unmount();
}

#[test]
fn another_user_may_not_lock() {
    if !ready(&[]) || !geteuid().is_root() {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    let device = fs::metadata(mount.path()).expect("stat").dev();
    let told = thread::scope(|scope| {
        let as_other = || {
            let other = Uid::from_raw(65534);
            set_thread_res_uid(other, other, other).expect("another user");
            tell(device, 0, &ControlCommand::Lock, &Patience::default()).map(drop)
        };
        scope.spawn(as_other).join().expect("no panic")
    });
    assert_eq!(told.map_err(|e| e.kind()), Err(io::ErrorKind::PermissionDenied));
    assert!(!is_locked(&mount));
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();
}

/// Any user can mount something that claims to be a vault, and answer in place of its process.
#[test]
fn a_mount_of_another_user_is_told_no_key() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let answer = |command: &[u8]| if command == [1, 4] { "locked".into() } else { String::new() };
    let fake = Fake::new(&vault.store, 65534, answer);
    let tell = |command: &str, place: &Path, options: &[&Path]| {
        run(Vault::program().arg(command).arg(place).args(options), 60)
    };
    let key = [Path::new("--key-file"), &vault.key];
    for done in [
        tell("unlock", &vault.store, &key),
        tell("unlock", fake.path(), &key),
        tell("lock", &vault.store, &[]),
        tell("freeze", &vault.store, &[]),
    ] {
        assert!(!done.status.success(), "told another user's mount");
        assert!(done.stderr.contains("by another user (uid 65534)"), "{}", done.stderr);
    }
    assert!(!info(&vault.store).contains("locked"));
    assert_eq!(fake.heard(), [[0; 0]; 0]);

    // The fake does not obstruct the vault's own mount.
    let mount = locked(&vault);
    assert!(info(&vault.store).contains(", locked\n"));
    ok(Vault::program().arg("unlock").arg(&vault.store).args(key), 60);
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();
    assert_eq!(fake.heard(), [[0; 0]; 0]);

    // Root may send it commands without secrets, addressed by its mount point.
    assert!(tell("lock", fake.path(), &[]).status.success());
    assert_eq!(fake.heard(), [[1, 1]]);
}
