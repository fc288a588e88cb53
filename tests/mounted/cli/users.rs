//! A user without root privileges: fusermount3 mounts and unmounts, and nothing else is needed.

use crate::support::{
    command::{copy_program, ok, run, sh},
    mounted::program_path,
    ready_as_root, skip,
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A directory that belongs to `nobody` and contains the program and a key.
pub struct Home {
    dir: TempDir,
}

impl Home {
    pub fn new() -> Home {
        let dir = TempDir::with_prefix("warpcrypt-user-").expect("temporary directory");
        let home = Home { dir };
        copy_program(&program_path(), &home.at("warpcrypt"));
        fs::write(home.at("key"), [3; 32]).expect("key");
        fs::create_dir(home.at("mnt")).expect("mkdir");
        let user = fs::metadata("/proc/self").expect("proc").uid();
        assert_eq!(user, 0, "needs root");
        for path in [home.dir.path().to_owned(), home.at("key"), home.at("mnt")] {
            chown(path, Some(65534), Some(65534)).expect("chown");
        }
        fs::set_permissions(home.dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        home
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A script run as `nobody` in this directory.
    pub fn script(&self, text: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-euc", text]);
        command.current_dir(self.dir.path()).env("HOME", self.dir.path()).env("LC_ALL", "C");
        command
    }

    /// Runs a script as root in this directory.
    fn by_root(&self, text: &str) {
        sh(self.dir.path(), text, &[], 60);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        crate::support::mounted::release(&self.at("mnt"));
    }
}

/// Whether everybody can open `/dev/fuse`, which is the default.
pub fn device_for_all() -> bool {
    let mode = fs::metadata("/dev/fuse").map_or(0, |m| m.mode());
    mode & 0o666 == 0o666 || skip("needs /dev/fuse with mode 666".into())
}

#[test]
fn a_user_mounts_and_unmounts() {
    if !ready_as_root(&["fusermount3", "setpriv"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    ok(&mut home.script("./warpcrypt init vault --key-file key"), 60);
    let said = ok(
        &mut home.script(
            "./warpcrypt mount vault mnt --key-file key
             echo content > mnt/file; mkdir mnt/dir; chmod 700 mnt/dir; stat -c %U:%a mnt/dir
             findmnt -n -o FSTYPE,SOURCE mnt
             cd mnt; if ../warpcrypt umount ../mnt; then exit 9; else echo code $?; fi; cd ..
             ./warpcrypt umount mnt; ls mnt; rm -r vault.moved 2>/dev/null || true; mv vault vault.moved",
        ),
        60,
    );
    assert!(
        said.contains("nobody:700") && said.contains("fuse.warpcrypt") && said.contains("code 23"),
        "{said}"
    );
    assert!(said.contains(home.at("vault").to_str().expect("UTF-8")), "{said}");
    assert_eq!(fs::metadata(home.at("vault.moved")).expect("vault").uid(), 65534);
    // The log is in the user's state directory, or in the system log if there is one.
    assert!(Path::new("/dev/log").exists() || home.at(".local/state/warpcrypt/warpcrypt.log").exists());
    let said = ok(
        &mut home.script(
            "./warpcrypt mount vault.moved mnt --key-file key; cat mnt/file; fusermount3 -u mnt
             for i in 1 2 3 4 5 6 7 8 9; do
                 if ./warpcrypt mount vault.moved mnt --key-file key 2>/dev/null; then break; else sleep 0.2; fi
             done
             cat mnt/file; ./warpcrypt umount mnt",
        ),
        60,
    );
    assert_eq!(said, "content\ncontent\n");
}

#[test]
fn what_belongs_to_another_user_is_named() {
    if !ready_as_root(&["setpriv"]) {
        return;
    }
    let home = Home::new();
    ok(&mut home.script("./warpcrypt init vault --key-file key"), 60);
    fs::create_dir(home.at("roots")).expect("mkdir");
    let done = run(&mut home.script("exec ./warpcrypt mount vault roots --key-file key"), 60);
    assert!(done.code() == 1 && done.stderr.contains("belongs to another user (uid 0)"), "{}", done.stderr);
    let mut root = Command::new(home.at("warpcrypt"));
    root.current_dir(home.dir.path()).args(["mount", "vault", "mnt", "--key-file", "key"]);
    ok(root.args(["--log-file", "log", "-o", "any-path"]), 60);
    let done = run(&mut home.script("exec ./warpcrypt umount mnt"), 60);
    assert!(done.code() == 1 && done.stderr.contains("mounted by another user (uid 0)"), "{}", done.stderr);
    ok(Command::new(home.at("warpcrypt")).arg("umount").arg(home.at("mnt")), 60);
}

/// On a kernel filesystem, the right to write to a file includes truncating it and setting it to the
/// present time, also while it is open.
#[test]
fn a_user_changes_files_of_others_that_it_may_write_to() {
    if !ready_as_root(&["fusermount3", "setpriv", "perl"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    home.by_root(
        "mkdir plain other; ./warpcrypt init vault --key-file key; ./warpcrypt mount vault other --key-file key -o any-path
         for dir in plain other; do
             chmod 777 $dir; for f in a b c d; do echo long content >$dir/$f; touch -d 2001-02-03 $dir/$f; chmod 666 $dir/$f; done
         done
         ./warpcrypt umount other; chmod -R a+rwX vault",
    );
    let changes = "
        old() { for f; do test $(stat -c %Y $f) -gt 1100000000 || echo $f; done; }
        echo over >a; exec 3>>b; echo more >&3; touch b; truncate -s 7 b; echo end >&3; exec 3>&-; truncate -s 2 c; touch d
        perl -e 'open(F, \"+<\", \"d\") or die; print F \"D\"; truncate(F, 4) or die $!; close(F) or die $!'
        touch -d 2002-03-04 d 2>&1 || echo code $?; old a b c d; cat a b c d";
    let plain = ok(&mut home.script(&format!("cd plain; {changes}")), 60);
    let mount = "./warpcrypt mount vault mnt --key-file key; cd mnt";
    let mounted = ok(&mut home.script(&format!("{mount}; {changes}; cd ..; ./warpcrypt umount mnt")), 60);
    assert_eq!(mounted, plain);
    let again = ok(&mut home.script(&format!("{mount}; cat a b c d; cd ..; ./warpcrypt umount mnt")), 60);
    assert!(plain.ends_with(&again) && !again.is_empty(), "{again}");
}

/// A store that root, a NAS or another machine wrote: the stored owners do not fit the user.
#[test]
fn a_user_is_shown_as_the_owner_of_what_others_stored() {
    if !ready_as_root(&["fusermount3", "setpriv"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    home.by_root(
        "mkdir other; ./warpcrypt init vault --key-file key; ./warpcrypt mount vault other --key-file key -o any-path
         cd other; umask 077; echo content >file; mkdir dir; echo inner >dir/inner; echo mine >secret; chmod 600 secret
         chmod 755 .; ln -s file link; cd ..; ./warpcrypt umount other
         chmod -R a+rwX vault",
    );
    let mount = "./warpcrypt mount vault mnt --key-file key";
    let without = ok(&mut home.script(&format!("{mount}; stat -c %u mnt/file; ./warpcrypt umount mnt")), 60);
    assert_eq!(without, "0\n");
    let owned = format!("{mount} -o uid=65534,gid=65534; cd mnt");
    let said = ok(
        &mut home.script(&format!(
            "{owned}; stat -c '%n %u:%g' . file dir dir/inner link; cat file dir/inner
             echo more >>file; echo over >dir/inner; echo new >dir/new; mv secret dir/; chmod 600 dir/new
             stat -c '%a %u:%g' dir/new; truncate -s 3 dir/secret; touch file; ln file dir/again; sync file
             chown 65534:65534 file; chgrp 65534 dir; cp -a dir copy; stat -c '%n %u:%g' copy dir/again
             chmod 640 file 2>&1 || echo code $?; chown 1 file 2>&1 || echo code $?
             cd ..; ./warpcrypt umount mnt
             {owned}; cat file dir/inner dir/new dir/secret dir/again copy/secret; rm -r copy; cd ..; ./warpcrypt umount mnt"
        )),
        60,
    );
    let owner = "65534:65534";
    let shown = [".", "file", "dir", "dir/inner", "link"].map(|name| format!("{name} {owner}\n")).concat();
    let refused = |what: &str| format!("{what} 'file': Operation not permitted\ncode 1\n");
    let expected = format!(
        "{shown}content\ninner\n600 {owner}\ncopy {owner}\ndir/again {owner}\n{}{}content\nmore\nover\nnew\nmincontent\nmore\nmin",
        refused("chmod: changing permissions of"),
        refused("chown: changing ownership of"),
    );
    assert_eq!(said, expected);
    // An owner that is only shown opens nothing that the store keeps closed.
    home.by_root("find vault -type f ! -name 'warpcrypt.*' -user 0 -exec chmod 600 {} +");
    let said = ok(
        &mut home.script(&format!(
            "{owned}; stat -c %a:%u file; cat file 2>&1 || echo code $?; cat dir/new; cd ..; ./warpcrypt umount mnt"
        )),
        60,
    );
    assert_eq!(said, "600:65534\ncat: file: Permission denied\ncode 1\nnew\n");
    home.by_root("./warpcrypt check --full vault --key-file key");
}

#[test]
fn a_user_can_try() {
    if !ready_as_root(&["fusermount3", "setpriv"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    let said = ok(&mut home.script("mkdir tmp; TMPDIR=$PWD/tmp ./warpcrypt try --from /etc; ls tmp"), 120);
    assert!(said.ends_with("All is well.\n"), "{said}");
}

/// Without fusermount3, the user is told what to install.
pub fn without_the_helper() {
    if !ready_as_root(&["setpriv"]) || !device_for_all() {
        return;
    }
    let home = Home::new();
    ok(&mut home.script("./warpcrypt init vault --key-file key"), 60);
    let done = run(&mut home.script("PATH=/nowhere; exec ./warpcrypt mount vault mnt --key-file key"), 60);
    assert_eq!(done.code(), 32, "{}", done.stderr);
    assert!(done.stderr.contains("fuse3"), "{}", done.stderr);
}
