//! Kills, full disks and read-only stores under a running mount: synced data survives.

mod writers;

use crate::support::{
    command::{Done, Running, ended, ok, run},
    disk::Disk,
    mounted::{Mount, Vault, is_mounted, release},
    random::Random,
    raw::close,
    ready, ready_as_root, say,
    store::walk,
};
use rustix::{io::Errno, mount::UnmountFlags};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    time::Duration,
};
use writers::Writer;

/// Reads every file to its end: a kill leaves no damage behind.
fn everything_reads(dir: &Path) {
    for path in walk(dir) {
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// Runs the writers in `mount` until it is killed after `pause`.
fn work_until_killed(vault: &Vault, writers: &mut [Box<dyn Writer>], pause: Duration, options: &[&str]) {
    let mount = vault.mount_with(options);
    everything_reads(mount.path());
    writers.iter_mut().for_each(|w| w.check());
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(move || while writer.step().is_ok() {});
        }
        std::thread::sleep(pause);
        // Keep the dead mount until every writer has seen an error. Otherwise they would continue in the
        // directory below it.
        mount.kill_server();
    });
    mount.kill();
}

fn survives_kills(cipher: &str, rounds: u64) {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("kills");
    let vault = Vault::new(cipher);
    let mount = vault.mount();
    let mut writers = writers::all(&mount.join("work"), &mut random);
    mount.unmount();
    for round in 0..rounds {
        let options: &[&str] = if round % 3 == 2 { &["--durability", "relaxed"] } else { &[] };
        let pause = Duration::from_millis(20 + random.below(500));
        work_until_killed(&vault, &mut writers, pause, options);
    }
    let mount = vault.mount();
    everything_reads(mount.path());
    writers.iter_mut().for_each(|w| w.check());
    mount.unmount();
    assert!(!vault.log_text().contains("unreadable"), "recovery gave something up:\n{}", vault.log_text());
}

/// A killed process that waits for an answer from its own mount can neither answer nor exit.
#[test]
fn a_mount_that_is_killed_as_it_begins_leaves_no_process() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("kills");
    let vault = Vault::in_memory("aes-256-ctr");
    for _ in 0..200 {
        let mut command = Vault::program();
        command.args(["mount", "--foreground", "--engine", "cpu", "--key-file"]).arg(&vault.key);
        let mut server = command.arg(&vault.store).arg(&vault.mount_point).spawn().expect("start");
        while !is_mounted(&vault.mount_point) {
            assert!(server.try_wait().expect("wait").is_none(), "it ended before it was mounted");
        }
        std::thread::sleep(Duration::from_micros(random.below(500)));
        server.kill().expect("kill");
        let ended = ended(&mut server, Duration::from_secs(10));
        if ended.is_none() {
            // Abort the connection, so that the process can exit.
            let _ = rustix::mount::unmount(&vault.mount_point, UnmountFlags::FORCE);
            let _ = server.wait();
        }
        release(&vault.mount_point);
        assert!(ended.is_some(), "a killed process stays");
    }
}

#[test]
fn what_was_synced_survives_kills() {
    survives_kills("aes-256-ctr", 40);
}

#[test]
fn what_was_synced_survives_kills_with_kuznyechik() {
    survives_kills("kuznyechik-ctr", 10);
}

#[test]
fn a_kill_while_unmounting_or_recovering_is_harmless() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("kills at the edges");
    let vault = Vault::new("aes-128-ctr");
    let mount = vault.mount();
    let mut writers = writers::all(&mount.join("work"), &mut random);
    mount.unmount();
    for _ in 0..15 {
        let mount = vault.mount();
        writers.iter_mut().for_each(|w| w.check());
        for writer in &mut writers {
            (0..4).for_each(|_| writer.step().expect("a step"));
        }
        // Not synced, so that the unmount has work to do.
        fs::write(mount.join("unsynced"), random.bytes(700_000)).expect("write");
        let unmounting = Running::start(Vault::program().arg("umount").arg(mount.path()));
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        if mount.alive() {
            mount.kill();
        } else {
            drop(mount);
        }
        drop(unmounting);
        // Kill it once more while the first files are being recovered.
        let mount = vault.mount();
        let _ = fs::read(mount.join("work/table"));
        mount.kill();
    }
    let mount = vault.mount();
    everything_reads(mount.path());
    writers.iter_mut().for_each(|w| w.check());
    mount.unmount();
}

#[test]
fn a_database_survives_kills() {
    if !ready(&["sqlite3", "stdbuf"]) {
        return;
    }
    let mut random = Random::new("database");
    let vault = Vault::new("aes-256-ctr");
    let work = vault.place_path().join("work.sql");
    let insert = "INSERT INTO t(v) VALUES(hex(randomblob(2000)));\nSELECT max(i) FROM t;\n".repeat(5000);
    fs::write(&work, format!("PRAGMA synchronous=FULL;\n{insert}")).expect("script");
    for mode in ["delete", "wal"] {
        let name = format!("{mode}.db");
        let mut sure = 0;
        for round in 0..8 {
            let mount = vault.mount();
            let make = format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE IF NOT EXISTS t(i INTEGER PRIMARY KEY, v);"
            );
            let check = "PRAGMA integrity_check; SELECT ifnull(max(i),0) FROM t;";
            ok(&mut sqlite(mount.path(), &name, &make), 60);
            let found = ok(&mut sqlite(mount.path(), &name, check), 60);
            let found: Vec<&str> = found.lines().collect();
            let number: u64 = found[found.len() - 1].parse().expect("a number");
            assert_eq!(found[0], "ok", "{mode}, round {round}");
            assert!(number >= sure, "{mode}, round {round}: {sure} were committed, {number} are there");
            let all = format!(".read {}", work.display());
            let writer = Running::start(&mut sqlite(mount.path(), &name, &all));
            std::thread::sleep(Duration::from_millis(100 + random.below(700)));
            mount.kill_server();
            let done = writer.finish(Duration::from_secs(60));
            assert!(!done.status.success(), "the database did not notice that the mount went away");
            sure = whole_lines(&done).last().map_or(sure, |line| line.parse().expect("a number"));
            mount.kill();
        }
        assert!(sure > 20, "{mode}: only {sure} transactions: the test shows nothing");
    }
}

/// Lines of the output that end with a newline.
fn whole_lines(done: &Done) -> Vec<String> {
    let text = done.text();
    let end = text.rfind('\n').unwrap_or(0);
    text[..end].lines().filter(|l| l.parse::<u64>().is_ok()).map(String::from).collect()
}

fn sqlite(dir: &Path, name: &str, statements: &str) -> Command {
    let mut command = Command::new("stdbuf");
    command.current_dir(dir).args(["-oL", "sqlite3", "-bail", name]).arg(statements);
    command
}

/// Writes until an error occurs. Returns the number of synced bytes, and the error.
fn fill(path: &Path, content: &[u8]) -> (usize, io::Error) {
    let mut file = File::create(path).expect("create");
    let mut sure = 0;
    for piece in content.chunks(64 << 10) {
        if let Err(e) = file.write_all(piece).and_then(|()| file.sync_all()) {
            let _ = close(file);
            return (sure, e);
        }
        sure += piece.len();
    }
    panic!("the disk never fills");
}

/// Unmounts. umount may report that not everything could be stored, but the vault must be released.
fn unmount_while_full(mount: Mount) {
    let done = run(Vault::program().arg("umount").arg(mount.path()), 60);
    let said = done.code() == 1 && done.stderr.contains("could be stored");
    assert!(done.status.success() || said, "{}: {}", done.status, done.stderr);
    // The process releases the vault first and exits afterwards.
    let ended = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !mount.alive()
    });
    assert!(ended, "the mount's process goes on");
}

/// Waits for the space of removed files, which is freed shortly after the kernel forgets them.
fn wait_for_room(disk: &Path, bytes: u64) {
    for _ in 0..200 {
        let space = rustix::fs::statvfs(disk).expect("statvfs");
        if space.f_bavail * space.f_frsize >= bytes {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("two seconds after files were removed the store is still full");
}

#[test]
fn a_full_disk_loses_nothing() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let disk = Disk::new("8m");
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mut mount = vault.mount();
    let mut random = Random::new("full disk");
    let (kept, large) = (random.bytes(1 << 20), random.bytes(20 << 20));
    for round in 0..3 {
        fs::write(mount.join("kept"), &kept).expect("write");
        File::open(mount.join("kept")).expect("open").sync_all().expect("fsync");
        let (sure, error) = fill(&mount.join("large"), &large);
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(sure > 1 << 20, "only {sure} bytes fit");
        // Unsynced writes fail with ENOSPC at some point between write and close.
        let unsynced =
            File::create(mount.join("more")).and_then(|mut f| f.write_all(&large).and_then(|()| close(f)));
        assert_eq!(unsynced.expect_err("it does not fit").kind(), ErrorKind::StorageFull);
        // Overwriting existing data either needs no space in this store, or reports that there is none.
        let overwrite = OpenOptions::new().write(true).open(mount.join("kept")).expect("open");
        let result = overwrite.write_all_at(&kept[5000..50_000], 5000).and_then(|()| overwrite.sync_all());
        assert!(
            result.as_ref().is_ok_and(|()| true) || result.is_err_and(|e| e.kind() == ErrorKind::StorageFull)
        );
        drop(overwrite);
        let intact = |what: &str| {
            assert!(fs::read(mount.join("kept")).expect("read") == kept, "{what}");
            let found = fs::read(mount.join("large")).expect("read");
            assert!(found.len() >= sure && large.starts_with(&found[..sure]), "{what}: the synced part");
        };
        intact("while full");
        match round {
            0 => {}
            1 => {
                unmount_while_full(mount);
                mount = vault.mount();
                assert!(fs::read(mount.join("kept")).expect("read") == kept, "after a remount while full");
            }
            _ => {
                mount.kill();
                mount = vault.mount();
                assert!(fs::read(mount.join("kept")).expect("read") == kept, "after a kill while full");
            }
        }
        let found = fs::read(mount.join("large")).expect("read");
        assert!(found.len() >= sure && found[..sure] == large[..sure], "round {round}");
        fs::remove_file(mount.join("large")).expect("remove");
        fs::remove_file(mount.join("more")).expect("remove");
        wait_for_room(disk.0.path(), 4 << 20);
        fs::write(mount.join("after"), &large[..2 << 20]).expect("work goes on");
        File::open(mount.join("after")).expect("open").sync_all().expect("fsync");
        mount = mount.remount();
        assert!(fs::read(mount.join("after")).expect("read") == large[..2 << 20]);
        fs::remove_file(mount.join("after")).expect("remove");
        wait_for_room(disk.0.path(), 6 << 20);
    }
    everything_reads(mount.path());
    mount.unmount();
}

#[test]
fn a_file_open_when_the_disk_was_full_goes_on() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let disk = Disk::new("6m");
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount();
    let content = Random::new("full disk, open file").bytes(3 << 20);
    let file = File::options().create_new(true).read(true).write(true).open(mount.join("f")).expect("create");
    file.write_all_at(&content[..1 << 20], 0).expect("write");
    file.sync_all().expect("fsync");
    // Another program uses up the space.
    let other = disk.0.path().join("other");
    let taken = fs::write(&other, vec![1; 6 << 20]);
    assert!(taken.is_err());
    let failed = file.write_all_at(&content[1 << 20..], 1 << 20).and_then(|()| file.sync_all());
    assert_eq!(failed.expect_err("no room").kind(), ErrorKind::StorageFull);
    let mut first = vec![0; 1 << 20];
    file.read_exact_at(&mut first, 0).expect("read");
    assert!(first == content[..1 << 20], "what was synced reads as it was");
    fs::remove_file(&other).expect("remove");
    wait_for_room(disk.0.path(), 4 << 20);
    file.write_all_at(&content[1 << 20..], 1 << 20).expect("write");
    file.sync_all().expect("fsync, now that there is room");
    drop(file);
    let mount = mount.remount();
    assert!(fs::read(mount.join("f")).expect("read") == content);
    mount.unmount();
}

#[test]
fn a_store_turned_read_only_loses_nothing() {
    if !ready_as_root(&["mount", "mkfs.ext4", "losetup"]) {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let image = place.path().join("image");
    File::create(&image).and_then(|f| f.set_len(64 << 20)).expect("image");
    ok(Command::new("mkfs.ext4").arg("-q").arg(&image), 60);
    let disk = Disk(tempfile::TempDir::with_prefix("warpcrypt-disk-").expect("directory"));
    let attach = || run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.0.path()), 30);
    if !attach().status.success() {
        say("SKIPPED: a_store_turned_read_only_loses_nothing: needs a loop device");
        return;
    }
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount();
    let content = Random::new("read-only store").bytes(300_000);
    for name in ["kept", "open"] {
        fs::write(mount.join(name), &content).expect("write");
        File::open(mount.join(name)).expect("open").sync_all().expect("fsync");
    }
    let file = OpenOptions::new().write(true).open(mount.join("open")).expect("open");
    file.write_all_at(b"not synced", 100_000).expect("write");
    // Simulates the kernel's reaction to a damaged filesystem.
    ok(Command::new("mount").args(["-o", "remount,abort"]).arg(disk.0.path()), 30);
    let lost = file.write_all_at(b"late", 50).and_then(|()| file.sync_all());
    let mut refused = vec![
        lost.expect_err("a write to an open file"),
        fs::write(mount.join("new"), b"x").expect_err("a new file"),
        fs::create_dir(mount.join("d")).expect_err("a directory"),
        fs::rename(mount.join("kept"), mount.join("gone")).expect_err("a rename"),
    ];
    refused.extend(close(file).err());
    let known = [Errno::ROFS, Errno::IO].map(|e| Some(e.raw_os_error()));
    assert!(refused.iter().all(|e| known.contains(&e.raw_os_error())), "{refused:?}");
    assert!(fs::read(mount.join("kept")).expect("read") == content);
    drop(mount);
    ok(Command::new("umount").arg(disk.0.path()), 30);
    assert!(attach().status.success());
    let mount = vault.mount();
    assert!(fs::read(mount.join("kept")).expect("read") == content);
    let mut found = fs::read(mount.join("open")).expect("read");
    found[50..54].copy_from_slice(&content[50..54]);
    found[100_000..100_010].copy_from_slice(&content[100_000..100_010]);
    assert!(found == content, "what was not being written is as it was");
    fs::write(mount.join("new"), b"x").expect("work goes on");
    mount.unmount();
}
