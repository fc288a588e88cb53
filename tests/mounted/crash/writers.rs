//! Programs that call fsync, and know what a kill may have left of their work.

use crate::support::random::Random;
use rustix::fs::{FallocateFlags, fallocate};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const CHUNK: usize = 4096;

/// One kind of workload, on its own files.
pub trait Writer: Send {
    /// Performs one step and makes it durable. An error means that the mount is gone.
    fn step(&mut self) -> io::Result<()>;
    /// Asserts that everything durable is present, and restarts from the state found.
    fn check(&mut self);
}

/// Creates all kinds of writers, each in a new subdirectory of `dir`.
pub fn all(dir: &Path, random: &mut Random) -> Vec<Box<dyn Writer>> {
    fs::create_dir(dir).expect("directory");
    let mut seed = || Random::from_seed(random.next());
    vec![
        Box::new(Appender { path: dir.join("log"), sure: Vec::new(), tried: Vec::new(), random: seed() }),
        Box::new(Overwriter::new(dir.join("table"), seed())),
        Box::new(Streamer { path: dir.join("stream"), sure: 0, tried: 0 }),
        Box::new(Replacer { dir: dir.to_path_buf(), sure: 0, tried: 0 }),
        Box::new(Stepper { path: dir.join("steps"), states: vec![Vec::new()], random: seed() }),
        Box::new(Maker { dir: dir.to_path_buf(), sure: 0, random: seed() }),
    ]
}

/// Appends to a log, syncing after each record.
struct Appender {
    path: PathBuf,
    sure: Vec<u8>,
    tried: Vec<u8>,
    random: Random,
}

impl Writer for Appender {
    fn step(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        for _ in 0..5 {
            let limit = if self.random.once_in(6) { 300_000 } else { 6_000 };
            let len = 1 + self.random.below(limit) as usize;
            let record = self.random.bytes(len);
            self.tried.extend(&record);
            file.write_all(&record)?;
            file.sync_data()?;
            self.sure.clone_from(&self.tried);
        }
        if self.sure.len() > 3 << 20 {
            drop(file);
            self.tried.clear();
            self.sure.clear();
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn check(&mut self) {
        let found = fs::read(&self.path).or_else(|e| {
            if e.kind() == io::ErrorKind::NotFound && self.sure.is_empty() { Ok(Vec::new()) } else { Err(e) }
        });
        let found = found.expect("read the log");
        assert!(found.len() >= self.sure.len(), "log: {} bytes of {} synced", found.len(), self.sure.len());
        // The removal may or may not have happened: nothing was durable.
        if !self.sure.is_empty() {
            // Unsynced bytes may be present, zero, or cut off.
            let right =
                |i: usize| self.tried.get(i) == Some(&found[i]) || i >= self.sure.len() && found[i] == 0;
            let wrong = (0..found.len()).find(|&i| !right(i));
            if let Some(at) = wrong {
                let zeros = found[at..].iter().take_while(|&&b| b == 0).count();
                panic!(
                    "log: byte {at} of {} is wrong ({zeros} zeros from there), {} are synced, {} written",
                    found.len(),
                    self.sure.len(),
                    self.tried.len()
                );
            }
        }
        self.sure.clone_from(&found);
        self.tried = found;
    }
}

/// Overwrites chunks of a table, several times between two syncs.
struct Overwriter {
    path: PathBuf,
    /// For each chunk, its durable version and the last version written.
    versions: Vec<(u32, u32)>,
    random: Random,
    made: bool,
}

impl Overwriter {
    fn new(path: PathBuf, random: Random) -> Overwriter {
        Overwriter { path, versions: vec![(0, 0); 120], random, made: false }
    }

    fn chunk(index: usize, version: u32) -> Vec<u8> {
        Random::from_seed((index as u64) << 32 | u64::from(version)).bytes(CHUNK)
    }
}

impl Writer for Overwriter {
    fn step(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        if !self.made {
            for index in 0..self.versions.len() {
                file.write_all_at(&Overwriter::chunk(index, 0), (index * CHUNK) as u64)?;
            }
            file.sync_all()?;
            self.made = true;
        }
        let count = 1 + self.random.below(12);
        let mut touched = Vec::new();
        for _ in 0..count {
            let index = self.random.below(self.versions.len() as u64) as usize;
            self.versions[index].1 += 1;
            file.write_all_at(&Overwriter::chunk(index, self.versions[index].1), (index * CHUNK) as u64)?;
            touched.push(index);
        }
        file.sync_all()?;
        touched.into_iter().for_each(|index| self.versions[index].0 = self.versions[index].1);
        Ok(())
    }

    fn check(&mut self) {
        if !self.made {
            return;
        }
        let found = fs::read(&self.path).expect("read the table");
        assert_eq!(found.len(), self.versions.len() * CHUNK, "size of the table");
        for (index, (sure, tried)) in self.versions.iter_mut().enumerate() {
            let bytes = &found[index * CHUNK..][..CHUNK];
            let version = (*sure..=*tried).find(|v| Overwriter::chunk(index, *v) == bytes);
            let version =
                version.unwrap_or_else(|| panic!("chunk {index} is no version of {sure} to {tried}"));
            (*sure, *tried) = (version, version);
        }
    }
}

/// Repeatedly writes a file of several stripes sequentially, syncing after each pass.
struct Streamer {
    path: PathBuf,
    /// The last durable pass, and the last one started; 0 if none.
    sure: u32,
    tried: u32,
}

impl Streamer {
    const CHUNKS: u64 = 1300;
    /// Chunks per write.
    const PIECE: u64 = 250;

    fn chunk(index: u64, round: u32) -> Vec<u8> {
        (index << 32 | u64::from(round)).to_be_bytes().repeat(CHUNK / 8)
    }
}

impl Writer for Streamer {
    fn step(&mut self) -> io::Result<()> {
        self.tried += 1;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        for first in (0..Streamer::CHUNKS).step_by(Streamer::PIECE as usize) {
            let chunks = first..Streamer::CHUNKS.min(first + Streamer::PIECE);
            let bytes: Vec<u8> = chunks.flat_map(|index| Streamer::chunk(index, self.tried)).collect();
            // The kernel may split one write into several requests, at page boundaries of this memory. A
            // kill may come between two of them, so align the buffer to keep every request from ending
            // inside a chunk.
            let mut room = vec![0; bytes.len() + CHUNK];
            let aligned = room.as_ptr().align_offset(CHUNK);
            room[aligned..aligned + bytes.len()].copy_from_slice(&bytes);
            file.write_all_at(&room[aligned..aligned + bytes.len()], first * CHUNK as u64)?;
        }
        file.sync_all()?;
        self.sure = self.tried;
        Ok(())
    }

    fn check(&mut self) {
        let found = match fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.sure == 0 => Vec::new(),
            found => found.expect("read the stream"),
        };
        assert!(
            self.sure == 0 || found.len() as u64 == Streamer::CHUNKS * CHUNK as u64,
            "size of the stream"
        );
        for (index, bytes) in found.as_chunks::<CHUNK>().0.iter().enumerate() {
            // Before the first sync, zeros are allowed.
            let known = |round: u32| match round {
                0 => *bytes == [0; CHUNK],
                round => bytes[..] == Streamer::chunk(index as u64, round),
            };
            assert!((self.sure..=self.tried).any(known), "chunk {index} of the stream is of no round");
        }
    }
}

/// Replaces a document safely: writes a new file, syncs it and renames it over the old one.
struct Replacer {
    dir: PathBuf,
    sure: u64,
    tried: u64,
}

impl Replacer {
    fn content(version: u64) -> Vec<u8> {
        let mut random = Random::from_seed(version);
        let len = random.below(30_000) as usize;
        [&version.to_le_bytes()[..], &random.bytes(len)].concat()
    }
}

impl Writer for Replacer {
    fn step(&mut self) -> io::Result<()> {
        self.tried += 1;
        let new = self.dir.join("document.new");
        let mut file = File::create(&new)?;
        file.write_all(&Replacer::content(self.tried))?;
        file.sync_all()?;
        drop(file);
        fs::rename(new, self.dir.join("document"))?;
        File::open(&self.dir)?.sync_all()?;
        self.sure = self.tried;
        Ok(())
    }

    fn check(&mut self) {
        if self.sure == 0 {
            return;
        }
        let found = fs::read(self.dir.join("document")).expect("read the document");
        let version = u64::from_le_bytes(found[..8].try_into().expect("a version"));
        assert!((self.sure..=self.tried).contains(&version), "version {version}, synced {}", self.sure);
        assert!(found == Replacer::content(version), "the document is torn");
        self.sure = version;
    }
}

/// One change at a time, each synced: a kill leaves the state before or after it.
struct Stepper {
    path: PathBuf,
    states: Vec<Vec<u8>>,
    random: Random,
}

impl Stepper {
    fn place(&mut self, size: usize) -> (usize, usize) {
        let start = self.random.below(size as u64) as usize;
        // Stay within one chunk, so that the change is atomic.
        let end = (start + 1 + self.random.below(CHUNK as u64) as usize).min(start / CHUNK * CHUNK + CHUNK);
        (start, end)
    }
}

impl Writer for Stepper {
    fn step(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        let mut next = self.states.last().expect("a state").clone();
        match self.random.below(4) {
            0 => {
                let size = self.random.below(500_000);
                next.resize(size as usize, 0);
                self.states.push(next);
                file.set_len(size)?;
            }
            1 if !next.is_empty() => {
                let (start, end) = self.place(next.len());
                let end = end.min(next.len());
                next[start..end].fill(0);
                self.states.push(next);
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, hole, start as u64, (end - start) as u64)?;
            }
            _ => {
                let (start, end) = self.place(next.len() + 10_000);
                let data = self.random.bytes(end - start);
                next.resize(next.len().max(end), 0);
                next[start..end].copy_from_slice(&data);
                self.states.push(next);
                file.write_all_at(&data, start as u64)?;
            }
        }
        file.sync_all()?;
        self.states.drain(..self.states.len() - 1);
        Ok(())
    }

    fn check(&mut self) {
        let found = match fs::read(&self.path) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.states[0].is_empty() => Vec::new(),
            Err(e) => panic!("read the steps: {e}"),
        };
        let sizes: Vec<usize> = self.states.iter().map(Vec::len).collect();
        assert!(self.states.contains(&found), "{} bytes are none of the states of {sizes:?}", found.len());
        self.states = vec![found];
    }
}

/// Creates files in new directories, some with long names. Each exists once it was synced.
struct Maker {
    dir: PathBuf,
    sure: u32,
    random: Random,
}

impl Maker {
    fn path(&self, number: u32) -> PathBuf {
        let long = if number.is_multiple_of(3) { "long ".repeat(50) } else { String::new() };
        self.dir.join(format!("made {}", number % 8)).join(format!("{number} {long}"))
    }
}

impl Writer for Maker {
    fn step(&mut self) -> io::Result<()> {
        let path = self.path(self.sure);
        fs::create_dir_all(path.parent().expect("parent"))?;
        let mut file = File::create(path)?;
        file.write_all(&self.sure.to_le_bytes())?;
        let tail = self.random.below(9_000) as usize;
        file.write_all(&vec![7; tail])?;
        file.sync_all()?;
        self.sure += 1;
        Ok(())
    }

    fn check(&mut self) {
        for number in 0..self.sure {
            let found = fs::read(self.path(number)).unwrap_or_else(|e| panic!("file {number}: {e}"));
            assert!(found.starts_with(&number.to_le_bytes()), "content of file {number}");
        }
    }
}
