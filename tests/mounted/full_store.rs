//! A store that runs out of space: the program gets the error from its write, and keeps every byte that
//! a write accepted.

use crate::support::{
    disk::{Disk, Ext4},
    mounted::{Mount, Vault},
    ordinary::disk_of_ordinary_user,
    random::Random,
    raw::close,
    ready_as_root,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
};

/// Number of files written concurrently.
const FILES: usize = 3;
const MIB: usize = 1 << 20;
/// Cache modes in which the mount answers a write. With write-back the kernel does.
const CACHES: [&str; 3] = ["auto", "kernel", "direct"];
/// Request sizes: streaming writes, small writes, and writes that end inside a chunk.
const REQUESTS: [usize; 3] = [MIB, 4096, 10_000];

/// A file, and its expected content.
struct Written {
    name: String,
    bytes: Vec<u8>,
}

impl Written {
    /// Writes `bytes` at `offset`; a write may be short. Returns false if there is no space.
    fn write(&mut self, file: &File, bytes: &[u8], offset: usize) -> bool {
        let taken = match file.write_at(bytes, offset as u64) {
            Ok(taken) => taken,
            Err(e) if e.kind() == ErrorKind::StorageFull => 0,
            Err(e) => panic!("{} at {offset}: {e}", self.name),
        };
        let end = self.bytes.len().max(offset + taken);
        self.bytes.resize(end, 0);
        self.bytes[offset..offset + taken].copy_from_slice(&bytes[..taken]);
        taken > 0
    }

    fn check(&self, mount: &Mount, when: &str) {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let file = File::open(mount.join(&self.name));
        let read = file.and_then(|mut file| file.read_to_end(&mut bytes));
        read.unwrap_or_else(|e| panic!("{when}: {}: {e}", self.name));
        assert_eq!(bytes.len(), self.bytes.len(), "{when}: {}: its length", self.name);
        let differs = bytes.iter().zip(&self.bytes).position(|(there, written)| there != written);
        assert_eq!(differs, None, "{when}: {}: the first byte that differs", self.name);
    }
}

fn create(mount: &Mount, name: String) -> (Written, File) {
    let mut options = OpenOptions::new();
    let file = options.create_new(true).read(true).write(true).open(mount.join(&name)).expect("create");
    (Written { name, bytes: Vec::new() }, file)
}

fn sync_and_close(files: Vec<(Written, File)>, when: &str) -> Vec<Written> {
    let each = |(written, file): (Written, File)| {
        file.sync_all().unwrap_or_else(|e| panic!("{when}: {}: fsync: {e}", written.name));
        close(file).unwrap_or_else(|e| panic!("{when}: {}: close: {e}", written.name));
        written
    };
    files.into_iter().map(each).collect()
}

/// Appends to all files concurrently until none of them has space.
fn fill(files: &mut [(Written, File)], request: usize, random: &mut Random) {
    std::thread::scope(|scope| {
        for (written, file) in files {
            let mut random = Random::from_seed(random.next());
            scope.spawn(move || while written.write(file, &random.bytes(request), written.bytes.len()) {});
        }
    });
}

/// Fills a store with at least `room` bytes of space, overwrites existing data, frees some space and
/// continues.
fn write_to_a_full_store(store: &Path, room: usize, cache: &str, request: usize) {
    let told = format!("--cache {cache}, {request} bytes at a time, {}", store.display());
    let mut random = Random::new(&told);
    let vault = Vault::at(&store.join("vault"), "aes-256-ctr");
    let mount = vault.mount_with(&["--cache", cache]);

    let mut files = Vec::from_iter((0..FILES).map(|number| create(&mount, number.to_string())));
    fill(&mut files, request, &mut random);
    let when = &format!("{told}: full");
    assert!(files.iter().map(|(written, _)| written.bytes.len()).sum::<usize>() > room, "{when}");
    files.iter().for_each(|(written, _)| written.check(&mount, when));
    let files = sync_and_close(files, when);
    let mount = mount.remount();
    files.iter().for_each(|written| written.check(&mount, &format!("{when}, remounted")));

    let when = &format!("{told}: overwritten");
    let open = |written: Written| {
        let file = OpenOptions::new().read(true).write(true).open(mount.join(&written.name)).expect("open");
        (written, file)
    };
    let mut files = Vec::from_iter(files.into_iter().map(open));
    for (written, file) in &mut files {
        for _ in 0..40 {
            let bytes = random.bytes(request);
            let offset = random.below((written.bytes.len() - request) as u64) as usize;
            assert!(written.write(file, &bytes, offset), "{when}: {}: no room at {offset}", written.name);
        }
    }
    let mut files = sync_and_close(files, when);
    files.iter().for_each(|written| written.check(&mount, when));

    let when = &format!("{told}: freed");
    fs::remove_file(mount.join(files.remove(0).name)).expect("remove");
    // The space is free once the kernel has sent the last release.
    let mut more = vec![create(&mount, "more".into())];
    while more[0].0.bytes.len() < room / FILES / 2 {
        fill(&mut more, request, &mut random);
    }
    files.extend(sync_and_close(more, when));
    let mount = mount.remount();
    files.iter().for_each(|written| written.check(&mount, when));
    mount.unmount();
}

#[test]
fn memory_that_runs_full_keeps_what_writes_took() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    // Two request sizes for each cache mode.
    for shift in [0, 1] {
        for (nth, cache) in CACHES.into_iter().enumerate() {
            let disk = Disk::new("100m");
            write_to_a_full_store(disk.0.path(), 90 * MIB, cache, REQUESTS[(nth + shift) % REQUESTS.len()]);
        }
    }
}

#[test]
fn an_ordinary_users_disk_that_runs_full_keeps_what_writes_took() {
    let Some(disk) = disk_of_ordinary_user("100m", 300) else { return };
    for (cache, request) in CACHES.into_iter().zip(REQUESTS) {
        let store = disk.join(cache);
        fs::create_dir(&store).expect("directory");
        write_to_a_full_store(&store, 90 * MIB, cache, request);
        fs::remove_dir_all(&store).expect("remove");
    }
}

#[test]
fn a_disk_that_runs_full_keeps_what_writes_took() {
    if !ready_as_root(&["mkfs.ext4", "losetup"]) {
        return;
    }
    for cache in CACHES {
        for request in REQUESTS {
            let place = tempfile::TempDir::with_prefix("warpcrypt-full-").expect("directory");
            let disk = Ext4::at(&place.path().join("image"), &place.path().join("disk"));
            write_to_a_full_store(&disk.0, 5 * MIB, cache, request);
        }
    }
}
