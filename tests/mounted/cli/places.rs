//! Mount points that root refuses because another user could replace the directory.

use super::fails;
use crate::support::{
    command::ok,
    mounted::{Vault, is_mounted},
    ready_as_root,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::Command,
};

const USER: u32 = 65_534;

fn mount(vault: &Vault, at: &Path, options: &str) -> Command {
    let mut command = Vault::program();
    command.arg("mount").arg(&vault.store).arg(at).arg("--key-file").arg(&vault.key);
    command.arg("--log-file").arg(&vault.log).args(["-o", options]);
    command
}

#[test]
fn root_mounts_where_nobody_else_can_put_another_directory() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let place = vault.place_path();
    let [home, shared, link] = ["home", "shared", "link"].map(|name| place.join(name));
    for dir in [&home, &shared] {
        fs::create_dir_all(dir.join("mnt")).expect("mkdir");
    }
    [home.clone(), home.join("mnt")]
        .iter()
        .for_each(|dir| chown(dir, Some(USER), Some(USER)).expect("chown"));
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("chmod");
    symlink(&vault.mount_point, &link).expect("a link");

    fails(&mut mount(&vault, &home.join("mnt"), "rw"), 1, "belongs to uid 65534");
    fails(&mut mount(&vault, &shared.join("mnt"), "rw"), 1, "can be written to by other users");
    fails(&mut mount(&vault, &link, "rw"), 1, "is a symbolic link");
    // As if the user had replaced the mount point with a symlink to a directory of root's.
    fails(&mut mount(&vault, &vault.mount_point, "for-uid=65534"), 1, "belongs to uid 0");
    fails(&mut mount(&vault, &home.join("mnt"), "for-uid=61001"), 1, "belongs to uid 65534");

    let taken = [(home.join("mnt"), "for-uid=65534"), (shared.join("mnt"), "any-path"), (link, "any-path")];
    for (at, options) in taken {
        ok(&mut mount(&vault, &at, options), 60);
        let at = at.canonicalize().expect("a path");
        assert!(is_mounted(&at), "{}", at.display());
        ok(Vault::program().arg("umount").arg(&at), 60);
    }
}
