//! Random operations on one file, compared with an in-memory model, like the classic `fsx`.

use crate::support::{
    ciphers,
    mounted::{Mount, Vault},
    random::Random,
    raw::Mapping,
    ready,
};
use crypto::integrity::Integrity;
use rustix::{
    fs::{Advice, FallocateFlags, OFlags, SeekFrom, copy_file_range, fadvise, fallocate, seek},
    io::Errno,
};
use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    num::NonZeroU64,
    os::unix::fs::{FileExt, OpenOptionsExt},
};

/// Chunk indices where the stored layout changes: group boundaries, and the second node page.
const EDGES: [u64; 6] = [1, 48, 112, 176, 48 + 64 * 63, 48 + 64 * 127];

/// A file in a mount, and its expected content.
struct Fsx<'v> {
    mount: Option<Mount<'v>>,
    file: Option<File>,
    model: Vec<u8>,
    random: Random,
    /// Maximum file size.
    max: u64,
    /// The most recent operations, for the failure report.
    log: VecDeque<String>,
}

impl<'v> Fsx<'v> {
    fn new(vault: &'v Vault, random: Random, max: u64) -> Fsx<'v> {
        let mount = vault.mount();
        let log = VecDeque::new();
        let mut fsx = Fsx { mount: Some(mount), file: None, model: Vec::new(), random, max, log };
        File::create(fsx.path()).expect("create");
        fsx.reopen();
        fsx
    }

    fn path(&self) -> std::path::PathBuf {
        self.mount.as_ref().expect("mounted").join("file")
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("open")
    }

    fn reopen(&mut self) {
        self.file = None;
        self.file = Some(OpenOptions::new().read(true).write(true).open(self.path()).expect("open"));
    }

    fn note(&mut self, what: String) {
        self.log.push_back(what);
        if self.log.len() > 40 {
            self.log.pop_front();
        }
    }

    /// A random offset: anywhere, near a layout boundary, or near the end of the file.
    fn offset(&mut self) -> u64 {
        let near = match self.random.below(4) {
            0 => self.random.one_of(&EDGES) * 4096,
            1 => self.model.len() as u64,
            _ => return self.random.below(self.max),
        };
        (near + self.random.below(16384)).saturating_sub(8192).min(self.max - 1)
    }

    fn range(&mut self) -> (u64, u64) {
        let offset = self.offset();
        let limit = if self.random.once_in(8) { 262_144 } else { 20_000 };
        let mut len = 1 + self.random.below(limit);
        let mut start = offset;
        if self.random.once_in(4) {
            start -= start % 4096;
            len = len.next_multiple_of(4096);
        }
        (start, len.min(self.max - start))
    }

    /// A random range inside the file, or `None` if it is empty.
    fn inner(&mut self) -> Option<(u64, u64)> {
        let (offset, len) = self.range();
        let size = self.model.len() as u64;
        (size > 0).then(|| (offset % size, len.min(size - offset % size)))
    }

    fn grow(&mut self, end: u64) {
        let end = end as usize;
        if end > self.model.len() {
            self.model.resize(end, 0);
        }
    }

    /// Compares the bytes read at `offset` with the model.
    fn compare(&self, how: &str, offset: u64, got: &[u8]) {
        let from = (offset as usize).min(self.model.len());
        let want = &self.model[from..(from + got.len()).min(self.model.len())];
        if let Some(at) = (0..got.len().max(want.len())).find(|&i| got.get(i) != want.get(i)) {
            let place = offset + at as u64;
            panic!(
                "{how}: byte {place} (chunk {}) is {:?}, not {:?}",
                place / 4096,
                got.get(at),
                want.get(at)
            );
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.read(),
            25..50 => self.write(),
            50..57 => self.map_read(),
            57..66 => self.map_write(),
            66..72 => self.truncate(),
            72..76 => self.punch(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            76..78 => self.punch(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            78..80 => self.punch(FallocateFlags::ZERO_RANGE),
            80..82 => self.reserve(),
            82..85 => self.copy(),
            85..89 => self.direct_read(),
            89..92 => self.seek(),
            92..94 => self.sync(),
            94..96 => self.forget(),
            _ => {
                self.note("reopen".into());
                self.reopen();
            }
        }
        let size = self.file().metadata().expect("stat").len();
        assert_eq!(size, self.model.len() as u64, "size after an operation");
    }

    fn read(&mut self) {
        let (offset, len) = self.range();
        self.note(format!("read {offset} {len}"));
        let mut got = vec![0x55; len as usize];
        let mut have = 0;
        loop {
            let n = self.file().read_at(&mut got[have..], offset + have as u64).expect("read");
            have += n;
            if n == 0 {
                break;
            }
        }
        self.compare("read", offset, &got[..have]);
        let want = (self.model.len() as u64).saturating_sub(offset).min(len);
        assert_eq!(have as u64, want, "bytes read at {offset}");
    }

    fn write(&mut self) {
        let (offset, len) = self.range();
        self.note(format!("write {offset} {len}"));
        let data = self.random.bytes(len as usize);
        self.file().write_all_at(&data, offset).expect("write");
        self.grow(offset + len);
        self.model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
    }

    fn map_read(&mut self) {
        let Some((offset, len)) = self.inner() else { return };
        self.note(format!("map and read {offset} {len}"));
        let skip = offset % 4096;
        let map = Mapping::new(self.file(), offset - skip, (skip + len) as usize, false).expect("map");
        let mut got = vec![0x55; len as usize];
        map.read(skip as usize, &mut got);
        self.compare("mapped read", offset, &got);
    }

    fn map_write(&mut self) {
        let Some((offset, len)) = self.inner() else { return };
        let sync = self.random.once_in(2);
        self.note(format!("map and write {offset} {len}, msync: {sync}"));
        let skip = offset % 4096;
        let map = Mapping::new(self.file(), offset - skip, (skip + len) as usize, true).expect("map");
        let data = self.random.bytes(len as usize);
        map.write(skip as usize, &data);
        self.model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        if sync {
            map.sync().expect("msync");
        }
    }

    fn truncate(&mut self) {
        let size = if self.random.once_in(12) { 0 } else { self.offset() };
        let closed = self.random.once_in(3);
        self.note(format!("truncate {} to {size}, closed: {closed}", self.model.len()));
        if closed {
            self.file = None;
            let file = OpenOptions::new().write(true).open(self.path()).expect("open");
            file.set_len(size).expect("truncate");
            drop(file);
            self.reopen();
        } else {
            self.file().set_len(size).expect("truncate");
        }
        self.model.resize(size as usize, 0);
    }

    fn punch(&mut self, flags: FallocateFlags) {
        let (offset, len) = self.range();
        self.note(format!("{flags:?} {offset} {len}"));
        fallocate(self.file(), flags, offset, len).expect("fallocate");
        if !flags.contains(FallocateFlags::KEEP_SIZE) {
            self.grow(offset + len);
        }
        let size = self.model.len();
        let end = ((offset + len) as usize).min(size);
        self.model[(offset as usize).min(end)..end].fill(0);
    }

    fn reserve(&mut self) {
        let (offset, len) = self.range();
        let keep = self.random.once_in(2);
        self.note(format!("reserve {offset} {len}, keep the size: {keep}"));
        let flags = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        fallocate(self.file(), flags, offset, len).expect("fallocate");
        if !keep {
            self.grow(offset + len);
        }
    }

    fn copy(&mut self) {
        let Some((from, len)) = self.inner() else { return };
        let to = self.offset();
        let len = len.min(self.max - to);
        if from < to + len && to < from + len {
            return;
        }
        self.note(format!("copy {from} to {to}, {len} bytes"));
        let (mut source, mut target, mut left) = (from, to, len as usize);
        while left > 0 {
            let copied =
                copy_file_range(self.file(), Some(&mut source), self.file(), Some(&mut target), left);
            let copied = copied.expect("copy_file_range");
            assert!(copied > 0, "copy_file_range stops early");
            left -= copied;
        }
        self.grow(to + len);
        self.model.copy_within(from as usize..(from + len) as usize, to as usize);
    }

    fn direct_read(&mut self) {
        let (offset, len) = self.range();
        let (offset, len) = (offset - offset % 4096, len.next_multiple_of(4096) as usize);
        self.note(format!("direct read {offset} {len}"));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let Ok(direct) = options.open(self.path()) else { return };
        let mut memory = vec![0x55; len + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let got = &mut memory[skip..skip + len];
        let n = direct.read_at(got, offset).expect("direct read");
        self.compare("direct read", offset, &memory[skip..skip + n]);
        assert!(n == len || offset + n as u64 >= self.model.len() as u64, "direct read: {n} of {len} bytes");
    }

    /// SEEK_DATA and SEEK_HOLE may report zeros as data, but never data as a hole.
    fn seek(&mut self) {
        let offset = self.offset();
        self.note(format!("seek {offset}"));
        let size = self.model.len() as u64;
        let zeros = |from: u64, to: u64| self.model[from as usize..to as usize].iter().all(|&b| b == 0);
        match seek(self.file(), SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => assert!(offset >= size || zeros(offset, size), "SEEK_DATA passes over data"),
            Ok(data) => {
                assert!((offset..size).contains(&data), "SEEK_DATA from {offset} gives {data} of {size}");
                assert!(zeros(offset, data), "SEEK_DATA passes over data");
            }
            Err(e) => panic!("SEEK_DATA: {e}"),
        }
        match seek(self.file(), SeekFrom::Hole(offset)) {
            Err(Errno::NXIO) => assert!(offset >= size, "SEEK_HOLE finds no end"),
            Ok(hole) => {
                assert!((offset..=size).contains(&hole), "SEEK_HOLE from {offset} gives {hole} of {size}");
                assert!(hole == size || self.model[hole as usize] == 0, "SEEK_HOLE shows data");
            }
            Err(e) => panic!("SEEK_HOLE: {e}"),
        }
    }

    fn sync(&mut self) {
        self.note("sync".into());
        match self.random.once_in(2) {
            true => self.file().sync_all().expect("fsync"),
            false => self.file().sync_data().expect("fdatasync"),
        }
    }

    /// Drops the kernel's cache, so that the next read reaches the mount.
    fn forget(&mut self) {
        self.note("forget the cache".into());
        self.file().sync_data().expect("fdatasync");
        fadvise(self.file(), 0, None::<NonZeroU64>, Advice::DontNeed).expect("fadvise");
    }

    fn remount(&mut self) {
        self.note("remount".into());
        self.file = None;
        self.mount = self.mount.take().map(Mount::remount);
        self.reopen();
        self.check();
    }

    fn check(&self) {
        let got = std::fs::read(self.path()).expect("read it all");
        self.compare("whole file", 0, &got);
        assert_eq!(got.len(), self.model.len(), "length of the whole file");
    }
}

/// Prints the most recent operations if the test fails.
impl Drop for Fsx<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in &self.log {
                crate::support::say(format_args!("  {line}"));
            }
        }
    }
}

/// Performs `steps` operations on a file of at most `max` bytes, with `remounts` remounts in between.
fn exercise(vault: &Vault, random: Random, max: u64, steps: u64, remounts: u64) {
    let mut fsx = Fsx::new(vault, random, max);
    for step in 1..=steps {
        fsx.step();
        if step % (steps / remounts) == 0 {
            fsx.remount();
        }
    }
    if let (None, Some(mount)) = (fsx.file.take(), fsx.mount.take()) {
        mount.unmount();
    }
}

#[test]
fn a_hundred_thousand_operations() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mut random = Random::new("fsx, 100,000");
    for (max, steps) in [(20_000, 20_000), (260_000, 40_000), (900_000, 30_000), (36 << 20, 10_000)] {
        exercise(&vault, Random::from_seed(random.next()), max, steps, 5);
    }
}

#[test]
fn every_cipher_and_integrity_function() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("fsx, ciphers");
    for (cipher, integrity) in ciphers().into_iter().zip(Integrity::ALL.into_iter().cycle()) {
        let integrity = integrity.name();
        let vault = Vault::with(cipher, &["--integrity", integrity]);
        exercise(&vault, Random::from_seed(random.next()), 1 << 20, 2_000, 4);
    }
}
