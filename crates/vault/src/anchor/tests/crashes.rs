//! A directory is changed and recorded in the anchor, while calls of the anchor's disk fail, and both
//! machines may crash at any moment. The anchor must never refuse a state that the store may have, and
//! what it records as known must never be older than what was written to it.

use super::*;
use crate::anchor::{
    Compared, Looked,
    entry::{AnchoredIdentity, Found},
    rules::{AnchorRule, break_rule},
};
use content::Error;
use std::{collections::BTreeMap, ffi::OsStr};
use store::{Snapshot, StoreDir};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

type There = Option<u8>;

/// The store: the values of each name since the last sync, the present one last.
struct Store(BTreeMap<&'static str, Vec<There>>);

impl Store {
    fn now(&self, name: &str) -> There {
        *self.0[name].last().unwrap()
    }

    fn sync(&mut self) {
        self.0.values_mut().for_each(|since| drop(since.drain(..since.len() - 1)));
    }
}

fn identity(there: There) -> Option<AnchoredIdentity> {
    there.map(|n| AnchoredIdentity::File(Some([n; 32])))
}

fn found(there: There) -> Found {
    identity(there).map_or(Found::Nothing, Found::Identity)
}

fn refuses(anchor: &Anchor, name: &str, there: There) -> bool {
    let compared = anchor.compare(&DIR, OsStr::new(name), &found(there), anchor.changes()).unwrap();
    matches!(compared, Compared::Otherwise(_))
}

struct Machine {
    known: (VaultConfig, Secret<32>),
    file: Arc<FaultyFile>,
    anchor: Anchor,
    store: Store,
    dir: Arc<StoreDir>,
    rng: Rng,
}

impl Machine {
    fn new(known: (VaultConfig, Secret<32>), seed: u64) -> Self {
        let file = FaultyFile::new();
        let anchor = made(&file, &known);
        let store = Store(NAMES.map(|name| (name, vec![None])).into());
        let dir = Arc::new(StoreDir::open_path(Path::new("/")).unwrap());
        Machine { known, file, anchor, store, dir, rng: Rng(seed) }
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.rng.below(4) as usize]
    }

    /// Whether one of these states of the anchor's disk gives an anchor that refuses a state that the
    /// store may have.
    fn is_refused(&mut self, states: &[Snapshot]) -> bool {
        let picked: Vec<usize> = (0..3).map(|_| self.rng.below(states.len() as u64) as usize).collect();
        picked.into_iter().chain([states.len() - 1]).any(|at| {
            let cut = states[at].power_cut(|_| false, |n| self.rng.below(n as u64) as usize);
            [FaultyFile::killed(&states[at]), FaultyFile::at(&cut)].iter().any(|left| {
                let anchor = open(left, &self.known);
                self.store
                    .0
                    .iter()
                    .any(|(name, since)| since.iter().any(|there| refuses(&anchor, name, *there)))
            })
        })
    }

    fn may_fail(&mut self) {
        if self.rng.below(3) == 0 {
            self.file.fail_at(self.rng.below(10), 1, self.rng.failure());
        }
    }

    /// Changes a name, if the anchor allows it. Returns true if a crash on the way would make the anchor
    /// refuse valid data.
    fn change(&mut self) -> bool {
        let (name, there) = (self.name(), Some(self.rng.below(9) as u8).filter(|n| *n > 2));
        self.may_fail();
        self.file.record();
        let begun = self.anchor.begin(&DIR, &self.dir, OsStr::new(name));
        let begun = begun.map(std::mem::forget).is_ok();
        self.file.calm();
        let states = self.file.recorded();
        if self.is_refused(&states) {
            return true;
        }
        if begun {
            self.store.0.get_mut(name).unwrap().push(there);
            self.anchor.changes.lock().end(&DIR);
        }
        false
    }

    /// Writes the changes to the anchor. Returns true if a crash on the way would make the anchor refuse
    /// valid data. Panics if the anchor accepts outdated data afterwards.
    fn keep(&mut self) -> bool {
        let looked = self.anchor.settled(None).into_iter().map(|settled| {
            let keys = self.anchor.keys().unwrap();
            let names =
                NAMES.iter().map(|name| (keys.seal(&DIR, OsStr::new(name)), identity(self.store.now(name))));
            Looked { settled, names: names.collect() }
        });
        let looked: Vec<Looked> = looked.collect();
        if !looked.is_empty() && self.rng.below(3) == 0 && self.change() {
            return true;
        }
        self.may_fail();
        self.file.record();
        let (file, store) = (&self.file, &mut self.store);
        let kept = self.anchor.keep(&looked, || {
            store.sync();
            file.record();
            Ok(())
        });
        self.file.calm();
        let states = self.file.recorded();
        if self.is_refused(&states) {
            return true;
        }
        if kept.is_ok() && self.anchor.changes.lock().len() == 0 {
            let cut = self.file.snapshot().power_cut(|_| false, |n| self.rng.below(n as u64) as usize);
            let after = open(&FaultyFile::at(&cut), &self.known);
            for name in NAMES {
                let there = self.store.now(name);
                let old = [None, Some(3), Some(200)].into_iter().filter(|old| *old != there);
                assert!(old.into_iter().all(|old| refuses(&after, name, old)), "{name}: not what was kept");
            }
        }
        false
    }

    /// Cuts the power of both. Each may have kept any part of what it had not synced. Then continues.
    fn crash(&mut self) {
        let cut = self.file.snapshot().power_cut(|_| false, |n| self.rng.below(n as u64) as usize);
        self.file = FaultyFile::at(&cut);
        for since in self.store.0.values_mut() {
            let kept = since[self.rng.below(since.len() as u64) as usize];
            *since = vec![kept];
        }
        self.anchor = open(&self.file, &self.known);
        self.anchor.meet(&DIR, &self.dir).unwrap();
    }
}

fn is_refused(seed: u64) -> bool {
    let mut machine = Machine::new(owner(), seed);
    for _ in 0..20 {
        let refused = match machine.rng.below(10) {
            0 => {
                machine.crash();
                false
            }
            1..6 => machine.change(),
            _ => machine.keep(),
        };
        if refused {
            return true;
        }
    }
    false
}

#[test]
fn no_crash_makes_an_anchor_refuse_what_is_right() {
    for seed in 0..150 {
        assert!(!is_refused(seed), "seed {seed}");
    }
}

#[test]
fn without_a_rule_one_does() {
    for rule in [
        AnchorRule::MarkBeforeChange,
        AnchorRule::MarkAfterFailure,
        AnchorRule::SyncBeforeKeep,
        AnchorRule::KeepWhatIsStill,
    ] {
        break_rule(Some(rule));
        let found = (0..100).find(|seed| std::panic::catch_unwind(|| is_refused(*seed)).unwrap_or(true));
        break_rule(None);
        println!("{rule:?}: seed {found:?}");
        assert!(found.is_some(), "{rule:?}");
    }
}

#[test]
fn what_cannot_be_marked_is_not_changed() {
    let file = FaultyFile::new();
    let anchor = made(&file, &owner());
    let dir = Arc::new(StoreDir::open_path(Path::new("/")).unwrap());
    file.fail_from(0, Failure::Errno(libc::ENOSPC));
    match anchor.begin(&DIR, &dir, OsStr::new("a")) {
        Err(Error::Store(e)) => assert_eq!(e.raw_os_error(), Some(libc::ENOSPC)),
        _ => panic!("begun without a mark"),
    }
    file.mend();
    drop(anchor.begin(&DIR, &dir, OsStr::new("a")).unwrap());
    assert_eq!(anchor.settled(None).len(), 1);
}
