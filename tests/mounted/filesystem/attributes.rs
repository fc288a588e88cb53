//! More extended attributes than a file in the store has space for.

use crate::support::{
    command::ok,
    mounted::{Mount, Vault},
    ready,
};
use rustix::{
    fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr},
    io::Errno,
};
use std::{collections::BTreeMap, fs, path::Path, process::Command};

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn name(n: usize) -> String {
    format!("user.attribute_{n}")
}

fn set(path: &Path, n: usize, value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
    setxattr(path, name(n), value, flags)
}

/// All attributes of a file, as programs see them.
fn attributes(path: &Path) -> Attributes {
    let mut names = vec![0; 65_536];
    let len = listxattr(path, &mut names[..]).expect("the kernel lists all names");
    let value = |name: &[u8]| {
        let mut value = vec![0; 65_536];
        let len = getxattr(path, name, &mut value).expect("a listed attribute has a value");
        (name.to_vec(), value[..len].to_vec())
    };
    names[..len].split(|b| *b == 0).filter(|name| !name.is_empty()).map(value).collect()
}

/// Number of attribute lists in the store.
fn lists(vault: &Vault) -> usize {
    fs::read_dir(vault.store.join("warpcrypt.xattrs")).map_or(0, Iterator::count)
}

fn change(path: &Path, count: usize) -> Attributes {
    let mut expected = Attributes::new();
    for n in 0..count {
        let value = format!("value {n}").into_bytes();
        set(path, n, &value, XattrFlags::CREATE).expect("create");
        expected.insert(name(n).into_bytes(), value);
    }
    assert_eq!(attributes(path), expected);
    for n in (0..count).step_by(7) {
        set(path, n, b"changed", XattrFlags::REPLACE).expect("replace");
        expected.insert(name(n).into_bytes(), b"changed".to_vec());
    }
    for n in (0..count).step_by(3) {
        removexattr(path, name(n)).expect("remove");
        expected.remove(name(n).as_bytes());
    }
    assert_eq!(attributes(path), expected);
    assert_eq!(set(path, 1, b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set(path, 3, b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(removexattr(path, name(3)), Err(Errno::NODATA));
    expected
}

/// On a store with space for a few attributes, and on one with space for most.
#[test]
fn a_file_has_a_thousand_attributes() {
    if !ready(&[]) {
        return;
    }
    for vault in [Vault::new("aes-256-ctr"), Vault::in_memory("aes-256-ctr")] {
        let mount = vault.mount();
        let at = |mount: &Mount, name: &str| mount.join(name);
        fs::write(at(&mount, "file"), "content").unwrap();
        fs::create_dir(at(&mount, "directory")).unwrap();
        let of_file = change(&at(&mount, "file"), 1000);
        let of_dir = change(&at(&mount, "directory"), 200);
        fs::hard_link(at(&mount, "file"), at(&mount, "link")).unwrap();
        fs::rename(at(&mount, "file"), at(&mount, "directory/renamed")).unwrap();
        fs::rename(at(&mount, "directory"), at(&mount, "moved")).unwrap();
        let mount = mount.remount();
        for file in ["link", "moved/renamed"] {
            assert_eq!(attributes(&at(&mount, file)), of_file, "{file}");
        }
        assert_eq!(attributes(&at(&mount, "moved")), of_dir);
        fs::remove_file(at(&mount, "link")).unwrap();
        assert_eq!(attributes(&at(&mount, "moved/renamed")), of_file);
        assert!((1..=2).contains(&lists(&vault)));
        fs::remove_dir_all(at(&mount, "moved")).unwrap();
        mount.unmount();
        assert_eq!(lists(&vault), 0, "they went with what they belonged to");
    }
}

#[test]
fn values_of_any_length_fit_until_a_list_is_full() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let path = mount.join("file");
    fs::write(&path, "").unwrap();
    let mut expected = Attributes::new();
    let full = loop {
        let (n, value) = (expected.len(), vec![expected.len() as u8; 65_536]);
        match set(&path, n, &value, XattrFlags::empty()) {
            Ok(()) => drop(expected.insert(name(n).into_bytes(), value)),
            Err(e) => break e,
        }
    };
    assert_eq!((full, expected.len()), (Errno::NOSPC, 15));
    assert_eq!(attributes(&path), expected);
    for n in 0..14 {
        set(&path, n, b"short", XattrFlags::REPLACE).unwrap();
        expected.insert(name(n).into_bytes(), b"short".to_vec());
    }
    let mount = mount.remount();
    assert_eq!(attributes(&mount.join("file")), expected);
    // An open file loses its list when its last name is removed.
    let open = fs::File::open(mount.join("file")).unwrap();
    fs::remove_file(mount.join("file")).unwrap();
    let read = rustix::fs::fgetxattr(&open, name(14), &mut [0; 10][..]);
    assert_eq!(read, Err(Errno::NODATA));
    let set = rustix::fs::fsetxattr(&open, name(14), &[0; 65_536], XattrFlags::empty());
    assert_eq!(set, Err(Errno::NOSPC));
    drop(open);
    mount.unmount();
    assert_eq!(lists(&vault), 0);
}

#[test]
fn programs_copy_all_attributes() {
    if !ready(&["cp", "rsync", "tar"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let from = mount.join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "content").unwrap();
    let of_file = change(&from.join("file"), 150);
    let of_dir = change(&from, 150);
    let copies = [
        ("cp", "cp -a from cp"),
        ("rsync", "rsync -aX from/ rsync/"),
        ("tar", "mkdir tar; tar --xattrs -C from -cf - . | tar --xattrs -C tar -xf -"),
    ];
    for (program, command) in copies {
        ok(Command::new("sh").arg("-ec").arg(command).current_dir(mount.path()), 120);
        let copy = mount.join(program);
        assert_eq!(attributes(&copy.join("file")), of_file, "{program}");
        assert_eq!(attributes(&copy), of_dir, "{program}");
    }
    assert_eq!(lists(&vault), 8);
    mount.unmount();
}
