//! `mount --shared`: three mounts of one vault write to it concurrently.

use crate::support::{
    command::{Running, ok, run},
    mounted::{Mount, Vault, is_mounted},
    ready,
    waiting::{NEVER, stop, wait_for},
};
use rustix::process::{Signal, kill_process};
use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const CHUNK: usize = 4096;
const ALREADY_MOUNTED: i32 = 15;

/// Three vault handles with one store and separate mount points.
fn places() -> [Vault; 3] {
    let vault = Vault::new("aes-256-ctr");
    let others = [vault.elsewhere(), vault.elsewhere()];
    let [one, two] = others;
    [vault, one, two]
}

fn mount_all(places: &[Vault; 3]) -> [Mount<'_>; 3] {
    [0, 1, 2].map(|n| places[n].mount_with(&["--shared"]))
}

/// Unmounts all, and verifies every byte.
fn end(places: &[Vault; 3], mounts: [Mount<'_>; 3]) {
    mounts.into_iter().for_each(Mount::unmount);
    let vault = &places[0];
    ok(Vault::program().args(["check", "--full"]).arg(&vault.store).arg("--key-file").arg(&vault.key), 60);
    for place in places {
        assert!(!place.log_text().contains("damaged"), "{}", place.log_text());
    }
}

fn names(dir: &Path) -> HashSet<String> {
    let name = |entry: Result<fs::DirEntry, _>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(dir).unwrap().map(name).collect()
}

/// Reads a file in whole chunks. `fs::read` would probe for the end with a short read while another
/// mount may be writing there.
fn whole_chunks(path: &Path) -> Vec<u8> {
    let (file, mut read) = (File::open(path).unwrap(), vec![0; 400 * CHUNK]);
    let mut done = 0;
    loop {
        match file.read_at(&mut read[done..], done as u64).unwrap() {
            0 => break,
            some => done += some,
        }
    }
    read.truncate(done);
    read
}

#[test]
fn what_one_closes_the_others_see() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let mounts = mount_all(&places);
    let long = "l".repeat(200);
    for (n, writer) in mounts.iter().enumerate() {
        let dir = format!("dir {n}");
        fs::create_dir(writer.join(&dir)).unwrap();
        for name in ["a", &long] {
            fs::write(writer.join(&dir).join(name), vec![n as u8; 300_000]).unwrap();
            for other in &mounts {
                assert!(fs::read(other.join(&dir).join(name)).unwrap() == vec![n as u8; 300_000]);
            }
            // Shorter, longer, and overwritten at the same size.
            for (size, byte) in [(5, 7), (10_000, 8), (10_000, 9)] {
                fs::write(writer.join(&dir).join(name), vec![byte; size]).unwrap();
                for other in &mounts {
                    let path = other.join(&dir).join(name);
                    assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
                    assert!(fs::read(&path).unwrap() == vec![byte; size]);
                }
            }
        }
        // The way editors save a file.
        fs::write(writer.join(&dir).join("new"), "saved").unwrap();
        fs::rename(writer.join(&dir).join("new"), writer.join(&dir).join("a")).unwrap();
        for other in &mounts {
            assert_eq!(fs::read(other.join(&dir).join("a")).unwrap(), b"saved");
            assert_eq!(names(&other.join(&dir)), HashSet::from(["a".to_owned(), long.clone()]));
        }
        let other = &mounts[(n + 1) % 3];
        fs::remove_file(other.join(&dir).join("a")).unwrap();
        assert_eq!(fs::read(writer.join(&dir).join("a")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::remove_dir(other.join(&dir)).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_file(writer.join(&dir).join(&long)).unwrap();
        fs::remove_dir(other.join(&dir)).unwrap();
        assert!(names(writer.path()).is_empty());
    }
    // Data appended elsewhere becomes visible through a file that stays open.
    fs::write(mounts[0].join("log"), "one\n").unwrap();
    let mut reader = File::open(mounts[1].join("log")).unwrap();
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    OpenOptions::new().append(true).open(mounts[2].join("log")).unwrap().write_all(b"two\n").unwrap();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, "one\ntwo\n");
    fs::set_permissions(mounts[0].join("log"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(mounts[1].join("log")).unwrap().mode() & 0o777, 0o600);
    drop(reader);
    end(&places, mounts);
}

#[test]
fn all_that_write_one_file_get_their_turn() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let mounts = mount_all(&places);
    let number = AtomicU64::new(0);
    let content = |number: u64| number.to_le_bytes().repeat(CHUNK / 8 * (1 + number as usize % 40));
    thread::scope(|scope| {
        for mount in &mounts {
            let number = &number;
            scope.spawn(move || {
                for _ in 0..15 {
                    let file = mount.join("file");
                    fs::write(&file, content(number.fetch_add(1, SeqCst) + 1)).unwrap();
                    for chunk in whole_chunks(&file).chunks(CHUNK) {
                        assert!(chunk.chunks(8).all(|part| part == &chunk[..8]), "a chunk of two writes");
                    }
                }
            });
        }
    });
    let read = mounts.each_ref().map(|mount| fs::read(mount.join("file")).unwrap());
    assert!(read[0] == read[1] && read[1] == read[2]);
    end(&places, mounts);
}

#[test]
fn whoever_reads_beside_a_writer_meets_no_error() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let mounts = mount_all(&places);
    let size = 300 * CHUNK;
    let whole = |number: u64| number.to_le_bytes().repeat(size / 8);
    fs::write(mounts[0].join("file"), whole(1)).unwrap();
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(1));
    thread::scope(|scope| {
        for mount in &mounts[1..] {
            let (done, written) = (&done, &written);
            scope.spawn(move || {
                let mut newest = 0;
                while !done.load(SeqCst) {
                    let read = whole_chunks(&mount.join("file"));
                    assert_eq!(read.len(), size);
                    let most = written.load(SeqCst);
                    for chunk in read.chunks(CHUNK) {
                        assert!(chunk.chunks(8).all(|part| part == &chunk[..8]), "a chunk of two writes");
                        let number = u64::from_le_bytes(chunk[..8].try_into().unwrap());
                        assert!((1..=most).contains(&number), "{number} of {most}");
                        newest = newest.max(number);
                    }
                }
                assert!(newest > 1, "the writer gave way to nobody");
            });
        }
        let file = OpenOptions::new().write(true).open(mounts[0].join("file")).unwrap();
        let start = std::time::Instant::now();
        let mut number = 1;
        // The writer keeps the file open for longer than a lease lasts.
        while start.elapsed().as_secs() < 4 {
            number += 1;
            written.store(number, SeqCst);
            file.write_all_at(&whole(number), 0).unwrap();
            if number % 5 == 0 {
                file.sync_all().unwrap();
            }
        }
        drop(file);
        done.store(true, SeqCst);
    });
    end(&places, mounts);
}

#[test]
fn of_many_that_make_one_file_all_have_it_and_one_made_it() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let mounts = mount_all(&places);
    for round in 0..20 {
        let (name, barrier) = (format!("file {round}"), Barrier::new(3));
        let made: Vec<bool> = thread::scope(|scope| {
            let tries = mounts.each_ref().map(|mount| {
                let (name, barrier) = (&name, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let new = OpenOptions::new().write(true).create_new(true).open(mount.join(name)).is_ok();
                    OpenOptions::new()
                        .write(true)
                        .create(true)
                        .truncate(false)
                        .open(mount.join(name))
                        .unwrap();
                    let both = OpenOptions::new()
                        .write(true)
                        .create(true)
                        .truncate(true)
                        .custom_flags(libc::O_NOFOLLOW)
                        .open(mount.join(format!("{name} for all")));
                    both.unwrap();
                    new
                })
            });
            tries.map(|tried| tried.join().unwrap()).to_vec()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
    }
    end(&places, mounts);
}

#[test]
fn what_a_killed_mount_confirmed_the_others_have() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    for _ in 0..3 {
        let [victim, one, two] = mount_all(&places);
        let confirmed = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let file = OpenOptions::new()
                    .create(true)
                    .truncate(true)
                    .write(true)
                    .open(victim.join("file"))
                    .unwrap();
                for number in 1u64.. {
                    let place = number % 50 * CHUNK as u64;
                    let written = file.write_all_at(&number.to_le_bytes().repeat(CHUNK / 8), place);
                    if written.and_then(|()| file.sync_all()).is_err() {
                        break;
                    }
                    confirmed.store(number, SeqCst);
                }
            });
            thread::sleep(Duration::from_millis(700));
            victim.kill_server();
        });
        victim.kill();
        let last = confirmed.load(SeqCst);
        for mount in [&one, &two] {
            let read = fs::read(mount.join("file")).unwrap();
            let numbers = read.chunks(CHUNK).map(|chunk| u64::from_le_bytes(chunk[..8].try_into().unwrap()));
            let newest = numbers.max().unwrap();
            assert!(newest >= last, "{newest} of {last}");
            let place = (last % 50) as usize * CHUNK;
            assert!(u64::from_le_bytes(read[place..place + 8].try_into().unwrap()) >= last);
        }
        fs::write(two.join("file"), "others go on").unwrap();
        assert_eq!(fs::read(one.join("file")).unwrap(), b"others go on");
        let again = places[0].mount_with(&["--shared"]);
        assert_eq!(fs::read(again.join("file")).unwrap(), b"others go on");
        end(&places, [again, one, two]);
    }
}

#[test]
fn umount_waits_for_the_process_behind_a_mount_that_shares_a_vault() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let [first, second, third] = mount_all(&places);
    fs::write(first.join("file"), "content").unwrap();
    stop(first.pid);
    let mut umount = Running::start(Vault::program().arg("umount").arg(first.path()));
    wait_for("it is unmounted", || !is_mounted(first.path()));
    let early = umount.ends(Duration::from_secs(1));
    kill_process(first.pid, Signal::CONT).unwrap();
    assert!(!early, "umount returned while the process works");
    let done = umount.finish(NEVER);
    assert!(done.status.success() && !first.alive(), "{}", done.stderr);
    // A mount that is also bound elsewhere keeps running. A killed one is not waited for.
    let bound = places[1].place_path().join("bound");
    fs::create_dir(&bound).unwrap();
    let bind = Command::new("mount").arg("--bind").arg(second.path()).arg(&bound).output();
    if bind.is_ok_and(|done| done.status.success()) {
        ok(Vault::program().arg("umount").arg(&bound), 60);
        assert!(second.alive());
    }
    second.kill_server();
    ok(Vault::program().arg("umount").arg(second.path()), 60);
    assert_eq!(fs::read(third.join("file")).unwrap(), b"content");
    third.unmount();
}

#[test]
fn what_cannot_be_shared_is_refused() {
    if !ready(&[]) {
        return;
    }
    let places = places();
    let [vault, other, third] = &places;
    let alone = vault.mount();
    assert_eq!(other.try_mount(&["--shared"]).code(), ALREADY_MOUNTED);
    alone.unmount();
    let shared = vault.mount_with(&["-o", "shared"]);
    let refused = other.try_mount(&[]);
    assert_eq!(refused.code(), ALREADY_MOUNTED, "{}", refused.stderr);
    assert!(refused.stderr.contains("mounted with --shared"), "{}", refused.stderr);
    for options in [["--cache", "write-back"], ["--anchor", "/nonexistent/anchor"]] {
        let done = other.try_mount(&[&["--shared"], &options[..]].concat());
        assert_eq!(done.code(), 2, "{}", done.stderr);
    }
    let key = |command: &[&str]| {
        run(Vault::program().args(command).arg(&vault.store).arg("--key-file").arg(&vault.key), 60)
    };
    for command in [&["key", "rotate"][..], &["check"], &["check", "--repair"]] {
        let done = key(command);
        assert_eq!(done.code(), ALREADY_MOUNTED, "{command:?}: {}", done.stderr);
        assert!(done.stderr.contains("--shared"), "{command:?}: {}", done.stderr);
    }
    let frozen = run(Vault::program().arg("freeze").arg(shared.path()), 60);
    assert!(frozen.code() != 0 && frozen.stderr.contains("shared"), "{}", frozen.stderr);
    let second = third.mount_with(&["--shared"]);
    fs::write(second.join("file"), "as always").unwrap();
    ok(Vault::program().arg("lock").arg(shared.path()), 60);
    fs::write(second.join("file"), "meanwhile").unwrap();
    ok(Vault::program().arg("unlock").arg(shared.path()).arg("--key-file").arg(&vault.key), 60);
    assert_eq!(fs::read(shared.join("file")).unwrap(), b"meanwhile");
    second.unmount();
    shared.unmount();
    // A mount attempted right away waits for the last shared mount to end.
    vault.mount().unmount();
}
