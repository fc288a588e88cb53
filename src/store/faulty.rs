//! A file in memory that loses power, runs full and fails on command: for tests of what must survive.
//!
//! It keeps, for every unit that was written since the last sync, all of its versions. A power cut keeps
//! any one of them, for each unit independently: so writes are dropped and reordered in every way.

use super::BackingFile;
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, sync::Arc};

/// Bytes of a sector: what a power cut keeps or loses as a whole.
pub const SECTOR: usize = 512;
/// Bytes of a page: what a kill keeps or loses as a whole.
const PAGE: usize = 4096;

/// What a store can be told to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// ENOSPC, EIO, EROFS, …: the call fails with this error number and changes nothing.
    Errno(i32),
    /// A write stops after its first page, then fails with this error number.
    Partial(i32),
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Older versions of each unit and each length since the last sync, oldest (the durable one) first.
    units: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    lengths: Vec<usize>,
}

/// State of a `FaultyFile` between two operations.
#[derive(Clone)]
pub struct Snapshot(Content);

#[derive(Default)]
struct Inner {
    content: Content,
    mtime: (i64, u32),
    /// Calls that change something, so far.
    calls: u64,
    syncs: u64,
    failure: Option<(u64, Failure)>,
    history: Option<Vec<Snapshot>>,
    /// Calls from one state in the history to the next.
    every: u64,
}

/// The file.
#[derive(Default)]
pub struct FaultyFile(Mutex<Inner>);

impl FaultyFile {
    /// An empty file.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A file as it was, everything in it durable.
    pub fn at(snapshot: &Snapshot) -> Arc<Self> {
        let content = Content { bytes: snapshot.0.bytes.clone(), ..Content::default() };
        Arc::new(FaultyFile(Mutex::new(Inner { content, ..Inner::default() })))
    }

    /// What a kill leaves: everything written so far, none of it durable.
    pub fn killed(snapshot: &Snapshot) -> Arc<Self> {
        Arc::new(FaultyFile(Mutex::new(Inner { content: snapshot.0.clone(), ..Inner::default() })))
    }

    /// The present state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.lock().content.clone())
    }

    /// From now on remembers the state before each changing call.
    pub fn record(&self) {
        self.record_every(1);
    }

    /// From now on remembers the state before every so many changing calls.
    pub fn record_every(&self, calls: u64) {
        let mut inner = self.0.lock();
        (inner.history, inner.every) = (Some(Vec::new()), calls);
    }

    /// The states since `record`, and the present one.
    pub fn recorded(&self) -> Vec<Snapshot> {
        let mut inner = self.0.lock();
        let mut history = inner.history.take().unwrap_or_default();
        history.push(Snapshot(inner.content.clone()));
        history
    }

    /// Lets every changing call from the `nth` on (0: the next one) fail, until `mend`.
    pub fn fail_from(&self, nth: u64, failure: Failure) {
        let mut inner = self.0.lock();
        inner.failure = Some((inner.calls + nth, failure));
    }

    /// Everything works again.
    pub fn mend(&self) {
        self.0.lock().failure = None;
    }

    /// Changing calls so far.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().content.bytes.clone()
    }

    /// Changes the bytes as somebody else would.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.lock().content.bytes);
    }
}

impl Snapshot {
    /// A state that a power cut may leave. `torn(page)` says whether that page may be kept in part;
    /// `pick(n)` chooses one of `n` versions, 0 being the oldest.
    pub fn power_cut(&self, torn: impl Fn(u64) -> bool, mut pick: impl FnMut(usize) -> usize) -> Snapshot {
        let now = &self.0;
        let mut lengths = now.lengths.clone();
        lengths.push(now.bytes.len());
        let len = lengths[pick(lengths.len())];
        let mut bytes = now.bytes.clone();
        bytes.resize(len.max(bytes.len()), 0);
        let mut pages: BTreeMap<usize, usize> = BTreeMap::new();
        for (unit, versions) in &now.units {
            let page = unit * SECTOR / PAGE;
            let of_page = now.units.range(page * PAGE / SECTOR..(page + 1) * PAGE / SECTOR);
            let most = of_page.map(|(_, v)| v.len()).max().unwrap_or(0);
            let age = if torn(page as u64) {
                pick(versions.len() + 1)
            } else {
                // Sectors of a page change together: the same number of steps back for each.
                let back = *pages.entry(page).or_insert_with(|| pick(most + 1));
                (versions.len() + back).saturating_sub(most)
            };
            if let Some(old) = versions.get(age) {
                let end = bytes.len().min((unit + 1) * SECTOR);
                let start = unit * SECTOR;
                if start < end {
                    bytes[start..end].copy_from_slice(&old[..end - start]);
                }
            }
        }
        bytes.truncate(len);
        Snapshot(Content { bytes, ..Content::default() })
    }

    /// Whether a power cut could leave more than one state.
    pub fn unsynced(&self) -> bool {
        !self.0.units.is_empty() || !self.0.lengths.is_empty()
    }
}

impl Content {
    fn sector(&self, unit: usize) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let start = (unit * SECTOR).min(self.bytes.len());
        let end = ((unit + 1) * SECTOR).min(self.bytes.len());
        bytes[..end - start].copy_from_slice(&self.bytes[start..end]);
        bytes
    }

    /// Remembers the units that a change of `start..end` replaces. A whole page is remembered at a time, so
    /// that its sectors have equally many versions.
    fn remember(&mut self, start: usize, end: usize) {
        for unit in start / PAGE * (PAGE / SECTOR)..end.div_ceil(PAGE) * (PAGE / SECTOR) {
            let old = self.sector(unit);
            self.units.entry(unit).or_default().push(old);
        }
    }

    fn resize(&mut self, len: usize) {
        if len != self.bytes.len() {
            if len < self.bytes.len() {
                self.remember(len, self.bytes.len());
            }
            self.lengths.push(self.bytes.len());
            self.bytes.resize(len, 0);
        }
    }

    fn write(&mut self, buf: &[u8], offset: usize) {
        let end = offset + buf.len();
        self.remember(offset, end);
        if end > self.bytes.len() {
            self.lengths.push(self.bytes.len());
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(buf);
    }
}

impl Inner {
    /// Counts a changing call; `Err` if it is one that fails.
    fn call(&mut self) -> Result<(), Failure> {
        if let Some(history) = &mut self.history
            && self.calls.is_multiple_of(self.every)
        {
            history.push(Snapshot(self.content.clone()));
        }
        self.calls += 1;
        match self.failure {
            Some((from, failure)) if self.calls > from => Err(failure),
            _ => Ok(()),
        }
    }
}

fn error(failure: Failure) -> io::Error {
    let (Failure::Errno(errno) | Failure::Partial(errno)) = failure;
    io::Error::from_raw_os_error(errno)
}

impl BackingFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.0.lock();
        let bytes = &inner.content.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let n = buf.len().min(bytes.len() - start);
        buf[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.0.lock();
        let offset = offset as usize;
        // A kill between two pages of one call leaves the first: so each page is a call of its own.
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + PAGE - (offset + done) % PAGE);
            match inner.call() {
                Ok(()) => {}
                Err(Failure::Partial(_)) if done == 0 => {}
                Err(failure) => return Err(error(failure)),
            }
            inner.content.write(&buf[done..end], offset + done);
            done = end;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.call().map_err(error)?;
        inner.content.resize(len as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().content.bytes.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.call().map_err(error)?;
        inner.syncs += 1;
        inner.content.units.clear();
        inner.content.lengths.clear();
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.call().map_err(error)?;
        let end = ((offset + len) as usize).min(inner.content.bytes.len());
        if let Some(n) = end.checked_sub(offset as usize) {
            inner.content.write(&vec![0; n], offset as usize);
        }
        Ok(())
    }

    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.0.lock().call().map_err(error)
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        Ok(self.0.lock().mtime)
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        self.0.lock().mtime = (seconds, nanoseconds);
        Ok(())
    }
}
