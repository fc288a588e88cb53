//! Names and the nodes that they refer to: open files without a name, links, renames, listings.

use crate::{
    filesystem::{create, mode},
    support::{mounted::Vault, ready},
};
use rustix::{
    fs::{
        CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags,
        fallocate, fstat, ftruncate, futimens, mknodat, open, renameat_with,
    },
    io::{Errno, pread, pwrite},
};
use std::{
    collections::HashSet,
    fs::{self, File},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, symlink},
    },
};

#[test]
fn an_open_file_without_a_name_works() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for replaced in [false, true] {
        let path = mount.join("file");
        let file = create(&path);
        pwrite(&file, &[b'x'; 100_000], 0).unwrap();
        if replaced {
            fs::write(mount.join("other"), "other").unwrap();
            fs::rename(mount.join("other"), &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let now = fstat(&file).unwrap();
        assert_eq!((now.st_nlink, now.st_size), (0, 100_000));
        ftruncate(&file, 50_000).unwrap();
        pwrite(&file, b"tail", 200_000).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 300_000).unwrap();
        let day = Timespec { tv_sec: 86_400, tv_nsec: 7 };
        futimens(&file, &Timestamps { last_access: day, last_modification: day }).unwrap();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).unwrap();
        rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty()).unwrap();
        rustix::fs::fsync(&file).unwrap();
        let now = fstat(&file).unwrap();
        assert_eq!((now.st_size, now.st_mtime, now.st_mode & 0o777), (300_000, 86_400, 0o600));
        let mut around = [1; 8];
        pread(&file, &mut around, 49_996).unwrap();
        assert_eq!(&around, b"xxxx\0\0\0\0");
        let by_proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        pread(create_again(&by_proc), &mut around[..4], 200_000).unwrap();
        assert_eq!(&around[..4], b"tail");
    }
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"other");
}

fn create_again(path: &str) -> OwnedFd {
    open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("open by descriptor")
}

#[test]
fn names_lead_to_the_right_nodes() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let at = |name: &str| mount.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    let [a, b] = ["a", "b"].map(|n| fs::metadata(at(n)).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::write(at("c"), "c").unwrap();
    fs::rename(at("c"), at("a")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 1, "a link was replaced");
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"c".into(), b"a".into()));

    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    fs::create_dir_all(at("d/e")).unwrap();
    fs::write(at("d/e/inside"), "").unwrap();
    rename("a", "d/e", RenameFlags::EXCHANGE).unwrap();
    assert!(at("a/inside").exists() && fs::read(at("d/e")).unwrap() == b"c");
    let parent = fs::metadata(at("a/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(mount.path()).unwrap().ino());
    assert_eq!(fs::rename(at("d"), at("d/e2")).unwrap_err().raw_os_error(), Some(22));

    for len in [3039, 3040, 4095] {
        let target = "t".repeat(len);
        symlink(&target, at("long")).unwrap();
        assert_eq!(fs::read_link(at("long")).unwrap().as_os_str().len(), len);
        assert_eq!(fs::symlink_metadata(at("long")).unwrap().len(), len as u64);
        fs::rename(at("long"), at(&format!("long-{len}"))).unwrap();
    }

    // A name whose lookup failed is found once it exists.
    assert!(!at("later").exists());
    symlink("a/inside", at("later")).unwrap();
    assert!(at("later").exists());
    let fifo = FileType::Fifo;
    mknodat(CWD, at("fifo"), fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(mode(at("fifo")), 0o600);

    let mount = mount.remount();
    let longest = mount.join("long-4095");
    assert_eq!(fs::symlink_metadata(&longest).unwrap().len(), 4095);
    assert_eq!(fs::read_link(&longest).unwrap().as_os_str().len(), 4095);
    fs::remove_file(longest).unwrap();
    mount.unmount();
    assert_eq!(fs::read_dir(vault.store.join("warpcrypt.links")).unwrap().count(), 1);
}

#[test]
fn a_removed_directory_is_empty() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::create_dir(mount.join("gone")).unwrap();
    let dir = File::open(mount.join("gone")).unwrap();
    fs::remove_dir(mount.join("gone")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let names = rustix::fs::Dir::new(dir.try_clone().unwrap()).unwrap().count();
    assert!(names <= 2, "only . and .. at most");
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    assert_eq!(
        rustix::fs::openat(&dir, "file", flags, Mode::from_raw_mode(0o600)).unwrap_err(),
        Errno::NOENT
    );
}

#[test]
fn a_large_directory_is_listed_whole() {
    if !ready(&[]) {
        return;
    }
    const FILES: usize = 20_000;
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let name = |i: usize| format!("file number {i}");
    for i in 0..FILES {
        File::create(mount.join(name(i))).unwrap();
    }
    let listed = || -> HashSet<String> {
        let entries = fs::read_dir(mount.path()).unwrap().map(|e| e.unwrap());
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
    };
    assert_eq!(listed(), (0..FILES).map(name).collect());
    let mut dir = rustix::fs::Dir::new(open(mount.path(), OFlags::RDONLY, Mode::empty()).unwrap()).unwrap();
    assert_eq!(dir.by_ref().count(), FILES + 2);
    // Every other file is removed while the directory is being read; the others appear exactly once.
    let mut met = HashSet::new();
    for entry in fs::read_dir(mount.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let number: usize = name.rsplit(' ').next().unwrap().parse().unwrap();
        if number.is_multiple_of(2) {
            fs::remove_file(entry.path()).unwrap();
        }
        assert!(met.insert(number), "{number} is listed twice");
    }
    assert_eq!(met.len(), FILES);
    dir.rewind();
    assert_eq!(dir.count(), FILES / 2 + 2, "read from the start, it is as it is now");
}
