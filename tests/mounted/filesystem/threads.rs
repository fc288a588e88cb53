//! Files that several threads open, move, truncate and write at once.

use crate::support::{mounted::Vault, random::Random, ready};
use rustix::{
    fs::{CWD, RenameFlags, XattrFlags, getxattr, renameat_with, setxattr},
    io::pwrite,
};
use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Files whose content and attribute both identify them, moved around by many threads: every file that
/// is opened is consistent.
#[test]
fn nothing_is_mistaken_for_another_under_many_hands() {
    if !ready(&[]) {
        return;
    }
    // tmpfs never reuses an inode number; a disk reuses them immediately.
    many_hands(&Vault::in_memory("aes-256-ctr"));
    many_hands(&Vault::new("aes-256-ctr"));
}

fn many_hands(vault: &Vault) {
    let mount = vault.mount();
    for dir in ["a", "b", "a/c", "b/d"] {
        fs::create_dir(mount.join(dir)).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(6);
    thread::scope(|scope| {
        for hand in 0..6 {
            let root = mount.path();
            scope.spawn(move || {
                let mut random = Random::from_seed(hand);
                let mut round = 0;
                while Instant::now() < end {
                    round += 1;
                    shuffle(root, hand, round, &mut random);
                }
            });
        }
    });
    drop(mount.remount());
}

fn shuffle(root: &Path, hand: u64, round: u64, random: &mut Random) {
    let mut place = || -> PathBuf {
        let dir = ["a", "b", "a/c", "b/d", "a/d", "b/c"][random.below(6) as usize];
        root.join(dir).join(format!("{}", random.below(4)))
    };
    let (one, two) = (place(), place());
    let exchange = || renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE);
    match random.below(9) {
        0 | 1 => {
            let name = format!("{hand} {round} ").repeat(300);
            let new = root.join(format!("new {hand}"));
            fs::write(&new, &name).expect("nobody else knows this name");
            setxattr(&new, "user.name", &name.as_bytes()[..20], XattrFlags::empty()).expect("set");
            let _ = fs::rename(&new, &one);
        }
        2 => drop(fs::rename(&one, &two)),
        3 => drop(fs::hard_link(&one, &two)),
        4 => drop(fs::remove_file(&one)),
        5 => drop(exchange()),
        6 => {
            let (from, to) =
                [("a/c", "b/c"), ("b/c", "a/c"), ("b/d", "a/d"), ("a/d", "b/d")][random.below(4) as usize];
            let _ = fs::rename(root.join(from), root.join(to));
        }
        7 => drop(fs::read_dir(one.parent().expect("below the root")).map(|d| d.count())),
        _ => check(&one),
    }
}

fn check(path: &Path) {
    let Ok(mut file) = File::open(path) else { return };
    let (mut content, mut name) = (String::new(), [0; 64]);
    file.read_to_string(&mut content).expect("read");
    let len = rustix::fs::fgetxattr(&file, "user.name", &mut name).expect("attribute of an open file");
    assert_eq!(content.as_bytes()[..20], name[..len]);
    let piece = content.len() / 300;
    assert!(content.as_bytes().chunks(piece).all(|c| c == &content.as_bytes()[..piece]));
    let _ = getxattr(path, "user.name", &mut name);
}

/// The first open of a small file passes its content to the kernel. Concurrent opens, reads, truncations
/// and writes must still see valid content.
#[test]
fn small_files_are_whole_whoever_opens_them_first() {
    if !ready(&[]) {
        return;
    }
    const FILES: usize = 150;
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    let size = |i: usize| [1, 4095, 4096, 10_000, 65_536, 65_537][i % 6];
    for round in 0..4 {
        for i in 0..FILES {
            fs::write(mount.join(i.to_string()), vec![i as u8; size(i)]).unwrap();
        }
        mount = mount.remount();
        let mount = &mount;
        thread::scope(|scope| {
            for reader in 0..4 {
                scope.spawn(move || {
                    for i in (0..FILES).map(|i| (i + reader * round) % FILES) {
                        let read = fs::read(mount.join(i.to_string())).unwrap();
                        // Until a truncation is answered the kernel keeps the old size, and pads reads
                        // with zeros.
                        let cut = i % 3 == 0;
                        let known = |&byte: &u8| byte == i as u8 || byte == 0xee || cut && byte == 0;
                        assert!(read.iter().all(known), "file {i}");
                    }
                });
            }
            scope.spawn(move || {
                for i in (0..FILES).step_by(3) {
                    let file = File::options().write(true).open(mount.join(i.to_string())).unwrap();
                    file.set_len(size(i) as u64 / 2).unwrap();
                    pwrite(&file, &[0xee; 10], 0).unwrap();
                }
            });
        });
        for i in 0..FILES {
            let read = fs::read(mount.join(i.to_string())).unwrap();
            let mut expected = vec![i as u8; size(i)];
            if i % 3 == 0 {
                expected.truncate(size(i) / 2);
                expected.resize(expected.len().max(10), i as u8);
                expected[..10].fill(0xee);
            }
            assert_eq!(read, expected, "file {i}");
        }
    }
}

/// A file truncated by name before anything opened it.
#[test]
fn a_small_file_cut_before_it_is_opened_ends_there() {
    if !ready(&["python3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for i in 0..50 {
        fs::write(mount.join(format!("file {i}")), [7; 9000]).unwrap();
    }
    let mount = mount.remount();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for i in 0..50 {
                let read = fs::read(mount.join(format!("file {i}"))).unwrap();
                assert!(read.len() <= 9000 && read.iter().all(|&byte| byte == 7));
            }
        });
        let cut = "import os, sys\nfor i in range(0, 50, 10): os.truncate(f'{sys.argv[1]}/file {i}', 5000)";
        let cut = Command::new("python3").args(["-c", cut]).arg(mount.path()).status();
        assert!(cut.is_ok_and(|status| status.success()));
        reader.join().unwrap();
    });
    for i in 0..50 {
        let len = if i % 10 == 0 { 5000 } else { 9000 };
        assert_eq!(fs::read(mount.join(format!("file {i}"))).unwrap(), vec![7; len]);
    }
}
