//! For tests of crash safety: a file in memory that loses power, runs out of space and fails on command.
//!
//! For every page written since the last sync it keeps all versions. A power cut keeps any one of
//! them, chosen independently for each page (or sector). This covers every way in which writes can be
//! dropped or reordered.

mod attributes;
mod content;
mod failures;
mod space;

pub use failures::{Call, Failure};

use super::BackingFile;
use content::Content;
use failures::Failures;
use parking_lot::Mutex;
use space::Space;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};

/// Bytes of a sector, the unit that a power cut keeps or loses as a whole.
pub const SECTOR: usize = 512;
/// Bytes of a page, the unit that a kill keeps or loses as a whole.
const PAGE: usize = 4096;
/// The modification time that every change sets.
const NOW: (i64, u32) = (1 << 40, 0);

/// State of a [`FaultyFile`] between two operations.
#[derive(Clone)]
pub struct Snapshot(Content);

#[derive(Default)]
struct Inner {
    content: Content,
    failures: Failures,
    space: Space,
    mtime: (i64, u32),
    syncs: u64,
    whole_syncs: u64,
    history: Option<Vec<Snapshot>>,
    /// Number of changing calls between two states in the history.
    every: u64,
    torn: BTreeSet<u64>,
}

/// A file in memory.
#[derive(Default)]
pub struct FaultyFile(Mutex<Inner>);

impl FaultyFile {
    /// Creates an empty file.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a file from a snapshot, with everything durable.
    pub fn at(snapshot: &Snapshot) -> Arc<Self> {
        Self::over(snapshot.0.durable())
    }

    /// Creates a file as a kill leaves it: everything written so far is there, and not yet durable.
    pub fn killed(snapshot: &Snapshot) -> Arc<Self> {
        Self::over(snapshot.0.clone())
    }

    fn over(content: Content) -> Arc<Self> {
        Arc::new(FaultyFile(Mutex::new(Inner { content, ..Inner::default() })))
    }

    /// The current state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.lock().content.clone())
    }

    /// Starts recording the state before each changing call.
    pub fn record(&self) {
        self.record_every(1);
    }

    /// Starts recording the state before every `calls`th changing call.
    pub fn record_every(&self, calls: u64) {
        let mut inner = self.0.lock();
        (inner.history, inner.every) = (Some(Vec::new()), calls);
    }

    /// The states recorded since `record`, followed by the current one. Ends the recording.
    pub fn recorded(&self) -> Vec<Snapshot> {
        let mut inner = self.0.lock();
        let mut history = inner.history.take().unwrap_or_default();
        history.push(Snapshot(inner.content.clone()));
        history
    }

    /// Makes every changing call fail from the `nth` on (0: the next one), until `mend`. Each page of a
    /// write counts as a call.
    pub fn fail_from(&self, nth: u64, failure: Failure) {
        self.0.lock().failures.from(nth, failure);
    }

    /// Makes `times` calls of any kind fail, from the `nth` on (0: the next one).
    pub fn fail_at(&self, nth: u64, times: u64, failure: Failure) {
        self.0.lock().failures.at(None, nth, times, failure);
    }

    /// Makes the `nth` sync fail (0: the next one).
    pub fn fail_sync(&self, nth: u64, failure: Failure) {
        self.0.lock().failures.at(Some(Call::Sync), nth, 1, failure);
    }

    /// Leaves no space for further pages, except for those that are freed. With `copies`, overwriting a
    /// page needs space, too.
    pub fn fill(&self, errno: i32, copies: bool) {
        self.0.lock().space.fill(errno, copies);
    }

    /// Leaves space for `room` more pages.
    pub fn leave(&self, errno: i32, room: u64) {
        self.0.lock().space.leave(errno, room);
    }

    /// Lifts the limit on space.
    pub fn free(&self) {
        self.0.lock().space.free();
    }

    /// Ends all failures and the limit on space.
    pub fn mend(&self) {
        let mut inner = self.0.lock();
        inner.failures.mend();
        inner.space.free();
    }

    /// Ends the failures requested by `fail_at` or `fail_sync`.
    pub fn calm(&self) {
        self.0.lock().failures.calm();
    }

    /// Rereads from disk the pages that a failed sync lost; `pick(n)` chooses one of `n` versions.
    pub fn evict(&self, pick: impl FnMut(usize) -> usize) {
        self.0.lock().content.evict(pick);
    }

    /// Number of changing calls so far.
    pub fn calls(&self) -> u64 {
        self.0.lock().failures.changes
    }

    /// Calls of any kind since this was last called.
    pub fn asked(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().failures.asked)
    }

    /// Number of failed calls so far.
    pub fn failed(&self) -> u64 {
        self.0.lock().failures.failed
    }

    /// Pages that were partially written.
    pub fn torn(&self) -> Vec<u64> {
        self.0.lock().torn.iter().copied().collect()
    }

    /// Number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Number of syncs that covered metadata, too.
    pub fn whole_syncs(&self) -> u64 {
        self.0.lock().whole_syncs
    }

    /// The content.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().content.bytes()
    }

    /// All extended attributes.
    pub fn attributes(&self) -> BTreeMap<OsString, Vec<u8>> {
        self.0.lock().content.attributes.all()
    }

    /// Changes the content as an attacker would.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.0.lock();
        let mut bytes = inner.content.bytes();
        change(&mut bytes);
        inner.content.show(&bytes);
    }
}

impl Snapshot {
    /// A state that a power cut may leave. `torn(page)` says whether that page may be kept partially;
    /// `pick(n)` chooses one of `n` versions, 0 being the oldest.
    pub fn power_cut(&self, torn: impl Fn(u64) -> bool, pick: impl FnMut(usize) -> usize) -> Snapshot {
        Snapshot(self.0.power_cut(torn, pick))
    }

    /// Whether a power cut could leave more than one state.
    pub fn unsynced(&self) -> bool {
        self.0.is_unsynced()
    }

    /// Pages for which a power cut could leave more than one state.
    pub fn unsynced_pages(&self) -> Vec<u64> {
        self.0.unsynced().collect()
    }
}

impl Inner {
    /// Counts a changing call; `Err` if it must fail.
    fn change(&mut self) -> Result<(), Failure> {
        if let Some(history) = &mut self.history
            && self.failures.changes.is_multiple_of(self.every)
        {
            history.push(Snapshot(self.content.clone()));
        }
        self.failures.change()
    }

    /// Runs a call whose change takes effect at once.
    fn call(&mut self, call: Call, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let asked = self.failures.ask(call);
        if matches!(asked, Ok(()) | Err(Failure::Landed(_))) {
            self.change().map_err(Failure::error)?;
            change(self);
        }
        asked.map_err(Failure::error)
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()> {
        // A kill between two pages of one write keeps the first one, so each page counts as a call.
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let end = buf.len().min(done + PAGE - (at % PAGE as u64) as usize);
            match self.change() {
                Ok(()) => {}
                Err(Failure::Partial(_)) if done == 0 => {}
                Err(failure) => return Err(failure.error()),
            }
            let page = at / PAGE as u64;
            let taken = self.space.take(page, self.content.is_hole(page));
            taken.inspect_err(|_| self.failures.failed += 1)?;
            self.content.write(&buf[done..end], at);
            done = end;
        }
        Ok(())
    }
}

impl BackingFile for FaultyFile {
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Read).map_err(Failure::error)?;
        Ok(inner.content.next_data(offset))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Read).map_err(Failure::error)?;
        Ok(inner.content.read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.mtime = NOW; // as on Linux, before it is known whether there is space
        let asked = inner.failures.ask(Call::Write);
        let first = PAGE - (offset % PAGE as u64) as usize;
        let lands = match asked {
            Ok(()) | Err(Failure::Landed(_)) => buf.len(),
            Err(Failure::Partial(_)) => buf.len().min(first),
            Err(Failure::Torn(_, sectors)) => buf.len().min(sectors * SECTOR),
            Err(Failure::Errno(_) | Failure::Lost(_)) => 0,
        };
        let end = offset + lands as u64;
        if lands < buf.len() && !end.is_multiple_of(PAGE as u64) {
            inner.torn.insert(end / PAGE as u64);
        }
        inner.write(&buf[..lands], offset)?;
        asked.map_err(Failure::error)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().call(Call::SetLen, |inner| {
            inner.mtime = NOW;
            if len <= inner.content.len() {
                inner.space.give_up(len.div_ceil(PAGE as u64)..u64::MAX);
            }
            let freed = inner.content.resize(len);
            inner.space.freed(freed);
        })
    }

    fn len(&self) -> io::Result<u64> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Len).map_err(Failure::error)?;
        Ok(inner.content.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.0.lock();
        let synced = inner.call(Call::Sync, |inner| {
            inner.syncs += 1;
            inner.content.sync();
        });
        if inner.failures.take_loses() {
            inner.content.lose();
        }
        synced
    }

    fn sync_whole(&self) -> io::Result<()> {
        self.sync_data()?;
        let mut inner = self.0.lock();
        inner.whole_syncs += 1;
        inner.content.attributes.sync();
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.lock().call(Call::Punch, |inner| {
            let end = (offset + len).min(inner.content.len());
            inner.mtime = NOW;
            if offset < end {
                let freed = inner.content.clear(offset, end);
                inner.space.freed(freed);
                inner.space.give_up(offset.div_ceil(PAGE as u64)..end / PAGE as u64);
            }
        })
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let inner = &mut *self.0.lock();
        inner.call(Call::Reserve, |_| {})?;
        let pages = offset / PAGE as u64..(offset + len).div_ceil(PAGE as u64);
        let reserved = inner.space.reserve(pages, |page| inner.content.is_hole(page));
        reserved.inspect_err(|_| inner.failures.failed += 1)
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Time).map_err(Failure::error)?;
        Ok(inner.mtime)
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Time).map_err(Failure::error)?;
        inner.mtime = (seconds, nanoseconds);
        Ok(())
    }

    fn attribute_names(&self) -> io::Result<Vec<OsString>> {
        let mut inner = self.0.lock();
        inner.failures.ask(Call::Attribute).map_err(Failure::error)?;
        Ok(inner.content.attributes.all().into_keys().collect())
    }

    fn set_attribute(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        self.0.lock().call(Call::Attribute, |inner| inner.content.attributes.set(name, Some(value)))
    }

    fn remove_attribute(&self, name: &OsStr) -> io::Result<()> {
        self.0.lock().call(Call::Attribute, |inner| inner.content.attributes.set(name, None))
    }
}
