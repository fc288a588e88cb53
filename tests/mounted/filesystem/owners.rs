//! Owners that `-o uid=` and `-o gid=` show instead of the stored ones.

use crate::support::{
    command::{ok, run},
    mounted::{Mount, Vault},
    ready, ready_as_root, store,
};
use rustix::{
    fs::{AtFlags, CWD, Gid, Uid, chownat},
    io::Errno,
    process::geteuid,
};
use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

const ROOT: u32 = 0;
const ANN: u32 = 61_001;
const BOB: u32 = 61_002;
/// The group that is shown. Ann and Carl are in it.
const TEAM: u32 = 61_100;
const CARL: u32 = 61_003;

/// The tree that root makes before its owners are mapped.
const TREE: &str =
    "umask 022; echo a >f; mkdir d; echo b >d/g; ln f hard; ln -s f link; mkfifo pipe; mknod null c 1 3
    echo s >secret; chmod 600 secret; setfacl -m u:61002:r secret; mkdir -m 700 closed; echo c >closed/h
    mkdir -m 1777 sticky; echo x >sticky/x; mkdir -m 2775 team; cp /bin/true run; chmod 750 run";

/// Commands, and the user who runs each, in that tree.
const STEPS: &[(u32, &str)] = &[
    (ANN, "find . -printf '%p %M %U:%G %y %l\n' | sort; cat f d/g closed/h secret; ./run; echo $?"),
    (ANN, "ls -lA --time-style=+ . closed | grep -v '^total'; stat -c '%u:%g' f <f; stat -L -c '%u:%g' link"),
    (
        BOB,
        "cat f secret; ls closed; ./run; echo x >>f; touch d/n; rm -f sticky/x; chmod 600 f; chown 61002 f",
    ),
    (CARL, "./run; echo $?; cat secret; echo c >team/of-carl; rm team/of-carl; echo x >>f"),
    (
        ANN,
        "echo more >>f; cat f; echo over >secret; truncate -s 2 closed/h; chmod 640 f; touch -d 2001-02-03 d/g",
    ),
    (
        ANN,
        "mv d/g closed/; ln f d/again; rm sticky/x; mv closed/h d/; stat -c '%n %A %u:%g %h %Y' closed/g d/again d/h",
    ),
    (CARL, "cat f; echo x >>f; chmod 666 f; rm -f sticky/x d/again"),
    (BOB, "cat f"),
    (
        ANN,
        "umask 027; echo n >new; mkdir newdir; ln -s new newlink; mkfifo newpipe; echo t >team/t; mkdir team/sub",
    ),
    (ANN, "stat -c '%n %A %u:%g' new newdir newlink newpipe team team/t team/sub; cat new team/t"),
    (
        ANN,
        "chown 61001 f; echo $?; chgrp 61100 f; echo $?; chown -h 61001:61100 link; echo $?; chown -R 61001 d closed",
    ),
    (ANN, "chown 0 f; chgrp 0 f; chown 61002:61100 d; stat -c '%u:%g' f d"),
    (BOB, "chown 61001 f; chgrp 61100 f"),
    (ROOT, "chown -R 61001:61100 d; echo $?; stat -c '%u:%g' d/again; cat secret"),
    (
        ANN,
        "find d -exec touch -hd @1234567890 {} +; cp -a d copy && rsync -a d/ synced; tar -cf - d | tar -xpf - -C newdir",
    ),
    (ANN, "touch -d @1 newdir; find copy synced newdir -printf '%p %M %U:%G %T@\n' | sort"),
    (
        ANN,
        "setfattr -n user.a -v 1 f; getfattr -d f; setfacl -m u:61002:rw f; getfacl -cn f secret; stat -c %a f",
    ),
    (BOB, "cat f; echo by bob >>f; setfattr -n user.a -v 2 f"),
    (
        ANN,
        "setfacl -d -m u:61002:rx newdir; echo i >newdir/i; getfacl -cn newdir/i; setfacl -m u:61002:x team; stat -c %a team",
    ),
    (
        ANN,
        "exec 3>>open; chmod 0 open; echo y >&3; cat open; chmod 600 open; cat open; rm open; stat -L -c '%u:%g %h' /dev/fd/3",
    ),
    (ANN, "rm -r d copy synced sticky newpipe; ls; find . -printf '%p %M %U:%G\n' | sort"),
];

/// Runs a script as a user, and returns all of its output.
fn act(dir: &Path, user: u32, script: &str) -> String {
    let (id, group, groups) = match user {
        ROOT => (ROOT, ROOT, "0".to_owned()),
        BOB => (BOB, BOB, BOB.to_string()),
        _ => (user, TEAM, format!("{user},{TEAM}")),
    };
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id.to_string(), "--regid", &group.to_string(), "--groups", &groups]);
    command.args(["sh", "-c", script]).current_dir(dir).env("LC_ALL", "C").env("HOME", "/");
    let done = run(&mut command, 60);
    format!("{user} $ {script}\n{}{}exit {}\n", done.text(), done.stderr, done.code())
}

/// Owner and group.
fn owner(path: &Path) -> (u32, u32) {
    let stat = fs::symlink_metadata(path).expect("stat");
    (stat.uid(), stat.gid())
}

fn chown(path: &Path, user: u32, group: u32) -> Result<(), Errno> {
    chownat(CWD, path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)
}

/// The owner of the stored form of a node in the mount.
fn stored_owner(mount: &Mount, name: &str) -> (u32, u32) {
    let stored = store::by_inode(&mount.vault.store).remove(&store::inode(&mount.join(name)));
    owner(&stored.expect("stored"))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stat").mode() & 0o7777
}

#[test]
fn the_owner_that_is_shown_may_do_what_an_owner_may() {
    if !ready_as_root(&["setpriv", "setfacl", "setfattr", "rsync", "find"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let outside = vault.place_path().join("plain");
    fs::create_dir(&outside).expect("directory");
    act(&outside, ROOT, TREE);
    act(&outside, ROOT, "chown -Rh 61001:61100 .; chmod 2775 team; chmod 755 .");
    let plain = vault.mount_with(&["--allow-other"]);
    act(plain.path(), ROOT, TREE);
    act(
        plain.path(),
        ROOT,
        "chown -R 61003:61004 d secret; chown 61003 f closed; chgrp 61004 run; chmod 755 .",
    );
    let tree = "find . -printf '%p %U:%G\n' | sort";
    let before = act(plain.path(), ROOT, tree);
    assert!(before.contains("./d/g 61003:61004"), "{before}");
    plain.unmount();
    let owners = format!("dev,uid={ANN},gid={TEAM}");
    let mut mount = vault.mount_with(&["--allow-other", "-o", &owners]);
    for (number, (user, script)) in STEPS.iter().enumerate() {
        assert_eq!(act(mount.path(), *user, script), act(&outside, *user, script), "left: in the mount");
        if number % 5 == 4 {
            mount = mount.remount();
        }
    }
    // The stored owners are those of before, and new nodes have the owner that is shown.
    for (name, owners) in
        [("new", (ANN, TEAM)), ("newlink", (ANN, TEAM)), ("f", (CARL, 0)), ("run", (0, 61_004))]
    {
        assert_eq!(stored_owner(&mount, name), owners, "{name}");
    }
    mount.unmount();
    let plain = vault.mount_with(&["--allow-other"]);
    for (name, owners) in [
        ("f", (CARL, 0)),
        ("secret", (CARL, 61_004)),
        ("closed", (CARL, 0)),
        ("newdir", (ANN, TEAM)),
        ("hard", (CARL, 0)),
    ] {
        assert_eq!(owner(&plain.join(name)), owners, "{name}");
    }
    plain.unmount();
}

#[test]
fn all_belongs_to_the_owner_that_is_shown() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    set_mode(&vault.store, 0o777);
    let plain = vault.mount();
    fs::write(plain.join("old"), "old").expect("file");
    set_mode(&plain.join("old"), 0o604);
    plain.unmount();
    let mount = vault.mount_with(&["-o", "uid=12345,gid=12346"]);
    let shown = (12_345, 12_346);
    let new = File::options().write(true).create_new(true).mode(0o666).open(mount.join("new")).expect("file");
    let opened = new.metadata().expect("stat");
    assert_eq!((opened.uid(), opened.gid()), shown);
    fs::create_dir(mount.join("dir")).expect("directory");
    symlink("old", mount.join("link")).expect("link");
    let own = rustix::process::getegid().as_raw();
    // For the kernel, whoever is not the owner is one of the others.
    let is_root = geteuid().is_root();
    if is_root {
        fs::hard_link(mount.join("old"), mount.join("hard")).expect("link");
        assert_eq!(owner(&mount.join("hard")), shown);
    }
    assert_eq!(fs::read(mount.join("old")).expect("content"), b"old");
    assert_eq!(fs::write(mount.join("old"), "x").is_ok(), is_root);
    for name in ["", "old", "new", "dir", "link"] {
        assert_eq!(owner(&mount.join(name)), shown, "{name}");
        let chowned = chown(&mount.join(name), shown.0, shown.1);
        assert_eq!(chowned, if is_root { Ok(()) } else { Err(Errno::PERM) }, "{name}");
        for (user, group) in [(1, shown.1), (shown.0, 1), (0, 0)] {
            assert_eq!(chown(&mount.join(name), user, group), Err(Errno::PERM), "{name} to {user}:{group}");
        }
        assert_eq!(owner(&mount.join(name)), shown, "{name}");
    }
    let stored = if is_root { shown } else { (geteuid().as_raw(), own) };
    for name in ["new", "link"] {
        assert_eq!(stored_owner(&mount, name), stored, "{name}");
    }
    assert_eq!(stored_owner(&mount, "old"), (geteuid().as_raw(), own));
    drop(new);
    mount.unmount();
}

#[test]
fn either_the_user_or_the_group_may_be_shown() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let plain = vault.mount();
    fs::write(plain.join("f"), "").expect("file");
    chown(&plain.join("f"), ANN, TEAM).expect("chown");
    plain.unmount();
    let mount = vault.mount_with(&["-o", &format!("uid={BOB}")]);
    assert_eq!(owner(&mount.join("f")), (BOB, TEAM));
    chown(&mount.join("f"), BOB, 1).expect("the group is the stored one");
    assert_eq!((owner(&mount.join("f")), stored_owner(&mount, "f")), ((BOB, 1), (ANN, 1)));
    mount.unmount();
    let mount = vault.mount_with(&["-o", &format!("gid={TEAM}")]);
    assert_eq!(owner(&mount.join("f")), (ANN, TEAM));
    chown(&mount.join("f"), BOB, TEAM).expect("the user is the stored one");
    assert_eq!((owner(&mount.join("f")), stored_owner(&mount, "f")), ((BOB, TEAM), (BOB, 1)));
    fs::write(mount.join("new"), "").expect("file");
    assert_eq!(stored_owner(&mount, "new"), (ROOT, TEAM));
    mount.unmount();
}

/// A program that is shown as another user's must not run as that user, nor may a user who is only shown
/// as the owner make the stored file run as its real owner.
#[test]
fn who_is_shown_as_the_owner_gives_no_set_id() {
    if !ready_as_root(&["setpriv", "perl"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let plain = vault.mount_with(&["--allow-other", "-o", "suid,dev"]);
    act(
        plain.path(),
        ROOT,
        "chmod 755 .; for f in run old kept; do cp /usr/bin/id $f; chmod 6755 $f; done; mkdir -m 777 all",
    );
    act(plain.path(), ROOT, "cp /usr/bin/id plain; mknod null c 1 3; chmod 600 null");
    plain.unmount();
    let owners = format!("suid,dev,uid={ANN},gid={TEAM}");
    let done = vault.try_mount(&["--allow-other", "-o", &owners]);
    for name in ["suid", "dev"] {
        assert!(done.stderr.contains(&format!("`{name}` is ignored")), "{}", done.stderr);
    }
    let mount = vault.mounted(&["--allow-other", "-o", &owners]);
    assert!(act(mount.path(), BOB, "./run -u").contains(&format!("\n{BOB}\n")));
    assert!(act(mount.path(), ANN, "echo x >null").contains("Permission denied"));
    act(mount.path(), ANN, "echo x >>old; chmod 6755 run plain; cp plain all/copy; chmod 4755 all/copy");
    act(mount.path(), BOB, "cp /usr/bin/id all/of-bob; chmod 4755 all/of-bob");
    act(mount.path(), ANN, "mkdir dir; chmod 2770 dir; chmod 600 kept; chmod 6755 kept");
    let create = "use Fcntl; umask 0; sysopen(F, 'all/made', O_CREAT | O_WRONLY, 06777) or die $!";
    ok(
        Command::new("setpriv")
            .args(["--reuid", "61002", "--regid", "61002", "--clear-groups", "perl", "-e", create])
            .current_dir(mount.path()),
        60,
    );
    for (name, left) in [
        ("run", 0o755),
        ("old", 0o755),
        ("plain", 0o755),
        ("all/copy", 0o755),
        ("kept", 0o755),
        ("all/made", 0o777),
    ] {
        assert_eq!(mode(&mount.join(name)), left, "{name}");
    }
    assert_eq!(mode(&mount.join("dir")), 0o2770, "a directory hands its group down");
    mount.unmount();
    let plain = vault.mount();
    let found = act(plain.path(), ROOT, "find . -type f -perm /6000");
    assert!(!found.contains("\n./"), "{found}");
    plain.unmount();
}
