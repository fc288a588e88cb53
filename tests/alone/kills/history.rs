//! The changes that a program made to one file, how many of them were confirmed, and the states that a
//! crash may therefore leave.
//!
//! All written data consists of 16-byte words, each identifying its write and its position in the file.
//! A byte that belongs elsewhere, or to a write that was replaced long ago, can therefore be recognised.

use super::table::{Kind, Tally};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind},
    ops::{Range, RangeInclusive},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const CHUNK: usize = 4096;
const WORD: u64 = 16;

/// Timestamps events with the length of a block log, or 0 if there is no log.
#[derive(Clone)]
pub struct Clock(pub Option<PathBuf>);

impl Clock {
    pub fn now(&self) -> u64 {
        self.0.as_ref().map_or(0, |log| fs::metadata(log).expect("the block log").len())
    }
}

/// A crash.
pub struct Crash {
    /// Changes that began later than this cannot be present.
    pub at: u64,
    /// Whether sectors of one page may differ in age.
    pub torn: bool,
}

impl Crash {
    /// Crash of a process: nothing that the kernel received is lost.
    pub const KILL: Crash = Crash { at: u64::MAX, torn: false };
}

enum Change {
    Write(Range<u64>),
    Zero(Range<u64>),
    Size(u64),
}

struct Event {
    begun: u64,
    tag: u64,
    change: Change,
}

/// The history of one file under one name.
pub struct History {
    pub path: PathBuf,
    /// The range that this history covers, if not all; another program writes the rest.
    pub part: Option<Range<u64>>,
    id: u32,
    begun: u64,
    /// When its name was confirmed durable.
    named: Option<u64>,
    /// When its removal began, and when the removal was confirmed.
    removing: Option<u64>,
    removed: Option<u64>,
    base: Vec<u8>,
    events: Vec<Event>,
    /// For each sync, the number of events that it confirmed, and when it completed.
    syncs: Vec<(usize, u64)>,
    written: u32,
    len: u64,
}

/// Faults of a file: for each kind, the number of bytes and the first occurrence.
#[derive(Default)]
struct Faults(BTreeMap<Kind, (usize, String)>);

impl Faults {
    fn add(&mut self, kind: Kind, bytes: usize, what: String) {
        self.0.entry(kind).or_insert((0, what)).0 += bytes;
    }
}

/// State of a file after a crash.
pub enum Found {
    Content(Vec<u8>),
    Nothing,
    /// The file is wrong, which was reported.
    Faulty,
}

impl History {
    /// A file about to be created, with a unique `id`.
    pub fn new(path: PathBuf, id: u32, clock: &Clock) -> History {
        History {
            path,
            part: None,
            id,
            begun: clock.now(),
            named: None,
            removing: None,
            removed: None,
            base: Vec::new(),
            events: Vec::new(),
            syncs: Vec::new(),
            written: 0,
            len: 0,
        }
    }

    /// Size after all events.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no removal was begun.
    pub fn is_wanted(&self) -> bool {
        self.removing.is_none()
    }

    fn push(&mut self, change: Change, clock: &Clock) -> u64 {
        let tag = u64::from(self.id) << 32 | u64::from(self.written);
        self.written += 1;
        self.len = grown(self.len, &change);
        self.events.push(Event { begun: clock.now(), tag, change });
        tag
    }

    pub fn write(&mut self, file: &File, at: u64, len: u64, clock: &Clock) -> io::Result<()> {
        let tag = self.push(Change::Write(at..at + len), clock);
        // O_DIRECT requires a page-aligned buffer.
        let mut bytes = vec![0; len as usize + CHUNK];
        let page = bytes.as_ptr().align_offset(CHUNK);
        let bytes = &mut bytes[page..][..len as usize];
        bytes.copy_from_slice(&words(tag, at..at + len));
        file.write_all_at(bytes, at)
    }

    pub fn set_len(&mut self, file: &File, size: u64, clock: &Clock) -> io::Result<()> {
        self.push(Change::Size(size), clock);
        file.set_len(size)
    }

    /// Punches a hole inside the file, if the filesystem supports it.
    pub fn punch(&mut self, file: &File, range: Range<u64>, clock: &Clock) -> io::Result<()> {
        let (at, len) = (range.start, range.end - range.start);
        self.push(Change::Zero(range), clock);
        match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len) {
            Err(Errno::OPNOTSUPP) => {
                self.events.pop();
                Ok(())
            }
            done => Ok(done?),
        }
    }

    pub fn sync(&mut self, file: &File, data_only: bool, clock: &Clock) -> io::Result<()> {
        let count = self.events.len();
        if data_only { file.sync_data() } else { file.sync_all() }?;
        self.syncs.push((count, clock.now()));
        Ok(())
    }

    /// Records that removal of the name begins.
    pub fn removing(&mut self, clock: &Clock) {
        self.removing.get_or_insert(clock.now());
    }

    /// Records that the directory was synced.
    pub fn directory_synced(&mut self, now: u64) {
        if self.removing.is_some() {
            self.removed.get_or_insert(now);
        } else if !self.syncs.is_empty() {
            self.named.get_or_insert(now);
        }
    }

    /// Continues from what a crash left.
    pub fn rebase(&mut self, found: Vec<u8>) {
        self.len = found.len() as u64;
        self.base = found;
        self.events.clear();
        self.syncs = vec![(0, 0)];
        self.named = Some(0);
        self.removing = None;
        self.removed = None;
    }

    /// Content after the first `count` events.
    fn replayed(&self, count: usize) -> Vec<u8> {
        let mut content = self.base.clone();
        for event in &self.events[..count] {
            content.resize(grown(content.len() as u64, &event.change) as usize, 0);
            match &event.change {
                Change::Write(range) => {
                    content[places(range)].copy_from_slice(&words(event.tag, range.clone()));
                }
                Change::Zero(range) => content[places(range)].fill(0),
                Change::Size(_) => {}
            }
        }
        content
    }

    /// Content after all events, as if there had been no crash.
    pub fn content(&self) -> Vec<u8> {
        self.replayed(self.events.len())
    }

    /// Compares the file with everything that a crash may have left of it.
    pub fn check(&self, crash: &Crash, tally: &mut Tally) -> Found {
        let before = |time: Option<u64>| time.is_some_and(|t| t <= crash.at);
        if !before(Some(self.begun)) {
            return Found::Nothing;
        }
        let sync = self.syncs.iter().rev().find(|(_, done)| before(Some(*done)));
        let count = sync.map_or(0, |s| s.0);
        let confirmed = self.replayed(count);
        tally.files += 1;
        let mut faults = Faults::default();
        let found = self.compare(crash, count, &confirmed, &mut faults);
        let place: PathBuf = self.path.iter().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
        let mut sound = true;
        for (kind, (bytes, what)) in faults.0 {
            sound &= kind == Kind::Excepted;
            tally.fault(kind, bytes, format!("{:.32}: {what}", place.to_string_lossy()));
        }
        if !sound {
            return Found::Faulty;
        }
        if found.is_some() {
            tally.writes += count as u64;
            tally.bytes += confirmed.len() as u64;
        }
        found.map_or(Found::Nothing, Found::Content)
    }

    /// Returns the file's bytes if it exists, and adds what is wrong to `faults`.
    fn compare(&self, crash: &Crash, count: usize, confirmed: &[u8], faults: &mut Faults) -> Option<Vec<u8>> {
        let before = |time: Option<u64>| time.is_some_and(|t| t <= crash.at);
        let found = match read(&self.path) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if before(self.named) && !before(self.removing) {
                    faults.add(Kind::Lost, confirmed.len(), "is not there, its name was confirmed".into());
                }
                return None;
            }
            Err(e) => {
                faults.add(Kind::Unreadable, confirmed.len(), e.to_string());
                return None;
            }
        };
        if before(self.removed) {
            faults.add(Kind::Lost, 0, "is back, its removal was confirmed".into());
        }
        let later: Vec<&Event> = self.events[count..].iter().filter(|e| e.begun <= crash.at).collect();
        let part = self.part.clone().unwrap_or(0..u64::MAX);
        let may = May::new(confirmed, &later, &found.bytes);
        let sizes =
            format!("{} bytes, {} confirmed, {} written", found.bytes.len(), confirmed.len(), self.len);
        let size = found.bytes.len() as u64;
        let least = may.sizes.iter().map(|s| *s.start()).min().expect("a size");
        // The writer of a part does not know how far the rest extends.
        if size < least || self.part.is_none() && !may.sizes.iter().any(|s| s.contains(&size)) {
            let kind = if size < least { Kind::Lost } else { Kind::Foreign };
            faults.add(kind, size.abs_diff(least) as usize, format!("a size it never had: {sizes}"));
        }
        for chunk in &found.unreadable {
            let range = (chunk * CHUNK) as u64..((chunk + 1) * CHUNK) as u64;
            if range.end <= part.start || part.end <= range.start {
                continue; // belongs to the writer of that part
            }
            let shared = range.start < part.start || part.end < range.end && self.part.is_some();
            let overwritten = range.start < confirmed.len() as u64 && later.iter().any(|e| e.touches(&range));
            let overwritten = overwritten || shared;
            let kind = if crash.torn && overwritten { Kind::Excepted } else { Kind::Unreadable };
            faults.add(kind, CHUNK, format!("chunk {chunk} cannot be read: {sizes}"));
        }
        let wrong = |at: &usize| {
            part.contains(&(*at as u64)) && !may.right[*at] && !found.unreadable.contains(&(at / CHUNK))
        };
        let mut from = 0;
        while let Some(start) = (from..found.bytes.len()).find(wrong) {
            let limit = if start < least as usize { least as usize } else { found.bytes.len() };
            let limit = limit.min(found.bytes.len());
            // Join faults at most 64 bytes apart: some wrong bytes match by chance.
            let mut end = start;
            while let Some(more) = (end..limit.min(end + 64)).rev().find(wrong) {
                end = more + 1;
            }
            let (kind, what) = self.name(&found.bytes, start..end, start < least as usize);
            faults.add(kind, end - start, format!("{start} to {end}: {what}: {sizes}"));
            from = end;
        }
        Some(found.bytes)
    }

    /// Classifies wrong bytes, either in confirmed data or where nothing was confirmed.
    fn name(&self, found: &[u8], range: Range<usize>, confirmed: bool) -> (Kind, String) {
        let absent = if confirmed { Kind::Lost } else { Kind::Zeros };
        if found[range.clone()].iter().all(|&b| b == 0) {
            return (absent, "zeros".into());
        }
        let first = range.start.next_multiple_of(WORD as usize);
        let Some(word) = found.get(first..first + WORD as usize).filter(|_| first < range.end) else {
            return (Kind::Foreign, "less than a word".into());
        };
        let [tag, place] = [0, 8].map(|i| u64::from_le_bytes(word[i..i + 8].try_into().expect("8 bytes")));
        let place = (place ^ mix(tag)).wrapping_mul(WORD);
        let (id, write) = (tag >> 32, tag as u32);
        if tag == 0 && place == 0 {
            (absent, "zeros, and more".into())
        } else if place != first as u64 || id != u64::from(self.id) {
            (Kind::Foreign, format!("as if write {write} of file {id:#x} to {place}"))
        } else if confirmed {
            (Kind::Lost, format!("write {write}, replaced since"))
        } else {
            (Kind::Foreign, format!("write {write}, cut off since"))
        }
    }
}

impl Event {
    fn touches(&self, range: &Range<u64>) -> bool {
        match &self.change {
            Change::Write(own) | Change::Zero(own) => own.start < range.end && range.start < own.end,
            Change::Size(size) => *size < range.end,
        }
    }
}

/// Sizes and bytes that a file may have after a crash.
struct May {
    sizes: Vec<RangeInclusive<u64>>,
    /// For each byte found, whether it matches confirmed data or a later write.
    right: Vec<bool>,
}

impl May {
    fn new(confirmed: &[u8], later: &[&Event], found: &[u8]) -> May {
        let mut right = vec![false; found.len()];
        let mut allow = |start: u64, bytes: &[u8]| {
            let start = (start as usize).min(found.len());
            for ((right, found), byte) in right[start..].iter_mut().zip(&found[start..]).zip(bytes) {
                *right |= found == byte;
            }
        };
        allow(0, confirmed);
        let mut len = confirmed.len() as u64;
        let mut sizes = vec![len..=len];
        for event in later {
            let new = grown(len, &event.change);
            let zeros = match &event.change {
                Change::Write(range) => {
                    allow(range.start, &words(event.tag, range.clone()));
                    len..range.start
                }
                Change::Zero(range) => range.clone(),
                Change::Size(size) => len..*size,
            };
            allow(zeros.start, &vec![0; zeros.end.saturating_sub(zeros.start) as usize]);
            // A write may be present in part. A truncation is all or nothing.
            sizes.push(len.min(new)..=new);
            len = new;
        }
        May { sizes, right }
    }
}

/// File size after a change.
fn grown(len: u64, change: &Change) -> u64 {
    match change {
        Change::Write(range) => len.max(range.end),
        Change::Zero(_) => len,
        Change::Size(size) => *size,
    }
}

fn places(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The bytes that write `tag` puts into a range of its file.
fn words(tag: u64, range: Range<u64>) -> Vec<u8> {
    let first = range.start / WORD;
    let mut all = Vec::with_capacity((range.end - range.start + 2 * WORD) as usize);
    for place in first..range.end.div_ceil(WORD) {
        all.extend(tag.to_le_bytes());
        all.extend((place ^ mix(tag)).to_le_bytes());
    }
    let skipped = range.start - first * WORD;
    all.drain(..skipped as usize);
    all.truncate((range.end - range.start) as usize);
    all
}

/// Mixes bits. Maps only 0 to 0, and no tag is 0.
fn mix(tag: u64) -> u64 {
    let mixed = (tag ^ tag >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A file's bytes, with zeros in place of unreadable chunks.
struct Bytes {
    bytes: Vec<u8>,
    unreadable: Vec<usize>,
}

fn read(path: &Path) -> io::Result<Bytes> {
    if let Ok(bytes) = fs::read(path) {
        return Ok(Bytes { bytes, unreadable: Vec::new() });
    }
    let file = File::open(path)?;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    let mut unreadable = Vec::new();
    for (index, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
        if file.read_exact_at(chunk, (index * CHUNK) as u64).is_err() {
            unreadable.push(index);
        }
    }
    Ok(Bytes { bytes, unreadable })
}
