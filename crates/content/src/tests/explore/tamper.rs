//! Damage to confirmed data: it is detected, and nothing else is lost.

use super::{
    look::{Looker, Torn, same},
    marks::ZEROS,
    oracle::View,
};
use crate::{Error, File};
use format::{
    entry::{ENTRY, SLOT},
    layout,
    record::RECORD,
};
use store::{BackingFile, FaultyFile, Snapshot};

type Verdict<T = ()> = Result<T, String>;

impl Looker {
    /// Changes a byte of a chunk after a kill, perhaps with one of the records blanked. Then this chunk,
    /// and no other, cannot be read.
    pub(super) fn damage(&mut self, wanted: &View, state: &Snapshot) -> Verdict {
        let data = |value: &&(usize, &Option<u32>)| value.1.is_some_and(|value| value != ZEROS);
        let all: Vec<usize> = wanted
            .values
            .iter()
            .enumerate()
            .collect::<Vec<_>>()
            .iter()
            .filter(data)
            .map(|(at, _)| *at)
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let chunk = self.marks[all[self.rng.below(all.len() as u64) as usize]] / layout::CHUNK;
        let store = FaultyFile::killed(state);
        self.flip(&store, chunk, wanted.size)?;
        if self.chance(2) {
            let record = self.rng.below(2) * layout::RECORD;
            store.write_at(&[0; RECORD], record).map_err(|e| e.to_string())?;
        }
        self.counts.damaged += 1;
        let file = File::open(store, self.context.clone());
        let file = file.map_err(|e| format!("damaged chunk {chunk}: does not open: {e}"))?;
        let view =
            self.view(&file, &Torn::from([chunk])).map_err(|e| format!("damaged chunk {chunk}: {e}"))?;
        same(&view, wanted, "beside a damaged chunk")?;
        let damaged = |at: usize| self.marks[at] / layout::CHUNK == chunk;
        if (0..view.values.len()).any(|at| damaged(at) && view.values[at].is_some()) {
            return Err(format!("damaged chunk {chunk} is read"));
        }
        Ok(())
    }

    /// Blanks one of the records of a clean file and changes other bytes. Everything read must be
    /// correct, and so must the size.
    pub(super) fn meddle(&mut self, wanted: &View, state: &Snapshot) -> Verdict {
        if wanted.size == 0 {
            return Ok(());
        }
        let store = FaultyFile::at(state);
        let write = |bytes: &[u8], at| store.write_at(bytes, at).map_err(|e| e.to_string());
        write(&[0; RECORD], self.rng.below(2) * layout::RECORD)?;
        if self.chance(2) {
            let chunk = self.rng.below(layout::chunks(wanted.size));
            self.flip(&store, chunk, wanted.size)?;
        }
        let slots = slots(&store, wanted.size);
        if !slots.is_empty() && self.chance(2) {
            // Blank the slots that the previous version did not have.
            let (_, oldest) = slots[self.rng.below(slots.len() as u64) as usize];
            for (at, _) in slots.iter().filter(|(_, epoch)| *epoch >= oldest) {
                write(&[0; SLOT], *at)?;
            }
        }
        self.counts.damaged += 1;
        let file = match File::open(store, self.context.clone()) {
            Err(Error::Damaged(_)) => return Ok(()),
            opened => opened.map_err(|e| format!("with a blank record: does not open: {e}"))?,
        };
        let all = (0..layout::chunks(wanted.size)).collect();
        same(&self.view(&file, &all)?, wanted, "with a blank record")
    }

    /// Changes a byte of a chunk after a crash. An interrupted recovery, when repeated, must give the
    /// same result.
    pub(super) fn wear(&mut self, state: &Snapshot) -> Verdict {
        let store = if self.chance(2) { self.cut(state, false).0 } else { FaultyFile::at(state) };
        let chunks = self.marks[self.marks.len() - 1].div_ceil(layout::CHUNK);
        let size = layout::plain_size(store.len().map_err(|e| e.to_string())?);
        let chunk = self.rng.below(chunks);
        if layout::chunk_len(size, chunk) == 0 {
            return Ok(());
        }
        self.flip(&store, chunk, size)?;
        self.counts.damaged += 1;
        let store = FaultyFile::at(&store.snapshot());
        store.record();
        let file = match File::open(store.clone(), self.context.clone()) {
            Err(Error::Damaged(_)) => return Ok(()),
            opened => opened.map_err(|e| format!("worn: does not open: {e}"))?,
        };
        let all = (0..chunks).collect();
        let view = self.view(&file, &all)?;
        let states = store.recorded();
        for _ in 0..3 {
            let state = &states[self.rng.below(states.len() as u64) as usize];
            let store = if self.chance(2) { self.cut(state, false).0 } else { FaultyFile::killed(state) };
            let again = File::open(store, self.other.clone());
            let again = again.map_err(|e| format!("worn, recovered twice: does not open: {e}"))?;
            let found = self.view(&again, &all)?;
            if found != view {
                let (found, view) = (found.values, view.values);
                return Err(format!("worn, recovered twice: other content: {found:?}, not {view:?}"));
            }
        }
        Ok(())
    }

    fn flip(&mut self, store: &FaultyFile, chunk: u64, size: u64) -> Verdict {
        let at = layout::chunk_offset(chunk) + self.rng.below(layout::chunk_len(size, chunk) as u64);
        let mut byte = [0];
        store.read_at(&mut byte, at).map_err(|e| e.to_string())?;
        store.write_at(&[byte[0] ^ 4], at).map_err(|e| e.to_string())
    }
}

/// Offsets and epochs of the slots that are not empty.
fn slots(store: &FaultyFile, size: u64) -> Vec<(u64, u64)> {
    let mut slots = Vec::new();
    for group in 0..layout::groups(size) {
        let start = layout::entries_offset(group);
        let chunks = layout::first_chunk(group + 1) - layout::first_chunk(group);
        let mut bytes = vec![0; chunks as usize * ENTRY];
        let _ = store.read_at(&mut bytes, start);
        for (slot, at) in bytes.as_chunks::<SLOT>().0.iter().zip((start..).step_by(SLOT)) {
            let epoch = slot[10..16].iter().fold(0, |epoch, byte| epoch << 8 | u64::from(*byte));
            if epoch > 0 {
                slots.push((at, epoch));
            }
        }
    }
    slots
}
