//! `check --repair`: intact data stays, also next to repaired data, and so does data that merely could
//! not be read.

use crate::{
    cli::check::{check, filled, findings, flip, stored},
    support::{command::run, mounted::Vault, ready},
};
use format::layout::CHUNK;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).expect("setxattr");
}

/// Length of an attribute's value.
fn length(path: &Path, name: &str) -> rustix::io::Result<usize> {
    getxattr(path, name, &mut vec![0; 65_536])
}

/// Symlinks in the root of the store.
fn links(vault: &Vault) -> Vec<PathBuf> {
    let listed = fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").path());
    listed.filter(|path| path.is_symlink()).collect()
}

/// The only file in one of the vault's own directories.
fn only(vault: &Vault, dir: &str) -> PathBuf {
    let files = fs::read_dir(vault.store.join(dir)).expect("list");
    let [file] = &files.map(|entry| entry.expect("entry").path()).collect::<Vec<_>>()[..] else {
        panic!("several files in {dir}")
    };
    file.clone()
}

/// Attributes are bound to the header of a file, or to the id of a directory.
#[test]
fn a_repair_keeps_the_attributes_of_what_it_mends() {
    if !ready(&[]) {
        return;
    }
    let size = 150 * CHUNK + 1;
    let vault = filled(&[size]);
    // Everybody may read, and user 1000 may also write.
    let acl = [(1, 6, u32::MAX), (2, 6, 1000), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)];
    let entry = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [2_u32.to_le_bytes().to_vec(), acl.map(entry).concat()].concat();
    let [folder, file] = ["folder".to_owned(), format!("folder/of {size}")];
    let mount = vault.mount();
    set(&mount.join(&file), "user.note", b"value");
    set(&mount.join(&file), "system.posix_acl_access", &acl);
    set(&mount.join(&folder), "user.note", b"value");
    set(&mount.join(&folder), "system.posix_acl_default", &acl);
    mount.unmount();

    let in_store = stored(&vault, size);
    flip(&in_store, 100);
    flip(&in_store.with_file_name("warpcrypt.dir"), 20);
    let done = run(&mut check(&vault, &["--full", "--repair"]), 60);
    assert_eq!(done.code(), 0, "{}{}", done.text(), done.stderr);
    assert_eq!(findings(&vault, true).0, 0);
    let mount = vault.mount_with(&["--read-only"]);
    for path in [&folder, &file] {
        assert_eq!(length(&mount.join(path), "user.note"), Ok(5), "{path}");
    }
    assert_eq!(length(&mount.join(&file), "system.posix_acl_access"), Ok(acl.len()));
    assert_eq!(length(&mount.join(&folder), "system.posix_acl_default"), Ok(acl.len()));
    mount.unmount();
}

/// A directory in place of a file simulates a disk read error.
#[test]
fn what_could_not_be_read_is_reported_and_stays() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    symlink("t".repeat(4000), mount.join("link")).expect("symlink");
    fs::write(mount.join("file"), "content").expect("write");
    let long = "l".repeat(200);
    fs::write(mount.join(&long), "content").expect("write");
    set(&mount.join("file"), "user.short", b"value");
    set(&mount.join("file"), "user.long", &[7; 65_536]);
    mount.unmount();
    let listed = fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").path());
    let sidecar =
        listed.into_iter().find(|path| path.extension().is_some_and(|e| e == "name")).expect("a sidecar");
    let unread = [only(&vault, "warpcrypt.links"), only(&vault, "warpcrypt.xattrs"), sidecar];
    let kept = ["target", "list", "sidecar"].map(|name| vault.place_path().join(name));
    for (file, kept) in unread.iter().zip(&kept) {
        fs::rename(file, kept).expect("rename");
        fs::create_dir(file).expect("mkdir");
    }
    let found = ["/", "file", "link"].map(|path| ("damaged".to_owned(), path.to_owned(), None, None));
    assert_eq!(findings(&vault, false), (41, found.to_vec()));
    let done = run(&mut check(&vault, &["--repair"]), 60);
    assert!(done.code() == 41 && !done.text().contains("set aside"), "{}", done.text());

    for (file, kept) in unread.iter().zip(&kept) {
        fs::remove_dir(file).expect("remove");
        fs::rename(kept, file).expect("rename");
    }
    assert_eq!(findings(&vault, true), (0, vec![]));
    let mount = vault.mount_with(&["--read-only"]);
    assert_eq!(fs::read_link(mount.join("link")).expect("readlink").as_os_str().len(), 4000);
    assert_eq!(length(&mount.join("file"), "user.short"), Ok(5));
    assert_eq!(length(&mount.join("file"), "user.long"), Ok(65_536));
    assert_eq!(fs::read(mount.join(&long)).expect("read"), b"content");
    mount.unmount();
}

#[test]
fn a_link_of_an_unknown_form_is_named_and_left() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    symlink("t".repeat(4000), mount.join("link")).expect("symlink");
    mount.unmount();
    let [link] = &links(&vault)[..] else { panic!("one link") };
    fs::remove_file(link).expect("remove");
    symlink("warpcrypt.later", link).expect("symlink");
    assert_eq!(findings(&vault, true), (41, vec![("damaged".to_owned(), "link".to_owned(), None, None)]));
    let done = run(&mut check(&vault, &["--repair"]), 60);
    assert!(done.code() == 41 && !done.text().contains("set aside"), "{}", done.text());
    assert!(link.is_symlink(), "it stays");
    only(&vault, "warpcrypt.links"); // That file may contain the link's target.
}
