//! Commands next to a mount whose process does not answer, or that is not what it claims to be.

use crate::{
    cli::{
        fails, text,
        users::{Home, device_for_all},
    },
    support::{
        command::{Running, ok, run, script},
        fake::Fake,
        mounted::{Mount, Vault, program_path},
        ready, ready_as_root,
        waiting::{stop, wait_for},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    sync::{Mutex, mpsc::channel},
    thread,
    time::Duration,
};

/// A process that stays stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn of(mount: &Mount) -> Stopped {
        stop(mount.pid);
        Stopped(mount.pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The store of one vault is inside the hanging mount, so looking at it would block.
#[test]
fn a_mount_that_hangs_keeps_nobody_from_finding_another() {
    if !ready(&[]) {
        return;
    }
    let outer = Vault::new("aes-256-ctr");
    let hangs = outer.mount();
    let inner = Vault::at(&hangs.join("vault"), "aes-256-ctr");
    let inside = inner.mount();
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let elsewhere = vault.place_path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");

    let stopped = Stopped::of(&hangs);
    let mut again = Vault::program();
    again.arg("mount").arg(&vault.store).arg(&elsewhere).arg("--key-file").arg(&vault.key);
    fails(&mut again, 15, &format!("already mounted for writing on {}", text(mount.path())));
    ok(Vault::program().arg("lock").arg(&vault.store), 60);
    ok(Vault::program().arg("unlock").arg(&vault.store).arg("--key-file").arg(&vault.key), 60);
    drop(stopped);
    [mount, inside, hangs].into_iter().for_each(Mount::unmount);
}

#[test]
fn nobody_waits_for_the_answer_of_a_mount_that_hangs() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let stopped = Stopped::of(&mount);
    let told = ok(Vault::program().arg("info").arg("--json").arg(&vault.store), 20);
    assert!(told.contains("\"locked\": null") && told.contains("\"frozen\": null"), "{told}");
    let hangs = "the mount's process does not answer";
    fails(Vault::program().arg("stat").arg(mount.path()), 1, hangs);
    fails(Vault::program().arg("freeze").arg(mount.path()), 1, hangs);
    fails(Vault::program().arg("thaw").arg(mount.path()), 1, hangs);
    fails(&mut vault.rotate_to(&vault.key), 1, hangs);
    drop(stopped);
    ok(Vault::program().arg("stat").arg(mount.path()), 60);
    mount.unmount();
}

/// A SIGINT, as sent by Ctrl-C, ends a command long before its timeout.
#[track_caller]
fn is_interrupted(running: Running) {
    let pid = Pid::from_raw(running.pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("interrupt");
    let done = running.finish(Duration::from_secs(7));
    assert_eq!(done.code(), 130, "{}", done.stderr);
}

#[test]
fn an_interrupt_ends_who_waits_for_a_mount_that_hangs() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let seen = vault.place_path().join("seen");
    let mut watch = Vault::program();
    watch.args(["stat", "--watch", "--prometheus"]).arg(&seen).arg(mount.path());
    let watch = Running::start(&mut watch);
    wait_for("it watches", || seen.exists());
    let stopped = Stopped::of(&mount);
    let rotate = Running::start(&mut vault.rotate_to(&vault.key));
    let freeze = Running::start(Vault::program().arg("freeze").arg(mount.path()));
    // By then they have sent their requests.
    thread::sleep(Duration::from_secs(2));
    [watch, rotate, freeze].into_iter().for_each(is_interrupted);
    drop(stopped);
    mount.unmount();
}

/// The mount locks the vault once it resumes, and then unlocks it.
#[test]
fn an_interrupted_rotation_leaves_the_vault_unlocked() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let config = fs::read(vault.store.join("warpcrypt.json")).expect("read");
    let lock =
        File::options().write(true).create(true).truncate(false).open(vault.store.join("warpcrypt.lock"));
    let lock = lock.expect("the lock file");
    lock.lock().expect("lock");
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let fake = Fake::new(&vault.store, 0, move |command| {
        if command == [1, 1] {
            let _ = wait.lock().unwrap().recv();
        }
        String::new()
    });
    let new = vault.place_path().join("new-key");
    fs::write(&new, [7; 64]).expect("key file");
    let running = Running::start(&mut vault.rotate_to(&new));
    wait_for("it is told to lock", || fake.heard().last().is_some_and(|command| command == &[1, 1]));
    is_interrupted(running);
    drop(go_on);
    wait_for("it is told to unlock", || fake.heard().last().is_some_and(|last| last.starts_with(&[1, 3])));
    assert_eq!(fs::read(vault.store.join("warpcrypt.json")).expect("read"), config);
}

/// `lock --all` with more options in a mount namespace where only these mounts are.
pub fn lock_all<'p>(mounts: impl IntoIterator<Item = &'p Path>, options: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let alone = "program=$1; shift
        awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r other; do
            case \" $* \" in *\" $other \"*) ;; *) umount -i -l \"$other\" 2>/dev/null || true ;; esac
        done
        exec \"$program\" lock --all $options";
    command.env("options", options.join(" "));
    command.args(["-m", "sh", "-euc", alone, "sh"]).arg(program_path());
    command.args(mounts);
    command
}

#[test]
fn a_mount_that_hangs_keeps_no_other_from_being_locked() {
    if !ready_as_root(&["unshare", "awk"]) {
        return;
    }
    let vaults = [(); 3].map(|()| Vault::in_memory("aes-256-ctr"));
    let mounts = vaults.each_ref().map(Vault::mount);
    let stopped = Stopped::of(&mounts[1]);
    let done = run(&mut lock_all(mounts.iter().map(Mount::path), &[]), 60);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let hangs = format!("warpcrypt: {}: the mount's process does not answer", text(mounts[1].path()));
    assert!(done.stderr.starts_with(&hangs), "{}", done.stderr);
    drop(stopped);
    let locked = mounts.each_ref().map(|mount| {
        let stat = ok(Vault::program().arg("stat").arg("--json").arg(mount.path()), 60);
        stat.contains("\"locked\": true")
    });
    assert_eq!(locked, [true, false, true]);
    mounts.into_iter().for_each(Mount::unmount);
}

/// One fake answers nothing; the other answers everything, but never reports that it is locked.
#[test]
fn a_fake_mount_keeps_no_other_from_being_locked() {
    if !ready_as_root(&["unshare", "awk"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let waits = |command: &'static [u8]| {
        let (go_on, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let answer = move |told: &[u8]| {
            if told.starts_with(command) {
                let _ = wait.lock().unwrap().recv();
            }
            String::new()
        };
        (Fake::new(&vault.store, 65534, answer), go_on)
    };
    let fakes = [waits(&[]), waits(&[1, 1])];
    let places = fakes.iter().map(|(fake, _)| fake.path()).chain([mount.path()]);
    let done = run(&mut lock_all(places, &[]), 120);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    for ((fake, _), says) in fakes.iter().zip(["answer, and was not told", "answer, though it was told"]) {
        let says = format!("{}: the mount's process does not {says}", text(fake.path()));
        assert!(done.stderr.contains(&says), "{}", done.stderr);
    }
    let stat = ok(Vault::program().arg("stat").arg("--json").arg(mount.path()), 60);
    assert!(stat.contains("\"locked\": true"), "{stat}");
    drop(fakes);
    mount.unmount();
}

/// Root is told that a user has the vault mounted, and also waits for that mount.
#[test]
fn what_a_user_has_mounted_is_no_fake_to_root() {
    if !ready_as_root(&["fusermount3", "setpriv"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    ok(&mut home.script("./warpcrypt init vault --key-file key; mkdir other"), 60);
    ok(&mut home.script("./warpcrypt mount vault mnt --key-file key; echo content >mnt/file"), 60);
    let root = |arguments: &str| script(home.path(), &format!("exec ./warpcrypt {arguments}"));
    fails(&mut root("mount vault other --key-file key -o any-path"), 15, "already mounted for writing on");
    ok(&mut root("lock mnt"), 60);
    ok(&mut home.script("./warpcrypt unlock mnt --key-file key"), 60);
    ok(&mut root("umount mnt"), 60);
    ok(&mut root("mount vault other --key-file key --log-file log -o any-path"), 60);
    ok(&mut root("umount other"), 60);
}
