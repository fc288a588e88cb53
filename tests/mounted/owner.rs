//! Owning a file is enough, whatever its mode: an ordinary user's mount, compared with a directory on a
//! kernel filesystem.

use crate::support::{
    command::{ok, script, sh},
    mounted::{Mount, Vault},
    ordinary::is_ordinary_user,
};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAMS: [&str; 6] = ["setfacl", "getfacl", "setfattr", "rsync", "python3", "cksum"];

/// Prints how each command ends.
const SAID: &str = r#"
    set +e
    said() { label=$1; shift; result=0; out=$("$@" 2>&1) || result=$?; echo "$label: $result $out"; }
    py() { python3 -c "import os; $1"; }
"#;

const CHANGES: &str = r#"
    mkdir s; chmod 555 s; said cp cp -a s s2
    echo x >f; chmod 444 f; said acl setfacl -m u:daemon:r f; said getfacl getfacl -cn f
    mkdir r; said rsync rsync -aA s f r/
    echo x >g; setfattr -n user.x -v 1 g; exec 3>>g; chmod 444 g
    echo y >&3; said append cat g; said allocate py 'os.posix_fallocate(3, 0, 9000)'; exec 3>&-
    mkdir -m 300 d; said attribute setfattr -n user.x -v 1 d; said touch touch d/f
    cp /bin/true t; chmod 2755 t; cp /bin/true u; chmod 6755 u; : >v; chmod 4755 v
    said attribute setfattr -n user.x -v 1 v; said sync sync t
    echo w >wo; chmod 200 wo; echo n >none; chmod 000 none; mkdir -m 000 shut
    mkdir l; touch l/short l/$(printf 'L%.0s' $(seq 200)); chmod 600 l; said list ls l
    mkdir gone; exec 4<gone; rmdir gone; said 'removed directory' py 'os.fchmod(4, 0o711); print(oct(os.fstat(4).st_mode))'; exec 4<&-
    mkdir cwd; cd cwd; rmdir ../cwd; said 'removed working directory' ls -a .; said 'new in it' mkdir n; cd ..
    mkfifo p; py 'import stat; f = os.open("p", os.O_RDWR); os.remove("p"); os.fchmod(f, 0o640); print(oct(os.fstat(f).st_mode))'
    mkdir dd; setfacl -d -m u:daemon:rwx,g::rwx,o::rw dd; umask 0; said pipe py 'os.mknod("dd/p", 0o10676)'; stat -c %a dd/p
"#;

const LOOK: &str = r#"
    said modes stat -c '%n %a %F' s s2 f g d t u v wo none shut l r/s r/f dd/p
    for f in t u v wo none g f; do said "$f" cksum $f; done
    said list ls l; said directory ls d shut; said inside stat -c %n d/f l/short
"#;

fn told(dir: &Path, commands: &str) -> Vec<String> {
    let text = ok(&mut script(dir, &format!("{SAID}{commands}")), 120);
    text.lines().map(str::to_owned).collect()
}

fn compare(what: &str, commands: &str, plain: &Path, mount: &Path) {
    let (expected, seen) = (told(plain, commands), told(mount, commands));
    let differ: Vec<_> = expected.iter().zip(&seen).filter(|(expected, seen)| expected != seen).collect();
    assert!(differ.is_empty() && expected.len() == seen.len(), "{what}: {differ:#?} of {expected:#?}");
}

fn program(vault: &Vault, command: &str) -> Command {
    let mut program = Vault::program();
    program.arg(command).arg(&vault.store).arg("--key-file").arg(&vault.key);
    program
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("stat").mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn an_owner_may_do_what_the_disk_allows() {
    if !is_ordinary_user(&PROGRAMS, 300) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let plain = vault.place_path().join("plain");
    fs::create_dir(&plain).expect("directory");
    let mut mount = vault.mount();
    compare("changes", CHANGES, &plain, mount.path());
    compare("after the changes", LOOK, &plain, mount.path());
    mount = mount.remount();
    compare("after a remount", LOOK, &plain, mount.path());
    mount.unmount();
    ok(&mut program(&vault, "check"), 60);
    let out = vault.place_path().join("out");
    ok(program(&vault, "export").arg(&out), 60);
    assert_eq!(mode(&out.join("wo")), 0o200);
    chmod(&out.join("wo"), 0o600);
    assert_eq!(fs::read(out.join("wo")).expect("exported"), b"w\n");
    ok(program(&vault, "cat").arg("wo"), 60);
}

#[test]
fn modes_survive_a_kill() {
    if !is_ordinary_user(&["cp", "sync"], 300) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let modes = "cp /bin/true t; chmod 6755 t; echo x >w; chmod 200 w; echo x >r; chmod 444 r; mkdir -m 100 d; sync t; stat -c '%n %a' t w r d";
    let before = sh(mount.path(), modes, &[], 60);
    mount.kill();
    // Opening these files recovers them, which writes to them.
    let mut mount = vault.mount();
    for look in ["cat t r >/dev/null; stat -c '%n %a' t w r d", "stat -c '%n %a' t w r d"] {
        assert_eq!(sh(mount.path(), look, &[], 60), before);
        mount = mount.remount();
    }
    mount.unmount();
}

/// The stored name of the only file or directory in a new vault's root.
fn only(store: &Path, is_dir: bool) -> PathBuf {
    let entries = fs::read_dir(store).expect("list").map(|entry| entry.expect("entry"));
    let mut found = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with("warpcrypt."));
    found.find(|entry| entry.file_type().expect("type").is_dir() == is_dir).expect("stored").path()
}

/// Other programs, older versions and root store a mode unchanged.
#[test]
fn stored_modes_that_deny_the_owner_are_no_obstacle() {
    if !is_ordinary_user(&["setfattr"], 300) {
        return;
    }
    for (of_file, of_dir) in [(0o444, 0o555), (0o200, 0o300), (0o000, 0o000), (0o2400, 0o100)] {
        let vault = Vault::new("aes-256-ctr");
        let mount = vault.mount();
        fs::write(mount.join("f"), "content").expect("file");
        fs::create_dir(mount.join("d")).expect("directory");
        mount.unmount();
        chmod(&only(&vault.store, false), of_file);
        chmod(&only(&vault.store, true), of_dir);
        let mount = vault.mount();
        let look = |mount: &Mount| [mode(&mount.join("f")), mode(&mount.join("d"))];
        assert_eq!(look(&mount), [of_file, of_dir]);
        // The kernel checks the mode, so the owner changes it to gain the access that it denies.
        for name in ["f", "d"] {
            let path = mount.join(name);
            let may = mode(&path);
            chmod(&path, 0o700);
            setxattr(&path, "user.x", b"1", XattrFlags::empty()).expect("attribute");
            chmod(&path, may);
        }
        assert_eq!(look(&mount), [of_file, of_dir]);
        let mount = mount.remount();
        assert_eq!(look(&mount), [of_file, of_dir]);
        chmod(&mount.join("f"), 0o600);
        assert_eq!(fs::read(mount.join("f")).expect("content"), b"content");
        assert_eq!(getxattr(mount.join("f"), "user.x", &mut [0_u8; 4][..]).expect("attribute"), 1);
        mount.unmount();
    }
}

/// A forged attribute may take rights from the owner, but gives none to others.
#[test]
fn what_is_stored_beside_a_mode_gives_nobody_rights() {
    if !is_ordinary_user(&[], 300) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o200)
        .open(mount.join("f"))
        .expect("file");
    mount.unmount();
    let stored = only(&vault.store, false);
    assert_eq!(mode(&stored), 0o1600);
    for forged in [&b"1600=666"[..], b"1600=1644", b"1600", b"", b"\xff", b"1600=77777"] {
        setxattr(&stored, "user.warpcrypt.mode.behind", forged, XattrFlags::empty()).expect("attribute");
        let mount = vault.mount();
        assert_eq!(mode(&mount.join("f")), 0o400, "{forged:?}");
        mount.unmount();
    }
}
