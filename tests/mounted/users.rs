//! Several users on one mount, and a mount by a user without privileges. What users may do is compared
//! step by step with a directory on a kernel filesystem.

use crate::support::{
    command::{copy_program, ok, run},
    mounted::{Vault, is_mounted, program_path, release},
    ready, ready_as_root,
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

const ROOT: u32 = 0;
const ANN: u32 = 61_001;
const BOB: u32 = 61_002;
/// A user that every system knows; fusermount3 looks up the name.
const NOBODY: u32 = 65_534;
/// A group that both users belong to.
const TEAM: u32 = 61_100;

/// Commands, and the user who runs each, in a world-writable directory.
const STEPS: &[(u32, &str)] = &[
    // Ownership and the umask.
    (ANN, "umask 022; echo ann >of-ann; mkdir dir-of-ann; ln -s of-ann link-of-ann; mkfifo pipe-of-ann"),
    (BOB, "umask 077; echo bob >of-bob; mkdir dir-of-bob"),
    (ROOT, "stat -c '%n %A %u:%g %h' of-* link-of-ann pipe-of-ann; stat -c '%n %A %u:%g' dir-of-*"),
    // Permission bits.
    (BOB, "cat of-ann; echo more >>of-ann"),
    (ANN, "cat of-bob; ls dir-of-bob; cd dir-of-bob"),
    (ANN, "chmod 600 of-ann; cat of-ann"),
    (BOB, "cat of-ann; cat link-of-ann; test -r of-ann; echo $?; cp of-ann copy"),
    (BOB, "touch dir-of-ann/x; mkdir dir-of-ann/y; ln of-bob dir-of-ann/z; mv of-bob dir-of-ann/"),
    (ANN, "chmod 000 of-ann; cat of-ann; echo x >of-ann; chmod 644 of-ann"),
    (ROOT, "chmod 000 of-ann; cat of-ann; chmod 644 of-ann"),
    (ANN, "chmod 733 dir-of-ann; echo inside >dir-of-ann/f"),
    (BOB, "ls dir-of-ann; cat dir-of-ann/f; echo b >dir-of-ann/of-bob; rm dir-of-ann/f"),
    (BOB, "chmod 777 of-ann; chmod 777 dir-of-ann; touch -d 2001-02-03 of-ann; touch dir-of-ann/of-bob"),
    (ROOT, "find dir-of-ann dir-of-bob -printf '%p %M %U:%G\\n' | sort"),
    // The sticky bit: the directory itself has it.
    (ANN, "echo 1 >sticky-1; chmod 666 sticky-1; echo 2 >sticky-2; mkdir sticky-d"),
    (
        BOB,
        "rm -f sticky-1; mv sticky-1 other; echo b >sticky-b; mv -f sticky-b sticky-2; rmdir sticky-d; cat sticky-1",
    ),
    (BOB, "echo written >sticky-1; cat sticky-1; rm -f sticky-b; ls sticky*"),
    (ROOT, "rm sticky-2; ls sticky*"),
    (ANN, "rm sticky-1; rmdir sticky-d; ls"),
    // Owners and groups.
    (ANN, "chown 61002 of-ann; chgrp 61100 of-ann; stat -c '%u:%g' of-ann"),
    (ANN, "chgrp 61002 of-ann; chgrp 0 of-ann; stat -c '%u:%g' of-ann"),
    (BOB, "chgrp 61100 of-ann; chown 61002 of-ann"),
    (
        ROOT,
        "chown 61002:61002 of-ann; stat -c '%u:%g' of-ann; chown 61001:61001 of-ann; chown -h 61002 link-of-ann",
    ),
    (ANN, "chmod 640 of-ann; chgrp 61100 of-ann"),
    (BOB, "cat of-ann; echo x >>of-ann"),
    // Set-user-id and set-group-id.
    (ANN, "cp /bin/true program; chmod 6755 program; stat -c %A program"),
    (
        ANN,
        "echo x >>program; stat -c %A program; chmod 6755 program; truncate -s 100 program; stat -c %A program",
    ),
    (ANN, "chmod 6777 program; stat -c %A program"),
    (BOB, "echo x >>program; stat -c %A program"),
    (ANN, "chmod 6755 program; chgrp 61100 program; stat -c '%A %g' program"),
    (
        ROOT,
        "chmod 6755 program; chown 61001 program; stat -c %A program; chmod 2745 program; chown 61001:0 program; stat -c %A program",
    ),
    (ANN, "chmod 2755 program; stat -c %A program"),
    (ROOT, "cp /bin/true run; chmod 755 run; chown 0:61001 run; chmod 750 run"),
    (ANN, "./run; echo $?"),
    (BOB, "./run; echo $?"),
    // A set-group-id directory hands its group down.
    (ROOT, "mkdir shared; chgrp 61100 shared; chmod 2775 shared"),
    (
        ANN,
        "umask 002; echo a >shared/a; mkdir shared/sub; echo b >shared/sub/b; ln -s a shared/l; mkfifo shared/p",
    ),
    (BOB, "umask 002; echo more >>shared/a; echo c >shared/sub/c; rm shared/a"),
    (ROOT, "find shared -printf '%p %M %U:%G\\n' | sort"),
    (
        BOB,
        "chmod 2755 shared/sub; cp /bin/true shared/sub/t; chmod 2755 shared/sub/t; stat -c '%A %g' shared/sub/t",
    ),
    // Attributes.
    (ANN, "setfattr -n user.a -v 1 of-ann; getfattr --only-values -n user.a of-ann; echo"),
    (BOB, "setfattr -n user.a -v 2 of-ann; getfattr --only-values -n user.a of-ann; echo"),
    (ANN, "chmod 600 of-ann"),
    (BOB, "getfattr --only-values -n user.a of-ann; setfattr -x user.a of-ann; mknod device c 1 3"),
    (ROOT, "mknod null c 1 3; chmod 666 null; stat -c '%A %t:%T' null"),
    // Open descriptors remain usable.
    (ANN, "exec 3>open; chmod 000 open; echo still >&3; rm -f open; echo more >&3; chmod 644 open"),
    (ROOT, "rm -rf dir-of-ann dir-of-bob shared; ls"),
];

/// Runs a script as a user and returns all of its output.
fn act(dir: &Path, user: u32, script: &str) -> String {
    let mut command = Command::new("setpriv");
    let id = user.to_string();
    let groups = if user == ROOT { "0".into() } else { format!("{user},{TEAM}") };
    command.args(["--reuid", &id, "--regid", &id, "--groups", &groups, "sh", "-c", script]);
    let done = run(command.current_dir(dir).env("LC_ALL", "C").env("HOME", "/"), 60);
    format!("{user} $ {script}\n{}{}exit {}\n", done.text(), done.stderr, done.code())
}

/// A world-writable directory with the sticky bit.
fn common_place(dir: PathBuf) -> PathBuf {
    fs::create_dir(&dir).expect("directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).expect("mode");
    dir
}

#[test]
fn users_may_do_what_they_may_elsewhere() {
    if !ready_as_root(&["setpriv", "setfattr", "stat", "find"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount_with(&["--allow-other", "-o", "dev,suid"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let inside = common_place(mount.join("common"));
    let outside = common_place(vault.place_path().join("common"));
    for (number, (user, script)) in STEPS.iter().enumerate() {
        assert_eq!(act(&inside, *user, script), act(&outside, *user, script), "left: in the mount");
        if number % 10 == 9 {
            mount = mount.remount();
        }
    }
    let all = "find . -printf '%p %M %U:%G %y %l\\n' | sort";
    assert_eq!(act(&inside, ROOT, all), act(&outside, ROOT, all));
    mount.unmount();
}

/// Accesses by root that permission bits deny, step by step.
const STEPS_OF_ROOT: &[&str] = &[
    "umask 027; echo a >f; mkdir d; echo b >d/g; mkfifo p; ln -s d/g l; cp /bin/true run; stat -c '%A %u:%g' *",
    // Mode bits that deny access to everybody except root.
    "chmod 000 f d; cat f; echo more >>f; cat f; ls d; cat d/g; cd d; pwd -P >/dev/null; echo c >h; rm h; cat l",
    "chmod 444 f; echo over >f; truncate -s 2 f; touch f; touch -d 2001-02-03 f; stat -c '%A %s %y' f",
    "chmod 555 d; touch d/new; mkdir d/sub; mv d/new d/sub/; ln d/g d/sub/g; rm -r d/sub; ls -A d",
    // access(2), chdir(2) and execution.
    "chmod 600 run; ./run; echo $?; test -x run; echo $?; test -w run -a -r run; echo $?; test -x p; echo $?",
    "chmod 001 run; ./run; echo $?; test -x run; echo $?; test -x d; echo $?; test -x f; echo $?; test -x l; echo $?",
    "chmod 755 run; ./run; echo $?; cd f; cd nothing; test -e nothing; echo $?; cd d/..; ls",
    // Files that belong to others, with the sticky bit.
    "chown 61001:61002 f d d/g; chmod 1700 d; echo mine >>d/g; rm d/g; touch d/x; chmod 604 f; stat -c '%A %u:%g' f d d/x",
    "chown -h 61002 l; stat -c %u l; chgrp 61100 d; chmod 2750 d; mkdir d/s; touch d/t; stat -c '%A %u:%g' d/s d/t",
    "chmod 6755 run; echo x >>run; stat -c %A run; chmod 6755 run; chown 61001 run; stat -c %A run; truncate -s 9 run",
    "setfattr -n user.a -v 1 f; chmod 000 f; getfattr --only-values -n user.a f; setfattr -x user.a f; getfattr -d f",
    "mknod null c 1 3; stat -c '%A %t:%T' null; chmod 000 p; rm -f p; rm -r d; ls -l --time-style=+ f run l",
];

#[test]
fn permission_bits_bind_root_nowhere() {
    if !ready_as_root(&["setpriv", "setfattr", "getfattr"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    assert!(!kernel_judges(mount.path()), "or this test shows nothing");
    let outside = common_place(vault.place_path().join("common"));
    let mut inside = common_place(mount.join("common"));
    for (number, script) in STEPS_OF_ROOT.iter().enumerate() {
        assert_eq!(act(&inside, ROOT, script), act(&outside, ROOT, script), "left: in the mount");
        if number % 3 == 2 {
            mount = mount.remount();
            inside = mount.join("common");
        }
    }
    mount.unmount();
}

/// Whether the kernel checks permission bits on a mount, according to mountinfo.
fn kernel_judges(mount: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    let path = mount.to_str().expect("UTF-8");
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(path)).expect("a mount");
    line.contains("default_permissions")
}

#[test]
fn a_mount_is_closed_to_others_until_they_are_allowed() {
    if !ready_as_root(&["setpriv", "python3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("f"), "secret").expect("write");
    for path in [mount.path(), &mount.join("f")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("mode");
    }
    let refused = |script: &str| {
        let said = act(vault.place_path(), ANN, script);
        assert!(said.contains("Permission denied") && !said.contains("secret"), "{said}");
    };
    refused("ls mnt");
    refused("cat mnt/f");
    refused("echo x >mnt/g");
    // A process with all of root's ids except the filesystem id, like a server that acts for others. It
    // may see the names that the kernel has cached, but not use them.
    let client = "import ctypes, os, sys
os.chdir('mnt')
os.stat('f')
ctypes.CDLL(None).setfsuid(61001)
acts = [lambda: open('f'), lambda: open('g', 'w'), lambda: os.listdir('.'), lambda: os.unlink('f'), lambda: os.mkdir('d'),
    lambda: os.rename('f', 'g'), lambda: os.link('f', 'g'), lambda: os.symlink('f', 'g'), lambda: os.chmod('f', 0),
    lambda: os.utime('f'), lambda: os.truncate('f', 0), lambda: os.mkfifo('p'), lambda: os.chown('f', 1, 1), lambda: os.stat('g'),
    lambda: os.setxattr('f', 'user.a', b''), lambda: os.listxattr('f'), lambda: os.getxattr('f', 'user.a'), lambda: os.chdir('.')]
for number, act in enumerate(acts):
    try:
        act()
        sys.exit(number + 1)
    except PermissionError:
        pass";
    let done = run(Command::new("python3").arg("-c").arg(client).current_dir(vault.place_path()), 60);
    assert_eq!(done.code(), 0, "the first act that was not refused; {}", done.stderr);
    assert_eq!(fs::read(mount.join("f")).expect("read"), b"secret");
    mount.unmount();

    let mount = vault.mount_with(&["--allow-other"]);
    assert!(kernel_judges(mount.path()));
    assert!(act(vault.place_path(), ANN, "cat mnt/f").contains("secret"));
    mount.unmount();
}

#[test]
fn root_without_its_rights_is_bound_where_the_kernel_judges() {
    if !ready_as_root(&["setpriv"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["-o", "default_permissions"]);
    assert!(kernel_judges(mount.path()));
    let steps = "umask 022; echo a >f; chmod 400 f; echo b >f; cat f; mkdir d; echo c >d/g; chmod 500 d; rm d/g; touch d/h; ls d
        chmod 400 d; cat d/g; cd d; chmod 600 of-ann; cat of-ann; touch of-ann; rm -f of-ann; chown 0 of-ann; ls of-ann";
    let bound = |place: PathBuf| {
        let place = common_place(place);
        act(&place, ROOT, "echo ann >of-ann; chown 61001 . of-ann; chmod 600 of-ann");
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--groups", "0", "sh", "-c", steps]);
        let done = run(command.current_dir(place).env("LC_ALL", "C"), 60);
        format!("{}{}", done.text(), done.stderr)
    };
    let outside = bound(vault.place_path().join("common"));
    assert!(outside.contains("f: Permission denied"), "{outside}");
    assert_eq!(bound(mount.join("common")), outside, "left: in the mount");
    mount.unmount();
}

#[test]
fn who_is_given_an_open_file_may_write_and_close_it() {
    if !ready_as_root(&["setpriv", "fusermount3", "python3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    // /bin/echo reports an error if closing its output fails.
    let given = "setpriv --reuid 61001 --regid 61001 --clear-groups /bin/echo words >f; echo $?; cat f";
    let said = act(mount.path(), ROOT, given);
    assert!(said.ends_with("0\nwords\nexit 0\n"), "{said}");
    mount.unmount();

    let home = Home::new();
    ok(&mut home.warpcrypt(&["init", "v", "--key-file", "key"]), 60);
    ok(&mut home.warpcrypt(&["mount", "v", "mnt", "--key-file", "key"]), 60);
    let given = "import os, socket
ours, its = socket.socketpair()
if os.fork() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    socket.send_fds(its, [b'x'], [os.open('mnt/f', os.O_WRONLY | os.O_CREAT)])
    os._exit(0)
fd = socket.recv_fds(ours, 1, 1)[1][0]
os.write(fd, b'words')
os.close(fd)";
    ok(Command::new("python3").arg("-c").arg(given).current_dir(home.place.path()), 60);
    assert!(act(home.place.path(), NOBODY, "cat mnt/f").contains("\nwords"));
    ok(&mut home.warpcrypt(&["umount", "mnt"]), 60);
}

/// A directory where a user without privileges has a vault, and a program to mount it with.
struct Home {
    place: tempfile::TempDir,
    program: PathBuf,
}

impl Home {
    fn new() -> Home {
        let place = tempfile::TempDir::with_prefix("warpcrypt-user-").expect("directory");
        let program = place.path().join("warpcrypt");
        copy_program(&program_path(), &program);
        fs::write(place.path().join("key"), [1; 64]).expect("key");
        fs::create_dir(place.path().join("mnt")).expect("directory");
        for path in ["", "key", "mnt"] {
            std::os::unix::fs::chown(place.path().join(path), Some(NOBODY), Some(NOBODY)).expect("owner");
        }
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        Home { place, program }
    }

    /// The program, run as the user.
    fn warpcrypt(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir(self.place.path());
        command.env("HOME", self.place.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
        command
    }

    fn mount_point(&self) -> PathBuf {
        self.place.path().join("mnt")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        release(&self.mount_point());
    }
}

#[test]
fn a_user_mounts_without_privileges() {
    if !ready_as_root(&["fusermount3", "setpriv"]) {
        return;
    }
    let home = Home::new();
    let mnt = home.mount_point();
    ok(&mut home.warpcrypt(&["init", "v", "--key-file", "key"]), 60);
    for round in 0..3 {
        let log = if round == 1 { vec!["--log-file", "log"] } else { vec![] };
        let mut mount = home.warpcrypt(&["mount", "v", "mnt", "--key-file", "key"]);
        ok(mount.args(log), 60);
        assert!(is_mounted(&mnt));
        let mut shell = Command::new("sh");
        shell.uid(NOBODY).gid(NOBODY).current_dir(&mnt).env("LC_ALL", "C");
        let said = ok(
            shell.arg("-euc").arg(format!(
                "test {round} = 0 || cat f{round}; echo words >f$(({round} + 1)); mkdir d{round}; ln -s f1 l{round}
                stat -c '%A %u:%g' f1; chmod 600 f1; truncate -s 100000 big; sync -d big; mv d{round} e{round}"
            )),
            60,
        );
        assert!(said.ends_with(&format!("{NOBODY}:{NOBODY}\n")), "{said}");
        // Not even root may enter; the kernel refuses before it sends a request.
        assert!(fs::read(mnt.join("f1")).is_err());
        let other = act(home.place.path(), BOB, "ls mnt");
        assert!(other.contains("Permission denied"), "{other}");
        ok(&mut home.warpcrypt(&["umount", "mnt"]), 60);
        assert!(!is_mounted(&mnt));
    }
    for path in crate::support::store::walk(&home.place.path().join("v")) {
        let owner = fs::symlink_metadata(&path).expect("stat").uid();
        assert_eq!(owner, NOBODY, "{}", path.display());
    }
}

#[test]
fn another_user_cannot_unmount() {
    if !ready_as_root(&["fusermount3", "setpriv"]) {
        return;
    }
    let home = Home::new();
    ok(&mut home.warpcrypt(&["init", "v", "--key-file", "key"]), 60);
    ok(&mut home.warpcrypt(&["mount", "v", "mnt", "--key-file", "key"]), 60);
    let done = run(Command::new(&home.program).arg("umount").arg(home.mount_point()).uid(BOB).gid(BOB), 60);
    assert!(!done.status.success() && !done.stderr.is_empty());
    assert!(is_mounted(&home.mount_point()));
    ok(&mut home.warpcrypt(&["umount", "mnt"]), 60);
}

#[test]
fn root_lends_a_mount_to_a_user_whose_vault_it_is() {
    if !ready(&["fusermount3"]) || !ready_as_root(&["setpriv"]) {
        return;
    }
    let home = Home::new();
    ok(&mut home.warpcrypt(&["init", "v", "--key-file", "key"]), 60);
    let mut mount = Command::new(&home.program);
    mount.current_dir(home.place.path());
    mount.args(["mount", "v", "mnt", "--key-file", "key", "--allow-other", "-o", "any-path"]);
    ok(&mut mount, 60);
    let said =
        act(&home.mount_point(), NOBODY, "echo a >f && mkdir d && echo b >d/g && stat -c %u:%g f d d/g");
    assert!(said.ends_with("exit 0\n"), "{said}");
    ok(Command::new(&home.program).arg("umount").arg(home.mount_point()), 60);
    // The user can also mount without allowing others.
    ok(&mut home.warpcrypt(&["mount", "v", "mnt", "--key-file", "key"]), 60);
    let said = act(home.place.path(), NOBODY, "cd mnt; cat f d/g; echo c >>f; rm -r d");
    assert!(said.ends_with("a\nb\nexit 0\n"), "{said}");
    ok(&mut home.warpcrypt(&["umount", "mnt"]), 60);
}
