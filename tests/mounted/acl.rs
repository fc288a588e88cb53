//! POSIX ACLs on a mount, compared with the same commands on a local disk.

use crate::support::{command::ok, mounted::Vault, ready, skip};
use std::{path::Path, process::Command};

/// ACLs are set, changed by chmod, inherited, removed and copied.
const KEPT: &str = r#"
mkdir d; setfacl -m u:1234:rwx,g:2345:r-x d; getfacl -c d; stat -c %a d
touch plain; setfacl -m u::rw,g::-,o::- plain; getfacl -c plain; stat -c %a plain
touch f; setfacl -m u:1234:rw,m:r f; getfacl -c f; stat -c %a f
chmod 670 f; getfacl -c f; chmod 604 f; getfacl -c f
chmod g+s f; setfacl -m u:7:x f; stat -c %a f
setfacl -x u:1234 f; getfacl -c f; setfacl -b f; getfacl -c f; stat -c %a f
setfacl -m u:1234:r f; getfacl -c f
setfacl -d -m u:1234:rwx,g:2345:rw d; getfacl -c d
(umask 0; touch d/f; mkdir d/sub d/sub/sub; mkfifo d/fifo; install -m 640 /dev/null d/i)
getfacl -c d/f d/sub d/sub/sub d/i; stat -c '%n %a' d/f d/sub d/sub/sub d/i
ln -s f d/link; stat -c %a d/link
setfacl -k d; touch d/g; getfacl -c d/g; getfacl -c d
setfacl -d -m u:1:r f && echo set || echo refused
setfacl -m u:1:r nothing && echo set || echo refused
rm d/fifo
(umask 0; mkdir other; mkfifo other/fifo; mkdir -m 1755 other/dir; cp -a other again); stat -c '%n %a' again/fifo again/dir
cp -a d copied; mkdir synced packed; rsync -aA d/ synced/; tar --acls -cf - d | tar --acls -xf - -C packed
find copied synced packed | sort | xargs getfacl -c
find . -mindepth 1 | sort | xargs stat -c '%n %a'
"#;

/// Permissions of a named user, a named group and others. (The umask applies only where there is no
/// default ACL.)
const ENFORCED: &str = r#"
as() { setpriv --reuid "$1" --regid "$2" --clear-groups sh -c "$3" 2>/dev/null && echo "$1 $2 may: $3" || echo "$1 $2 may not: $3"; }
umask 027
chmod 755 .; mkdir e; echo content > e/f; chmod 750 e; chmod 640 e/f
as 1234 9 'cat e/f'; setfacl -m u:1234:x e; as 1234 9 'cat e/f'
setfacl -m u:1234:r e/f; as 1234 9 'cat e/f'; as 1234 9 'echo more >> e/f'; as 1235 9 'cat e/f'
setfacl -m g:2345:x e; setfacl -m g:2345:rw e/f; as 1235 2345 'echo more >> e/f'; as 1235 2345 'rm e/f'
chmod g-w e/f; as 1235 2345 'echo more >> e/f'; as 1235 2345 'cat e/f'
setfacl -m u:1234:rwx e; as 1234 9 'echo new > e/new'; stat -c '%U %a' e/new
setfacl -d -m u:1235:rwx e; as 1234 9 'mkdir e/dir'; getfacl -c e/dir; as 1235 9 'ls e/dir'
setfacl -b e; as 1234 9 'cat e/f'
touch s; chown 1236:77 s; chmod 2755 s; as 1236 9 'setfacl -m u:1:r s'; stat -c %a s
"#;

fn run_in(dir: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    ok(command.current_dir(dir).args(["-c", &format!("set -u\n{script}")]), 120)
}

/// A directory on a local filesystem that supports ACLs.
fn reference() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Command::new("setfacl").args(["-m", "u:1:r"]).arg(dir.path()).status();
    kept.is_ok_and(|status| status.success()).then_some(dir)
}

fn compared(options: &[&str], script: &str) {
    if !ready(&["setfacl", "rsync", "setpriv"]) {
        return;
    }
    let Some(reference) = reference() else {
        skip("the temporary directory has no ACLs".into());
        return;
    };
    ok(Command::new("setfacl").arg("-b").arg(reference.path()), 10);
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(options);
    let expected = run_in(reference.path(), script);
    assert_eq!(run_in(mount.path(), script), expected, "{options:?}");
    let all = "find . -mindepth 1 | sort | xargs getfacl -c";
    let before = run_in(mount.path(), all);
    assert_eq!(before, run_in(reference.path(), all), "{options:?}");
    let mount = mount.remount();
    assert_eq!(run_in(mount.path(), all), before, "after a remount");
    mount.unmount();
}

#[test]
fn acls_are_kept_as_on_the_disk() {
    compared(&["--allow-other"], KEPT);
    compared(&["-o", "default_permissions"], KEPT);
}

#[test]
fn acls_are_kept_where_nobody_needs_to_enforce_them() {
    compared(&[], KEPT);
}

#[test]
fn acls_are_enforced() {
    compared(&["--allow-other"], ENFORCED);
}
