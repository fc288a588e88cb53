//! Programs at work in a directory, each on its own files.

use super::{
    history::{Clock, Crash, Found, History},
    table::{Kind, Tally},
};
use crate::support::random::Random;
use rustix::fs::OFlags;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const MIB: u64 = 1 << 20;

/// A program.
pub trait Work: Send {
    /// Performs one step of the workload.
    fn step(&mut self) -> io::Result<()>;
    /// Compares all files with what the crash may have left, and continues from there if `goes_on`.
    fn settle(&mut self, crash: &Crash, goes_on: bool, tally: &mut Tally);
}

/// Creates all programs, each in a new directory below `root`.
pub fn all(root: &Path, random: &mut Random, clock: &Clock) -> io::Result<Vec<Box<dyn Work>>> {
    let tasks: [(&str, Task); 7] = [
        ("appended", append),
        ("streamed", stream),
        ("overwritten", overwrite),
        ("direct", overwrite_directly),
        ("shared", share),
        ("shaped", shape),
        ("small", make),
    ];
    let mut desk = |(name, number)| {
        let dir = root.join(name);
        fs::create_dir(&dir)?;
        let random = Random::from_seed(random.next());
        io::Result::Ok(Desk { dir, number, made: 0, random, clock: clock.clone() })
    };
    let mut all: Vec<Box<dyn Work>> = vec![Box::new(Replacer {
        desk: desk(("replaced", 1))?,
        temporary: Vec::new(),
        versions: Vec::new(),
    })];
    for ((name, task), number) in tasks.into_iter().zip(2..) {
        all.push(Box::new(Worker { desk: desk((name, number))?, files: Vec::new(), task }));
    }
    File::open(root)?.sync_all()?;
    Ok(all)
}

/// Runs all programs, one thread each, until `end` returns. `end` must set the flag that it receives
/// before it kills anything. Returns errors that occurred before the flag was set.
pub fn drive(works: &mut [Box<dyn Work>], end: impl FnOnce(&AtomicBool)) -> Vec<String> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let run = |work: &mut Box<dyn Work>| {
            while !over.load(Ordering::Acquire) {
                if let Err(e) = work.step() {
                    return (!over.load(Ordering::Acquire)).then(|| e.to_string());
                }
            }
            None
        };
        let threads: Vec<_> = works.iter_mut().map(|work| scope.spawn(move || run(work))).collect();
        end(&over);
        over.store(true, Ordering::Release);
        threads.into_iter().filter_map(|t| t.join().expect("a program")).collect()
    })
}

/// The resources of a program.
struct Desk {
    dir: PathBuf,
    number: u32,
    made: u32,
    random: Random,
    clock: Clock,
}

impl Desk {
    /// Creates a file and appends it to `files`.
    fn create(&mut self, files: &mut Vec<History>, name: &str, flags: OFlags) -> io::Result<File> {
        self.made += 1;
        let path = self.dir.join(format!("{} {name}", self.made));
        files.push(History::new(path.clone(), self.number << 24 | self.made, &self.clock));
        options(flags).create_new(true).open(path)
    }

    fn sync_dir(&mut self, files: &mut [History]) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()?;
        let now = self.clock.now();
        files.iter_mut().for_each(|f| f.directory_synced(now));
        Ok(())
    }

    /// Removes files until `limit` remain, and occasionally confirms it with a sync.
    fn keep(&mut self, files: &mut [History], limit: usize) -> io::Result<()> {
        let count = files.iter().filter(|f| f.is_wanted()).count();
        if count > limit {
            for file in files.iter_mut().filter(|f| f.is_wanted()).take(count - limit) {
                file.removing(&self.clock);
                fs::remove_file(&file.path)?;
            }
            if self.random.once_in(2) {
                self.sync_dir(files)?;
            }
        }
        Ok(())
    }
}

fn options(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits() as i32);
    options
}

type Task = fn(&mut Desk, &mut Vec<History>) -> io::Result<()>;

struct Worker {
    desk: Desk,
    files: Vec<History>,
    task: Task,
}

impl Work for Worker {
    fn step(&mut self) -> io::Result<()> {
        (self.task)(&mut self.desk, &mut self.files)
    }

    fn settle(&mut self, crash: &Crash, goes_on: bool, tally: &mut Tally) {
        settle(&mut self.files, crash, goes_on, tally);
    }
}

fn settle(files: &mut Vec<History>, crash: &Crash, goes_on: bool, tally: &mut Tally) {
    let mut faulty = Vec::new();
    let settled = |file: &mut History| match file.check(crash, tally) {
        _ if !goes_on => true,
        Found::Content(found) => {
            file.rebase(found);
            true
        }
        Found::Nothing => false,
        Found::Faulty => {
            faulty.push(file.path.clone());
            false
        }
    };
    files.retain_mut(settled);
    // Remove faulty files so that each is counted only once.
    faulty.iter().for_each(|path| _ = fs::remove_file(path));
}

/// A log: appends records, syncing every few of them.
fn append(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    let file = match files.last().filter(|f| f.is_wanted() && f.len() < 3 * MIB) {
        Some(last) => options(OFlags::APPEND).open(&last.path)?,
        None => {
            let file = desk.create(files, "log", OFlags::APPEND)?;
            files.last_mut().expect("a file").sync(&file, false, &desk.clock)?;
            desk.sync_dir(files)?;
            desk.keep(files, 2)?;
            file
        }
    };
    let log = files.last_mut().expect("a file");
    for _ in 0..5 {
        for _ in 0..=desk.random.below(3) {
            let limit = if desk.random.once_in(6) { 300_000 } else { 6_000 };
            log.write(&file, log.len(), 1 + desk.random.below(limit), &desk.clock)?;
        }
        log.sync(&file, true, &desk.clock)?;
    }
    Ok(())
}

/// A long file, written sequentially and rarely synced.
fn stream(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    let file = desk.create(files, "stream", OFlags::empty())?;
    let stream = files.last_mut().expect("a file");
    let size = MIB + desk.random.below(11 * MIB);
    while stream.len() < size {
        let piece = if desk.random.once_in(2) { 128 << 10 } else { 1 + desk.random.below(MIB) };
        stream.write(&file, stream.len(), piece, &desk.clock)?;
        if desk.random.once_in(16) {
            stream.sync(&file, true, &desk.clock)?;
        }
    }
    if desk.random.once_in(2) {
        stream.sync(&file, false, &desk.clock)?;
        drop(file);
        desk.sync_dir(files)?;
    }
    desk.keep(files, 2)
}

/// The newest file, created with `size` bytes if there is none.
fn table(desk: &mut Desk, files: &mut Vec<History>, size: u64, flags: OFlags) -> io::Result<File> {
    if let Some(last) = files.last() {
        return options(flags).open(&last.path);
    }
    let file = desk.create(files, "table", flags)?;
    let table = files.last_mut().expect("a file");
    table.write(&file, 0, size, &desk.clock)?;
    table.sync(&file, false, &desk.clock)?;
    desk.sync_dir(files)?;
    Ok(file)
}

/// Overwrites parts of a table, several times between two syncs.
fn overwrite(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    const SIZE: u64 = 300 * 4096;
    let file = table(desk, files, SIZE, OFlags::empty())?;
    if files[0].len() < SIZE {
        files[0].set_len(&file, SIZE, &desk.clock)?;
    }
    overwrite_part(&mut desk.random, &mut files[0], &file, &desk.clock)
}

fn overwrite_part(random: &mut Random, table: &mut History, file: &File, clock: &Clock) -> io::Result<()> {
    let part = table.part.clone().unwrap_or(0..table.len());
    for _ in 0..=random.below(12) {
        let len = if random.once_in(5) { 1 + random.below(60_000) } else { 1 + random.below(4096) };
        let at = part.start + random.below(part.end - part.start - len);
        let whole = random.once_in(2) && at / 4096 * 4096 >= part.start;
        let (at, len) = if whole { (at / 4096 * 4096, len.next_multiple_of(4096)) } else { (at, len) };
        table.write(file, at, len.min(part.end - at), clock)?;
    }
    table.sync(file, random.once_in(2), clock)
}

/// As `overwrite`, but with O_DIRECT and a growing table.
fn overwrite_directly(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    if files.last().is_some_and(|f| f.len() > 4 * MIB) {
        desk.keep(files, 0)?;
        desk.sync_dir(files)?;
        // The table may have survived the last crash: start a new file.
        desk.create(files, "table", OFlags::DIRECT)?;
    }
    let file = table(desk, files, MIB, OFlags::DIRECT)?;
    let table = files.last_mut().expect("a file");
    for _ in 0..=desk.random.below(8) {
        let at = desk.random.below(table.len() / 4096 + 1) * 4096;
        let longest = if at == table.len() { 32 } else { (table.len() - at) / 4096 };
        let len = (1 + desk.random.below(32)).min(longest) * 4096;
        table.write(&file, at, len, &desk.clock)?;
    }
    table.sync(&file, true, &desk.clock)?;
    desk.sync_dir(files)
}

/// Two programs share a table. Each overwrites and syncs its own half; the border between the halves is
/// inside a chunk.
fn share(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    const SIZE: u64 = 250 * 4096;
    const MIDDLE: u64 = SIZE / 2 + 1000;
    if files.len() != 2 || files[0].len() < SIZE {
        files.iter().for_each(|f| _ = fs::remove_file(&f.path));
        files.clear();
        let file = desk.create(files, "shared", OFlags::empty())?;
        desk.made += 1;
        files.push(History::new(files[0].path.clone(), desk.number << 24 | desk.made, &desk.clock));
        let parts = [0..MIDDLE, MIDDLE..SIZE];
        files.iter_mut().zip(&parts).for_each(|(half, part)| half.part = Some(part.clone()));
        for (half, range) in files.iter_mut().zip(parts) {
            half.write(&file, range.start, range.end - range.start, &desk.clock)?;
            half.sync(&file, false, &desk.clock)?;
        }
        desk.sync_dir(files)?;
    }
    let path = files[0].path.clone();
    let clock = &desk.clock;
    let mut seed = || Random::from_seed(desk.random.next());
    let randoms = [seed(), seed()];
    thread::scope(|scope| {
        let halves = files.iter_mut().zip(randoms).map(|(half, mut random)| {
            let path = &path;
            scope.spawn(move || {
                let file = options(OFlags::empty()).open(path)?;
                (0..3).try_for_each(|_| overwrite_part(&mut random, half, &file, clock))
            })
        });
        let threads: Vec<_> = halves.collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a program"))
    })
}

/// Truncates, extends, fills and punches holes in one file.
fn shape(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    let file = table(desk, files, 100_000, OFlags::empty())?;
    let shaped = &mut files[0];
    let random = &mut desk.random;
    for _ in 0..=random.below(4) {
        let len = shaped.len();
        match random.below(5) {
            0 => shaped.set_len(&file, random.below(600_000), &desk.clock)?,
            1 => shaped.set_len(&file, random.below(len + 1), &desk.clock)?,
            2 if len > 0 => {
                let start = random.below(len);
                let end = (start + 1 + random.below(40_000)).min(len);
                shaped.punch(&file, start..end, &desk.clock)?;
            }
            3 => shaped.write(&file, len, 1 + random.below(30_000), &desk.clock)?,
            _ => shaped.write(&file, random.below(len + 5_000), 1 + random.below(9_000), &desk.clock)?,
        }
    }
    shaped.sync(&file, random.once_in(2), &desk.clock)
}

/// Many small files, some of them synced. A synced file's name is durable only once the directory is
/// synced too.
fn make(desk: &mut Desk, files: &mut Vec<History>) -> io::Result<()> {
    for _ in 0..=desk.random.below(10) {
        let name = if desk.random.once_in(4) { "long ".repeat(45) } else { "file".into() };
        let file = desk.create(files, &name, OFlags::empty())?;
        let made = files.last_mut().expect("a file");
        let limit = if desk.random.once_in(8) { 60_000 } else { 6_000 };
        for _ in 0..desk.random.below(3) {
            made.write(&file, made.len(), 1 + desk.random.below(limit), &desk.clock)?;
        }
        if desk.random.once_in(2) {
            made.sync(&file, false, &desk.clock)?;
        }
    }
    desk.sync_dir(files)?;
    desk.keep(files, 150)
}

/// Replaces a document: writes a new file, syncs it and renames it over the old one.
struct Replacer {
    desk: Desk,
    temporary: Vec<History>,
    versions: Vec<Version>,
}

struct Version {
    content: Vec<u8>,
    /// When the rename began, and when it was confirmed.
    begun: u64,
    sure: Option<u64>,
}

impl Replacer {
    fn document(&self) -> PathBuf {
        self.desk.dir.join("document")
    }
}

impl Work for Replacer {
    fn step(&mut self) -> io::Result<()> {
        self.desk.keep(&mut self.temporary, 2)?;
        let file = self.desk.create(&mut self.temporary, "new", OFlags::empty())?;
        let new = self.temporary.last_mut().expect("a file");
        for _ in 0..=self.desk.random.below(4) {
            new.write(&file, new.len(), 1 + self.desk.random.below(30_000), &self.desk.clock)?;
        }
        new.sync(&file, false, &self.desk.clock)?;
        drop(file);
        let begun = self.desk.clock.now();
        new.removing(&self.desk.clock);
        let from = new.path.clone();
        self.versions.push(Version { content: new.content(), begun, sure: None });
        fs::rename(from, self.document())?;
        if self.desk.random.once_in(3) {
            return Ok(());
        }
        // The absence of the old name is not checked: btrfs may bring it back along with whatever was
        // synced.
        self.desk.sync_dir(&mut [])?;
        self.versions.last_mut().expect("a version").sure = Some(self.desk.clock.now());
        Ok(())
    }

    fn settle(&mut self, crash: &Crash, goes_on: bool, tally: &mut Tally) {
        settle(&mut self.temporary, crash, goes_on, tally);
        let before = |time: u64| time <= crash.at;
        let sure = self.versions.iter().rposition(|v| v.sure.is_some_and(before));
        let allowed = &self.versions[sure.unwrap_or(0)..];
        let allowed = &allowed[..allowed.iter().take_while(|v| before(v.begun)).count()];
        tally.files += 1;
        tally.writes += u64::from(sure.is_some());
        let found = match fs::read(self.document()) {
            Ok(found) if allowed.iter().any(|v| v.content == found) => Some(found),
            Ok(found) => {
                let versions = self.versions.len();
                let what = format!("the document has {} bytes, of none of {versions} versions", found.len());
                tally.fault(Kind::Mixed, found.len(), what);
                None
            }
            Err(e) if e.kind() == ErrorKind::NotFound && sure.is_none() => None,
            Err(e) => {
                tally.fault(Kind::Unreadable, 0, format!("the document: {e}"));
                None
            }
        };
        if goes_on {
            if found.is_none() {
                let _ = fs::remove_file(self.document());
            }
            let version = |content| Version { content, begun: 0, sure: Some(0) };
            self.versions = found.map(version).into_iter().collect();
        }
    }
}
