//! The flusher: a thread that flushes closed files, cleans files some seconds after their last change,
//! and commits files that change all the time. Cleaning takes one pair of syncs for many files. On
//! shutdown all files are cleaned.

use super::Files;
use crate::{
    open_file::{Key, OpenFile},
    process,
};
use content::{CleanStep, Error, Result};
use crypto::traces;
use std::{
    cell::RefCell,
    collections::HashSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

/// How often the flusher examines all files.
const TICK: Duration = Duration::from_secs(1);
/// A file that changes all the time is committed when its oldest uncommitted change is this old.
const COMMIT_AFTER: Duration = Duration::from_secs(10);

/// Delays and limits of the flusher.
pub(super) struct FlushPace {
    /// A file is cleaned when it has not changed for this long.
    idle: Duration,
    /// Minimum time between two rounds that clean idle files. Each round costs the store two syncs.
    round: Duration,
    /// After flushing a closed file, the flusher waits this many times as long as the flush took, so
    /// that these flushes and their syncs take only a part of the time.
    share_of_hurry: u32,
    /// Up to this many files are synced one by one. More are synced by one syncfs.
    sync_each: usize,
}

impl FlushPace {
    pub(super) const USUAL: FlushPace = FlushPace {
        idle: Duration::from_secs(3),
        round: Duration::from_secs(8),
        share_of_hurry: 4,
        sync_each: 8,
    };
    /// For tests under a scheduler, which decides the order of events: no wait has a length.
    #[cfg(test)]
    pub(super) const TIMELESS: FlushPace =
        FlushPace { idle: Duration::ZERO, round: Duration::ZERO, share_of_hurry: 0, sync_each: 1 };
}

/// Files that were closed while an overwrite, which needs a sync, was still unflushed. Until it is
/// flushed, killing the mount loses the overwrite although later changes of the same program may
/// survive. These files are therefore flushed soon, but at a rate limited by how slow the store's syncs
/// are.
#[derive(Default)]
pub(super) struct Hurry {
    closed: HashSet<Key>,
    not_before: Option<Instant>,
}

impl Hurry {
    /// Time until the next files may be flushed; `None` if there are none.
    fn wait(&self) -> Option<Duration> {
        let wait = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        (!self.closed.is_empty()).then_some(wait)
    }

    /// Takes the closed files if they may be flushed now.
    fn take(&mut self) -> HashSet<Key> {
        if self.wait() == Some(Duration::ZERO) { std::mem::take(&mut self.closed) } else { HashSet::new() }
    }
}

/// The flusher's loop. Returns when the table is gone or the flusher is told to stop.
pub(super) fn run(files: &Weak<Files>) {
    let mut last = Instant::now();
    loop {
        let Some(files) = files.upgrade() else { return };
        let mut stop = files.stop.lock();
        let hurry = files.hurry.lock().wait();
        if !*stop && hurry != Some(Duration::ZERO) {
            files.wake.wait_for(&mut stop, hurry.map_or(TICK, |wait| wait.min(TICK)));
        }
        if *stop {
            return;
        }
        drop(stop);
        // A panic in one round must not end the flusher.
        let round = || {
            let halted = files.halted.lock();
            if *halted {
                return;
            }
            files.flush_closed();
            if last.elapsed() >= TICK || files.crowds() > 0 {
                last = Instant::now();
                files.tick();
            }
            traces::wipe(); // Before `halted` is released, which locking the vault waits for.
        };
        if catch_unwind(AssertUnwindSafe(round)).is_err() {
            log::error!("a round of the flusher ended early because of an internal error");
        }
    }
}

impl Files {
    /// Asks the flusher to flush a file soon.
    pub(super) fn hurry(&self, key: Key) {
        if self.hurry.lock().closed.insert(key) {
            // The flusher holds `stop` until it waits, so it cannot miss the notification.
            drop(self.stop.lock());
            self.wake.notify_all();
        }
    }

    /// Flushes the closed files that are due.
    pub(super) fn flush_closed(&self) {
        let closed = self.hurry.lock().take();
        let start = Instant::now();
        for open in closed.into_iter().filter_map(|key| self.get(key)) {
            if open.unlinked.load(Ordering::Relaxed) || open.file.failed() {
                continue;
            }
            if let Err(e) = self.ctimes.keep(&open, || open.file.flush()) {
                open.complain(&e);
            }
            self.hurry.lock().not_before = Some(Instant::now() + self.pace.share_of_hurry * start.elapsed());
        }
    }

    /// Flushes all files, including their node pages. Called when the store is nearly full.
    pub(super) fn flush_all(&self) {
        for open in self.all() {
            if open.file.cleaner().is_flushed() || open.file.failed() {
                continue;
            }
            if let Err(e) = self.ctimes.keep(&open, || open.file.cleaner().flush()) {
                open.complain(&e);
            }
        }
    }

    /// One pass over all files: commits, cleans and drops those that are due.
    pub(super) fn tick(&self) {
        if self.context.router.buffers.rest() {
            process::give_back_memory();
        }
        if self.crowds() > 0 {
            self.make_room();
        }
        let _room = self.room.lock();
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        for open in self.all() {
            open.file.drop_idle_readers();
            if self.context.sharing.is_some() {
                self.give_back_in_time(&open);
                continue;
            }
            if open.unlinked.load(Ordering::Relaxed) || open.file.is_clean() || open.file.failed() {
                continue;
            }
            if open.file.times().changed_at().elapsed() >= self.pace.idle {
                idle.push(open);
            } else if open.file.times().uncommitted_for() >= COMMIT_AFTER {
                busy.push(open);
            }
        }
        for open in busy {
            if let Err(e) = self.sync(&open) {
                open.complain(&e);
            }
        }
        if self.cleaned.lock().elapsed() >= self.pace.round {
            self.clean(idle);
        }
        self.reap();
        self.in_use.fetch_min(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Releases the lease of a shared file if other machines may have waited long enough for it.
    fn give_back_in_time(&self, open: &OpenFile) {
        if open.file.is_clean() || open.file.failed() {
            return;
        }
        match self.ctimes.keep(open, || open.file.lease().give_back_in_time()) {
            Ok(()) => open.complained.store(false, Ordering::Relaxed),
            Err(e) => open.complain(&e),
        }
    }

    /// Cleans files: flush, sync, settle, sync, write the clean records. One pair of syncs serves all
    /// files. Failures are logged, and the first one is returned.
    pub(crate) fn clean(&self, files: Vec<Arc<OpenFile>>) -> Option<(Key, Error)> {
        if self.context.read_only || files.is_empty() {
            return None;
        }
        let first = RefCell::new(None);
        let failed = |open: &OpenFile, e: Error| {
            open.complain(&e);
            first.borrow_mut().get_or_insert((open.key, e));
        };
        if self.context.sharing.is_some() {
            // One by one: otherwise other machines would have to wait for a lease between two steps.
            files.iter().for_each(|open| self.give_back(open).unwrap_or_else(|e| failed(open, e)));
            return first.into_inner();
        }
        let mut cleaned = self.cleaned.lock();
        let flush = |open: Arc<OpenFile>| {
            let flushed = match open.file.cleaner().is_flushed() {
                true => open.file.cleaner().flush(),
                false => self.ctimes.keep(&open, || open.file.cleaner().flush()),
            };
            match flushed {
                Ok(step) => Some((open, step)),
                Err(e) => {
                    failed(&open, e);
                    None
                }
            }
        };
        let flushed: Vec<_> = files.into_iter().filter_map(flush).collect();
        let flushed = self.sync_for_clean(flushed, &failed);
        let settle = |(open, step): &(Arc<OpenFile>, CleanStep)| match self
            .ctimes
            .keep(open, || open.file.cleaner().settle(*step))
        {
            Ok(more) => {
                self.note_durable(open);
                more
            }
            Err(e) => {
                failed(open, e);
                false
            }
        };
        let settled: Vec<_> = flushed.into_iter().filter(settle).collect();
        for (open, step) in self.sync_for_clean(settled, &failed) {
            match self.ctimes.keep(&open, || open.file.cleaner().finish(step)) {
                Ok(()) => open.complained.store(false, Ordering::Relaxed),
                Err(e) => failed(&open, e),
            }
        }
        *cleaned = Instant::now();
        first.into_inner()
    }

    /// Makes durable what these files wrote. Returns the files for which this is confirmed.
    fn sync_for_clean(
        &self,
        files: Vec<(Arc<OpenFile>, CleanStep)>,
        failed: &impl Fn(&OpenFile, Error),
    ) -> Vec<(Arc<OpenFile>, CleanStep)> {
        let mut each = files.len() <= self.pace.sync_each;
        if !each && let Err(e) = (self.sync_store)() {
            if e.kind() != io::ErrorKind::Unsupported {
                log::error!("the store cannot be synced: {e}");
                self.ask_others(&files, failed);
            }
            each = true; // shows which files are affected
        }
        let synced = |(open, _): &(Arc<OpenFile>, CleanStep)| {
            let done = !each && open.key.0 == self.device;
            done || open.file.cleaner().sync().map_err(|e| failed(open, e)).is_ok()
        };
        files.into_iter().filter(synced).collect()
    }

    /// Syncs the dirty files that are not among `asked`. The failed syncfs also covered their data, and
    /// the store reports such a failure only once, so a later successful sync would be wrongly taken as
    /// theirs. A sync through a file's own descriptor reports the failure once more.
    fn ask_others(&self, asked: &[(Arc<OpenFile>, CleanStep)], failed: &impl Fn(&OpenFile, Error)) {
        let is_other = |open: &Arc<OpenFile>| !asked.iter().any(|(of, _)| Arc::ptr_eq(of, open));
        for open in self.all().into_iter().filter(is_other).filter(|o| !o.file.is_clean() && !o.file.failed())
        {
            open.file.cleaner().sync().unwrap_or_else(|e| failed(&open, e));
        }
    }

    /// Stops the flusher and waits for its thread, unless called on that thread.
    pub(crate) fn end_flusher(&self) {
        *self.stop.lock() = true;
        self.wake.notify_all();
        if let Some(flusher) = self.flusher.lock().take()
            && flusher.thread().id() != std::thread::current().id()
        {
            let _ = flusher.join();
        }
    }

    /// Flushes everything, makes it durable, writes the clean records and stops the flusher.
    ///
    /// # Errors
    /// The error of the first file that could not be stored; EIO if an earlier file could not be stored.
    pub fn shut_down(&self) -> Result<()> {
        self.end_flusher();
        if self.context.read_only {
            return Ok(());
        }
        let left: Vec<_> = self
            .all()
            .into_iter()
            .filter(|o| !o.unlinked.load(Ordering::Relaxed) && !o.file.is_clean())
            .collect();
        let flushed: Result<()> =
            left.iter().try_for_each(|open| self.ctimes.keep(open, || open.file.flush()));
        self.clean(left.clone());
        // A file that could not be cleaned can still be made durable.
        let mut unclean = left.iter().filter(|o| !o.file.is_clean());
        let durable = unclean.try_for_each(|o| self.ctimes.keep(o, || o.file.sync()));
        drop(unclean);
        drop(left);
        self.reap();
        flushed.and(durable)?;
        if self.lost.load(Ordering::Relaxed) { Err(Error::os(libc::EIO)) } else { Ok(()) }
    }
}
