//! Set-user-id and set-group-id bits after various changes by various users, as on a local disk.

use crate::support::{
    command::{ok, script},
    mounted::Vault,
    ready_as_root,
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// A group that only some of the test's users belong to.
const PRELUDE: &str = "
    G=61100
    user() { setpriv --reuid=65534 --regid=65534 \"$@\"; }
    said() { echo \"$1: $2 $(stat -c '%a %u %g' $3 2>/dev/null)\"; }
";

/// Changes to a file by a user, both in the file's group and outside it.
const BY_A_USER: &str = r#"
    for mode in 6777 2666 6666 2755 4755; do for owner in 65534:$G 65534:65534 0:$G; do
    for groups in --clear-groups --groups=$G; do
    while read -r change; do
        rm -f f; head -c 8192 /dev/zero >f; chown $owner f; chmod $mode f
        r=0; user $groups sh -c "$change" >/dev/null 2>&1 || r=$?
        said "$mode $owner $groups $change" $r f
    done <<'END'
echo x >>f
: >f
truncate -s 3 f
fallocate -l 9000 f
fallocate -p -o 0 -l 4096 f
chown 65534 f
chgrp 65534 f
chgrp 61100 f
chmod 7777 f
chmod 2770 f
setfacl -m u:5:r f
setfacl -m g:61100:rwx f
touch f
dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct
END
    done; done; done
"#;

/// Changes by root, with all capabilities and without the one to keep set-user-id.
const BY_ROOT: &str = r#"
    for mode in 6777 2666 6755; do
    for rights in "" "setpriv --inh-caps -fsetid --bounding-set -fsetid"; do
    for change in "echo x >>f" "chown 5 f" "chgrp 5 f" "truncate -s 1 f" "fallocate -l 90000 f" "setfacl -m u:5:rwx f"; do
        rm -f f; head -c 100 /dev/zero >f; chown 7:7 f; chmod $mode f
        $rights sh -c "$change"
        said "root $rights $mode $change" $? f
    done; done; done
"#;

/// Bits and groups inherited from a directory with set-group-id.
const HANDED_DOWN: &str = r#"
    for mode in 2777 3777; do for owner in 0:$G 65534:$G 0:0; do
    for groups in --clear-groups --groups=$G; do for acl in "" u:5:rwx,g::r-x; do
    while read -r make; do
        rm -rf d; mkdir d; chown $owner d; chmod $mode d
        test -z "$acl" || setfacl -d -m $acl d
        r=0; user $groups sh -c "$make" >/dev/null 2>&1 || r=$?
        said "$mode $owner $groups $acl $make" $r d/n
    done <<'END'
touch d/n
mkdir d/n
umask 0; install -m 6777 /dev/null d/n
install -d -m 777 d/n
mkdir d/n; chmod 755 d/n
mkdir d/n; chgrp 65534 d/n
END
    done; done; done; done
"#;

fn told(dir: &Path, commands: &str) -> Vec<String> {
    let text = ok(&mut script(dir, &format!("{PRELUDE}{commands}")), 120);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn set_id_goes_and_stays_as_on_the_disk() {
    if !ready_as_root(&["setpriv", "setfacl", "fallocate", "truncate", "dd", "install"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    let plain = vault.place_path().join("plain");
    fs::create_dir(&plain).unwrap();
    for place in [plain.as_path(), mount.path()] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for commands in [BY_A_USER, BY_ROOT, HANDED_DOWN] {
        let (expected, seen) = (told(&plain, commands), told(mount.path(), commands));
        assert!(expected.len() > 30 && expected.len() == seen.len());
        let differ: Vec<_> = expected.iter().zip(&seen).filter(|(expected, seen)| expected != seen).collect();
        assert!(differ.is_empty(), "{} differ: {differ:#?}", differ.len());
    }
    mount.unmount();
}
