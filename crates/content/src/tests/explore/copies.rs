//! A file is copied, both copies are written, and parts of both are combined. Anything read must come
//! from the copy to which the newest record belongs.

use super::{
    look::{Looker, Wrong, rest},
    marks::{Value, ZEROS, fill},
};
use crate::{Error, File};
use format::{
    entry::{ENTRY, SLOT},
    layout,
    record::{RECORD, Record},
};
use std::{collections::HashSet, sync::Arc};
use store::{BackingFile, FaultyFile, Snapshot};

/// Operations on each copy.
const OPERATIONS: u64 = 6;
/// Images combined from two copies.
const TRIES: u64 = 12;
/// The first value written to each copy. Later values count up from it.
const FIRST: [Value; 2] = [1 << 28, 1 << 29];

type Verdict<T = ()> = Result<T, String>;

/// All states that the store of a copy showed, and its records.
struct Copy {
    states: Vec<Arc<FaultyFile>>,
    records: HashSet<Vec<u8>>,
}

impl Looker {
    /// Writes two copies of a store separately, and combines parts of both.
    pub(super) fn splice(&mut self, state: &Snapshot) -> Verdict {
        let copies = [self.copy(state, 0)?, self.copy(state, 1)?];
        for _ in 0..TRIES {
            let image = self.put_together(&copies);
            self.counts.spliced += 1;
            self.judge(&copies, &image).map_err(|e| format!("copies put together: {e}"))?;
        }
        Ok(())
    }

    /// A copy that is written with its own values.
    fn copy(&mut self, state: &Snapshot, number: usize) -> Verdict<Copy> {
        let store = FaultyFile::at(state);
        store.record();
        let file = File::open(store.clone(), self.context.clone());
        let file = file.map_err(|e| format!("a copy does not open: {e}"))?;
        for value in (FIRST[number]..).take(OPERATIONS as usize) {
            match self.go_on_at_random(&file, value) {
                Ok(()) | Err(Error::Damaged(_)) => {}
                Err(e) => return Err(format!("a copy goes on: {e}")),
            }
        }
        let states: Vec<_> = store.recorded().iter().map(FaultyFile::at).collect();
        let sector = |state: &Arc<FaultyFile>, at| bytes(state, at * layout::RECORD, RECORD);
        let records = states.iter().flat_map(|state| [0, 1].map(|at| sector(state, at))).collect();
        Ok(Copy { states, records })
    }

    fn go_on_at_random(&mut self, file: &Arc<File>, value: Value) -> Result<(), Error> {
        let at = self.rng.below(self.marks.len() as u64 - 1) as usize;
        let range = self.marks[at]..self.marks[at + 1];
        match self.rng.below(6) {
            0 => file.truncate(range.start)?,
            1 => file.punch(range.start, range.end - range.start)?,
            _ if range.end - range.start > layout::CHUNK => {}
            _ => {
                let mut data = vec![0; (range.end - range.start) as usize];
                fill(value, range.start, &mut data);
                file.write(range.start, &data)?;
            }
        }
        match self.rng.below(8) {
            0 => Ok(()),
            1..=3 => file.flush(),
            4..=6 => file.sync(),
            _ => rest(file),
        }
    }

    /// A state of one copy, with records, slots and data of both copied over its own.
    fn put_together(&mut self, copies: &[Copy; 2]) -> Arc<FaultyFile> {
        let late = |looker: &mut Looker, states: &[Arc<FaultyFile>]| {
            let most = 1 + looker.rng.below(states.len() as u64);
            states[states.len() - 1 - looker.rng.below(most) as usize].clone()
        };
        let all = [0, 1, 1].map(|copy| late(self, &copies[copy].states));
        let image = FaultyFile::at(&all[self.rng.below(2) as usize].snapshot());
        let put = |at: u64, len: usize, of: &Arc<FaultyFile>| {
            let end = image.len().unwrap_or(0);
            let kept = end.saturating_sub(at).min(len as u64) as usize;
            let _ = image.write_at(&bytes(of, at, len)[..kept], at);
        };
        let which = |looker: &mut Looker| all[looker.rng.below(3) as usize].clone();
        if self.chance(3) {
            (0..2).for_each(|place| put(place * layout::RECORD, RECORD, &which(self)));
        }
        let mut chunks: Vec<u64> = self.marks.iter().map(|mark| mark / layout::CHUNK).collect();
        chunks.dedup();
        for chunk in chunks {
            let (one, other) = (which(self), which(self));
            let (first, second, data) = match self.rng.below(6) {
                0 | 1 => continue,
                2 => (&one, &one, &one),
                3 => (&one, &other, &other),
                4 => (&one, &other, &one),
                _ => (&one, &one, &other),
            };
            let entry = layout::entries_offset(layout::group_of(chunk))
                + (layout::place_in_group(chunk) * ENTRY) as u64;
            put(entry, SLOT, first);
            put(entry + SLOT as u64, SLOT, second);
            put(layout::chunk_offset(chunk), layout::CHUNK as usize, data);
        }
        image
    }

    fn judge(&mut self, copies: &[Copy; 2], image: &Arc<FaultyFile>) -> Verdict {
        let sectors = [0, 1].map(|place| bytes(image, place * layout::RECORD, RECORD));
        let order =
            |sector: &&Vec<u8>| sector.as_slice().try_into().map_or(0, |sector| Record::peek_order(sector).0);
        let Some(newest) = sectors.iter().max_by_key(order) else { return Ok(()) };
        let known = [0, 1].map(|copy: usize| copies[copy].records.contains(newest));
        let file = match File::open(image.clone(), self.context.clone()) {
            Err(Error::Damaged(_)) => return Ok(()),
            opened => opened.map_err(|e| format!("does not open: {e}"))?,
        };
        let all = (0..layout::chunks(file.size()).max(1)).collect();
        let view = match self.part(&file, 0..self.marks.len() - 1, &all) {
            Err(Wrong::Read(Error::Damaged(_))) => return Ok(()),
            Err(Wrong::Read(e)) => return Err(format!("reading: {e}")),
            Err(Wrong::Mixed(e)) => return Err(e),
            Ok(view) => view,
        };
        for value in view.values.into_iter().flatten().filter(|value| *value != ZEROS) {
            for copy in [0, 1] {
                let of_copy = (FIRST[copy]..FIRST[copy] + OPERATIONS as Value).contains(&value);
                let is_own = known[copy] && !known[1 - copy];
                if of_copy && !is_own {
                    return Err(format!("write {value} of the other copy is read"));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a file; zeros past its end.
fn bytes(file: &FaultyFile, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let _ = file.read_at(&mut bytes, at);
    bytes
}
