//! The control socket of a mount, which other users try to occupy, and mounts whose process cannot be
//! reached.

use crate::support::{
    command::{Done, run},
    fake::device_of,
    mounted::{Vault, is_mounted, program_path},
    ready, ready_as_root,
    waiting::{stop, wait_for},
};
use rustix::{
    fs::minor,
    process::{Signal, geteuid, kill_process},
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{MetadataExt, chown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

const USER: u32 = 65_534;

/// Run as another user: occupies abstract socket names that a mount could use, until its standard input
/// is closed.
const TAKE: &str = "
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
taken = []
for number in range(1, 4000):
    taken.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    taken[-1].bind('\\0warpcrypt-mount-%d' % number)
    taken[-1].listen()
print('taken', flush=True)
sys.stdin.read()
";

/// A separate network namespace whose abstract socket names are occupied, so that other tests are not
/// affected.
struct Taken(Child);

impl Taken {
    fn new() -> Taken {
        let mut taker = Command::new("unshare");
        taker.args(["-n", "python3", "-c", TAKE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut taker = taker.spawn().expect("python3");
        let mut said = String::new();
        BufReader::new(taker.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("read");
        assert_eq!(said, "taken\n");
        Taken(taker)
    }

    /// Runs the program in the namespace.
    fn run(&self, arguments: &[&OsStr]) -> Done {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(program_path()).args(arguments);
        run(&mut command, 60)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn mount(taken: &Taken, vault: &Vault) {
    let [key, log] = ["--key-file", "--log-file"].map(OsStr::new);
    let (store, point) = (vault.store.as_os_str(), vault.mount_point.as_os_str());
    let done =
        taken.run(&["mount".as_ref(), store, point, key, vault.key.as_os_str(), log, vault.log.as_os_str()]);
    assert!(done.status.success(), "{}", done.stderr);
}

#[test]
fn no_user_keeps_a_mount_from_being_locked() {
    if !ready_as_root(&["unshare", "nsenter", "python3"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let taken = Taken::new();
    mount(&taken, &vault);
    let point = vault.mount_point.as_os_str();
    let locked = taken.run(&["lock".as_ref(), point]);
    assert!(locked.status.success(), "{}", locked.stderr);
    let ended = taken.run(&["lock".as_ref(), "--end".as_ref(), point]);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!is_mounted(Path::new(point)));
}

/// Runs a script in a mount namespace where nothing can be created in /run. `$0` is the program,
/// followed by the vault, the mount point and the key file.
fn without_run(vault: &Vault, script: &str) -> Done {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc"]).arg(format!("mount -t tmpfs -o ro,mode=755 none /run\n{script}"));
    command.arg(program_path()).args([&vault.store, &vault.mount_point, &vault.key]);
    run(&mut command, 120)
}

/// Paths where mounts look for sockets. Dropping it removes what is there.
struct Planted([PathBuf; 3]);

impl Drop for Planted {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        }
    }
}

#[test]
fn what_others_plant_in_tmp_is_not_taken_for_a_mounts_socket() {
    if !ready_as_root(&["unshare", "mount"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let place = TempDir::with_prefix("warpcrypt-test-").expect("a directory");
    let [full, empty] = ["full", "empty"].map(|name| place.path().join(name));
    [&full, &empty].into_iter().for_each(|dir| fs::create_dir(dir).expect("a directory"));
    let bind = |number| UnixListener::bind(full.join(format!("mount-0:{number}"))).expect("bind");
    let listeners: Vec<UnixListener> = (1..200).map(bind).collect();
    // They are given away before they get these names. Commands of other tests trust those of root.
    [&full, &empty].into_iter().for_each(|dir| chown(dir, Some(USER), Some(USER)).expect("chown"));
    let planted = Planted([0, 1, 2].map(|n| format!("/tmp/warpcrypt-0.{}-{n}", std::process::id()).into()));
    let [one, link, other] = &planted.0;
    fs::rename(&full, one).expect("rename");
    symlink(one, link).expect("a link");
    fs::rename(&empty, other).expect("rename");
    let done = without_run(
        &vault,
        "\"$0\" mount \"$1\" \"$2\" --key-file \"$3\"
        \"$0\" lock \"$2\"
        \"$0\" unlock \"$2\" --key-file \"$3\"
        \"$0\" lock --end \"$2\"",
    );
    assert!(done.status.success(), "{}", done.stderr);
    for listener in listeners {
        listener.set_nonblocking(true).expect("a flag");
        assert!(listener.accept().is_err(), "a planted socket was connected to");
    }
}

#[test]
fn a_mount_that_could_not_be_locked_fails() {
    if !ready_as_root(&["unshare", "mount"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    if vault.store.starts_with("/tmp") {
        return;
    }
    let done = without_run(
        &vault,
        "mount --bind /tmp /tmp; mount -o remount,bind,ro /tmp
        exec \"$0\" mount \"$1\" \"$2\" --key-file \"$3\"",
    );
    assert_eq!(done.code(), 1, "{}", done.stderr);
    for said in
        ["no directory for the control socket", "/run/warpcrypt: Read-only", "only its user can write to"]
    {
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    assert!(!is_mounted(&vault.mount_point));
}

/// Path of the calling user's control socket for the mount at `point`.
fn socket(point: &Path) -> PathBuf {
    let user = geteuid();
    let name = format!("mount-0:{}", minor(device_of(point)));
    let usual = if user.is_root() { "/run/warpcrypt".into() } else { format!("/run/user/{user}/warpcrypt") };
    let temporary = fs::read_dir("/tmp").expect("/tmp").flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| path.to_string_lossy().starts_with(&format!("/tmp/warpcrypt-{user}."));
    let dirs = [PathBuf::from(usual)].into_iter().chain(temporary.filter(is_ours));
    dirs.map(|dir| dir.join(&name)).find(|socket| socket.exists()).expect("no socket")
}

#[test]
fn a_mount_whose_process_cannot_be_reached_ends_by_force() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    for (end, says) in [("unlink", "does not listen"), ("kill", "does not listen")] {
        let mount = vault.mount();
        // The abort switch exists only where fusectl is mounted. It is not needed once the process is
        // gone.
        let switch = format!("/sys/fs/fuse/connections/{}/abort", minor(device_of(mount.path())));
        let can_end = geteuid().is_root() || Path::new(&switch).exists();
        fs::write(mount.join("file"), "content").expect("write");
        let mut file = File::options().append(true).open(mount.join("file")).expect("open");
        match end {
            "unlink" => fs::remove_file(socket(mount.path())).expect("remove"),
            _ => mount.kill_server(),
        }
        let lock = |options: &[&str]| run(Vault::program().arg("lock").args(options).arg(mount.path()), 60);
        let locked = lock(&[]);
        assert!(locked.code() == 1 && locked.stderr.contains(says), "{end}: {}", locked.stderr);
        assert!(is_mounted(mount.path()), "{end}: `lock` alone ended it");
        let ended = lock(&["--end"]);
        let says = if can_end { "unmounted by force" } else { "until the last program lets go" };
        assert!(ended.code() == 1 && ended.stderr.contains(says), "{end}: {}", ended.stderr);
        assert!(!is_mounted(mount.path()), "{end}");
        assert!(!can_end || file.write_all(b"more").is_err(), "{end}: the mount goes on");
        drop(file);
        wait_for("the end of the process, with its keys", || !mount.alive());
    }
    let mount = vault.mount();
    let socket = socket(mount.path());
    // The mount of another test may get the device number, and so a socket of this name.
    let found = || fs::symlink_metadata(&socket).map(|s| (s.ino(), s.ctime(), s.ctime_nsec())).ok();
    let own = found();
    assert!(own.is_some(), "no socket");
    mount.unmount();
    assert_ne!(found(), own, "a socket is left");
}

/// `lock --all --end`, as the systemd unit runs it before the machine sleeps.
#[test]
fn all_mounts_end_although_a_process_is_stopped() {
    if !ready_as_root(&["unshare", "awk"]) {
        return;
    }
    let vaults = [(); 2].map(|()| Vault::in_memory("aes-256-ctr"));
    let mounts = vaults.each_ref().map(Vault::mount);
    stop(mounts[0].pid);
    let done = run(&mut crate::cli::hung::lock_all(mounts.iter().map(|mount| mount.path()), &["--end"]), 60);
    assert!(done.code() == 1 && done.stderr.contains("does not answer, and was not told"), "{}", done.stderr);
    assert!(done.stderr.contains("unmounted by force"), "{}", done.stderr);
    kill_process(mounts[0].pid, Signal::CONT).expect("go on");
    for mount in &mounts {
        wait_for("the end of the process", || !mount.alive());
    }
}
