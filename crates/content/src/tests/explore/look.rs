//! A crash at one instant: recovers the resulting state, perhaps with failures and further crashes on the
//! way, and compares the result with the oracle.

use super::{
    super::super::{Background, Context, Durability, File},
    super::{Rng, context_over},
    marks::{Place, Value, fill, identify, parts},
    oracle::{Oracle, View},
};
use crate::{ContentKeys, Error, testing};
use crypto::{cipher::Cipher, integrity::Integrity};
use format::layout;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use store::{Failure, FaultyFile, Snapshot};

/// Statistics of an exploration.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sequences: u64,
    /// Calls that failed.
    pub(super) faults: u64,
    /// Operations that followed a failed operation of another kind.
    pub(super) others: u64,
    pub(super) kills: u64,
    pub(super) cuts: u64,
    /// Recoveries during which a call failed.
    pub(super) refused: u64,
    /// Recoveries interrupted by a kill or a power cut.
    pub(super) crashed: u64,
    /// States that were tampered with.
    pub(super) damaged: u64,
    /// Images combined from two copies.
    pub(super) spliced: u64,
    /// States that were opened, recovered and compared.
    pub(super) states: u64,
    /// Those among them that follow a failure and another operation.
    pub(super) beyond: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Counts) {
        self.sequences += more.sequences;
        self.faults += more.faults;
        self.others += more.others;
        self.kills += more.kills;
        self.cuts += more.cuts;
        self.refused += more.refused;
        self.crashed += more.crashed;
        self.damaged += more.damaged;
        self.spliced += more.spliced;
        self.states += more.states;
        self.beyond += more.beyond;
    }
}

/// Keys for the cheapest cryptography.
pub(super) fn keys() -> ContentKeys {
    testing::keys(Cipher::Aes128, Integrity::TurboShake128x4)
}

/// A context with synchronous background work and cheap cryptography.
pub(super) fn context(durability: Durability) -> Arc<Context> {
    Arc::new(Context { keys: keys(), durability, ..context_over(Background::at_once()) })
}

/// Checks the states left by crashes.
pub(super) struct Looker {
    pub(super) context: Arc<Context>,
    /// A second context, for reopening recovered files.
    pub(super) other: Arc<Context>,
    pub(super) marks: Vec<u64>,
    /// Chunks, by the page in which they are stored.
    pages: BTreeMap<u64, u64>,
    pub(super) rng: Rng,
    pub(super) counts: Counts,
    /// A failure was followed by another operation.
    pub(super) beyond: bool,
}

/// Chunks that may be damaged.
pub(super) type Torn = BTreeSet<u64>;

type Verdict<T = ()> = Result<T, String>;

impl Looker {
    pub(super) fn new(contexts: &[Arc<Context>; 2], place: Place, seed: u64) -> Self {
        let marks = place.marks();
        let chunks = layout::chunks(marks[marks.len() - 1]);
        Looker {
            context: contexts[0].clone(),
            other: contexts[1].clone(),
            pages: (0..chunks).map(|chunk| (layout::chunk_offset(chunk) / layout::PAGE, chunk)).collect(),
            marks,
            rng: Rng(seed),
            counts: Counts::default(),
            beyond: false,
        }
    }

    /// The chunk stored in a page.
    pub(super) fn chunk_in(&self, page: u64) -> Option<u64> {
        self.pages.get(&page).copied()
    }

    pub(super) fn chance(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    /// A state left by a power cut, and the chunks that it may damage. With `torn`, data pages may be
    /// torn, too.
    pub(super) fn cut(&mut self, state: &Snapshot, torn: bool) -> (Arc<FaultyFile>, Torn) {
        let mut damaged = Torn::new();
        if torn || self.context.durability == Durability::Relaxed {
            damaged.extend(state.unsynced_pages().iter().filter_map(|page| self.pages.get(page)));
        }
        let style = self.rng.below(5);
        let tears = self.rng.below(2) == 0;
        let (rng, pages) = (&mut self.rng, &self.pages);
        // The first choice is the length's.
        let mut length = true;
        let pick = |n: usize| match (style, std::mem::take(&mut length)) {
            (0, _) | (4, true) => 0,
            (4, false) => n - 1,
            (1, _) if rng.below(6) > 0 => n - 1,
            (2, _) if rng.below(6) > 0 => 0,
            _ => rng.below(n as u64) as usize,
        };
        let tears = |page: u64| tears && (torn || !pages.contains_key(&page));
        (FaultyFile::at(&state.power_cut(tears, pick)), damaged)
    }

    /// Checks a state that a kill or a power cut leaves of `state`, with up to `depth` crashes during its
    /// recovery.
    pub(super) fn crash(
        &mut self,
        oracle: &Oracle,
        state: &Snapshot,
        cut: bool,
        torn: &Torn,
        depth: u32,
    ) -> Verdict {
        let mut torn = torn.clone();
        let store = if cut {
            self.counts.cuts += 1;
            let tear = self.chance(4);
            let (store, more) = self.cut(state, tear);
            torn.extend(more);
            store
        } else {
            self.counts.kills += 1;
            FaultyFile::killed(state)
        };
        let what = if cut { "cut" } else { "kill" };
        self.recover(oracle, &store, !cut, &torn, depth).map_err(|e| format!("{what}: {e}"))
    }

    fn recover(
        &mut self,
        oracle: &Oracle,
        store: &Arc<FaultyFile>,
        kill: bool,
        torn: &Torn,
        depth: u32,
    ) -> Verdict {
        if depth > 0 && self.chance(4) {
            if self.recover_on_failing(oracle, store, kill, torn)? {
                return Ok(());
            }
            if self.chance(2) {
                let cut = self.chance(2);
                self.counts.crashed += 1;
                return self.crash_on(oracle, &store.snapshot(), kill, cut, torn, depth - 1);
            }
        }
        let inside = depth > 0 && self.chance(3);
        if inside {
            store.record();
        }
        let (file, view) = self.open(oracle, store, kill, torn)?;
        if inside {
            let states = store.recorded();
            for _ in 0..2 {
                let state = &states[self.rng.below(states.len() as u64) as usize];
                let cut = self.chance(2);
                self.counts.crashed += 1;
                self.crash_on(oracle, state, kill, cut, torn, depth - 1)?;
            }
        }
        self.afterwards(store, file, &view, torn)
    }

    fn crash_on(
        &mut self,
        oracle: &Oracle,
        state: &Snapshot,
        kill: bool,
        cut: bool,
        torn: &Torn,
        depth: u32,
    ) -> Verdict {
        let oracle = if kill && !cut { oracle.clone() } else { oracle.lost() };
        self.crash(&oracle, state, cut, torn, depth).map_err(|e| format!("recovery met by {e}"))
    }

    /// Recovers on a store that fails one or more times. Returns whether the file was then used further.
    fn recover_on_failing(
        &mut self,
        oracle: &Oracle,
        store: &Arc<FaultyFile>,
        kill: bool,
        torn: &Torn,
    ) -> Verdict<bool> {
        let errno = [libc::EIO, libc::ENOSPC][self.rng.below(2) as usize];
        let failure = match self.rng.below(4) {
            0 => Failure::Landed(errno),
            1 => Failure::Lost(errno),
            2 => Failure::Torn(errno, 1 + self.rng.below(7) as usize),
            _ => Failure::Errno(errno),
        };
        let from = self.rng.below(24);
        match failure {
            Failure::Lost(_) => store.fail_sync(from % 4, failure),
            _ => store.fail_at(from, 1 + self.rng.below(3), failure),
        }
        let opened = File::open(store.clone(), self.context.clone());
        store.calm();
        self.counts.refused += u64::from(store.failed() > 0);
        match opened {
            Err(Error::Store(_)) if store.failed() > 0 => Ok(false),
            Err(e) => Err(format!("does not open while call {from} fails with {failure:?}: {e}")),
            Ok(file) => {
                let view = self.view(&file, torn)?;
                oracle.allows(&view, kill).map_err(|e| format!("recovered in memory only: {e}"))?;
                if file.sync_failed() || self.chance(2) {
                    return Ok(false);
                }
                self.go_on(store, &file, &view, torn).map_err(|e| format!("after a failed recovery, {e}"))?;
                Ok(true)
            }
        }
    }

    /// Opens the state left by a crash.
    fn open(
        &mut self,
        oracle: &Oracle,
        store: &Arc<FaultyFile>,
        kill: bool,
        torn: &Torn,
    ) -> Verdict<(Arc<File>, View)> {
        self.counts.states += 1;
        self.counts.beyond += u64::from(self.beyond);
        let file =
            File::open(store.clone(), self.context.clone()).map_err(|e| format!("does not open: {e}"))?;
        let view = self.view(&file, torn)?;
        oracle.allows(&view, kill)?;
        Ok((file, view))
    }

    /// Checks that the recovered state is durable and can be used.
    fn afterwards(&mut self, store: &Arc<FaultyFile>, file: Arc<File>, view: &View, torn: &Torn) -> Verdict {
        match self.rng.below(4) {
            0 => {
                rest(&file).map_err(|e| format!("is not clean after recovery: {e}"))?;
                let calls = store.calls();
                let again = File::open(store.clone(), self.other.clone());
                let again = again.map_err(|e| format!("does not open when clean: {e}"))?;
                if store.calls() != calls {
                    return Err("is recovered although it was clean".into());
                }
                same(&self.view(&again, torn)?, view, "clean")
            }
            1 => {
                let oldest = FaultyFile::at(&store.snapshot().power_cut(|_| false, |_| 0));
                let again = File::open(oldest, self.other.clone());
                let again =
                    again.map_err(|e| format!("does not open when power fails after recovery: {e}"))?;
                same(&self.view(&again, torn)?, view, "when power fails after recovery")
            }
            2 => self.go_on(store, &file, view, torn),
            _ => Ok(()),
        }
    }

    /// Writes, syncs, and checks that the result is durable.
    pub(super) fn go_on(
        &mut self,
        store: &Arc<FaultyFile>,
        file: &Arc<File>,
        view: &View,
        torn: &Torn,
    ) -> Verdict {
        const NEW: Value = 1 << 30;
        let mut wanted = view.clone();
        let at = self.rng.below(self.marks.len() as u64 - 1) as usize;
        let range = self.marks[at]..self.marks[at + 1];
        let result = if range.end > view.size {
            wanted.size = self.marks[at];
            wanted.values.resize(at, Some(0));
            file.truncate(range.start)
        } else if range.end - range.start > layout::CHUNK {
            wanted.values[at] = Some(0);
            file.punch(range.start, range.end - range.start)
        } else {
            let mut data = vec![0; (range.end - range.start) as usize];
            fill(NEW, range.start, &mut data);
            wanted.values[at] = Some(NEW);
            file.write(range.start, &data)
        };
        if matches!(result, Err(Error::Damaged(_))) && !torn.is_empty() {
            return Ok(());
        }
        let synced = result.and_then(|()| file.sync());
        synced.map_err(|e| format!("going on after recovery: {e}"))?;
        let store = if self.chance(2) {
            FaultyFile::killed(&store.snapshot())
        } else {
            FaultyFile::at(&store.snapshot().power_cut(|_| false, |_| 0))
        };
        let again = File::open(store, self.other.clone());
        let again = again.map_err(|e| format!("does not open after going on: {e}"))?;
        same(&self.view(&again, torn)?, &wanted, "after going on")
    }

    /// The whole content of a file. Chunks of `torn` may be damaged.
    pub(super) fn view(&self, file: &Arc<File>, torn: &Torn) -> Verdict<View> {
        self.part(file, 0..self.marks.len() - 1, torn).map_err(|e| match e {
            Wrong::Read(e) => format!("reading: {e}"),
            Wrong::Mixed(e) => e,
        })
    }

    /// The content of some segments; other values are left out.
    pub(super) fn part(
        &self,
        file: &Arc<File>,
        segments: std::ops::Range<usize>,
        torn: &Torn,
    ) -> Result<View, Wrong> {
        let size = file.size();
        let mut view = View { size, values: vec![None; self.marks.partition_point(|mark| *mark < size)] };
        view.values.truncate(self.marks.len() - 1);
        let mut buf = Vec::new();
        for at in segments.start..segments.end.min(view.values.len()) {
            let mut found = None;
            for part in parts(self.marks[at]..self.marks[at + 1], size) {
                buf.resize((part.end - part.start) as usize, 0xee);
                match file.read(part.start, &mut buf) {
                    Err(Error::Damaged(_)) if torn.contains(&(part.start / layout::CHUNK)) => break,
                    Err(e) => return Err(Wrong::Read(e)),
                    Ok(n) if n < buf.len() => {
                        return Err(Wrong::Mixed(format!("{n} bytes at {}", part.start)));
                    }
                    Ok(_) => {}
                }
                let value = identify(part.start, &buf);
                if value.is_none() || found.is_some_and(|found| Some(found) != value) {
                    return Err(Wrong::Mixed(format!("bytes of several writes at {}", part.start)));
                }
                found = value;
            }
            view.values[at] = found;
        }
        Ok(view)
    }
}

/// The reason why a read failed.
pub(super) enum Wrong {
    Read(Error),
    Mixed(String),
}

/// Cleans a file.
pub(super) fn rest(file: &Arc<File>) -> Result<(), Error> {
    let step = file.cleaner().flush()?;
    file.cleaner().sync()?;
    if file.cleaner().settle(step)? {
        file.cleaner().sync()?;
        file.cleaner().finish(step)?;
    }
    Ok(())
}

pub(super) fn same(found: &View, wanted: &View, when: &str) -> Verdict {
    if found.size != wanted.size {
        return Err(format!("{when} size {}, not {}", found.size, wanted.size));
    }
    let differ = |(found, wanted): (&Option<Value>, &Option<Value>)| {
        found.is_some() && wanted.is_some() && found != wanted
    };
    if found.values.iter().zip(&wanted.values).any(differ) {
        return Err(format!("{when} other content: {:?}, not {:?}", found.values, wanted.values));
    }
    Ok(())
}
