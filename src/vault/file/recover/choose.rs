//! R2: which slot each chunk is read with: the newest one whose data is there, else what a proven version says.
//!
//! A slot above the base is proven by its tag, whatever became of its version: only a flush after the last commit made it for
//! this chunk. That there is none, and where the file ends, is proven by a version's root alone.

use super::{Dirty, File, Proven, indexed};
use crate::{
    format::{
        entry::{Entry, Slot},
        layout,
        record::Version,
    },
    vault::{
        Result,
        file::{
            record::Identity,
            rules::{Rule, holds},
            tree::{Recovered, read_entries},
        },
    },
};

/// What stands in for data that is not there.
enum Fallback {
    /// What an older proven version has: the base's slot, or a hole.
    Older,
    /// Nothing: the file ends here.
    End(u64),
    /// Nothing, and it should: the chunk is damaged.
    Damaged,
}

/// A slot above the base, and its place in the entry.
type Placed = (usize, Slot);

/// The scan over all chunks, ascending.
struct Scan<'a> {
    file: &'a File,
    identity: &'a Identity,
    /// What the newest record says, proven or not.
    newest: Version,
    /// Proven, newest first.
    versions: &'a [Version],
    recovered: Recovered,
    /// The file ends before the newest version does.
    ended: bool,
    unreadable: u64,
}

impl File {
    /// Chooses, and counts the chunks that cannot be read.
    pub(super) fn choose(&self, dirty: &Dirty, proven: &Proven) -> Result<(Recovered, u64)> {
        let mut scan = Scan {
            file: self,
            identity: &dirty.identity,
            newest: dirty.versions[0],
            versions: &proven.versions,
            recovered: Recovered::new(dirty.base, proven.versions[0].size),
            ended: false,
            unreadable: 0,
        };
        for group in &proven.groups {
            for (index, entry) in indexed(*group, &read_entries(&*self.store, *group)?) {
                if scan.ended {
                    return Ok((scan.recovered, scan.unreadable));
                }
                scan.take(index, &entry)?;
            }
        }
        Ok((scan.recovered, scan.unreadable))
    }
}

impl Scan<'_> {
    fn take(&mut self, index: u64, entry: &Entry) -> Result<()> {
        let version = self.versions[0];
        let mut slots: Vec<Placed> = Vec::new();
        for (place, slot) in entry.0.iter().enumerate() {
            let counts =
                |slot: &&Slot| self.recovered.base().epoch < slot.epoch && slot.epoch <= self.newest.epoch;
            slots.extend(slot.as_ref().filter(counts).map(|slot| (place, *slot)));
        }
        slots.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.epoch));
        let end = layout::chunks(version.size);
        if index + 1 >= end && self.extend(index, &slots)? || index >= end {
            return Ok(());
        }
        for (place, slot) in &slots {
            if self.verifies(index, *slot, layout::chunk_len(version.size, index))? {
                self.recovered.keep(index, *place);
                return Ok(());
            }
        }
        // The version's own, then, if it is above the base.
        match slots.iter().find(|(_, slot)| slot.epoch <= version.epoch) {
            None => {}
            Some((place, slot)) => match fallback(index, *slot, self.versions) {
                Fallback::Older => {}
                Fallback::End(size) => (self.recovered.size, self.ended) = (size, true),
                Fallback::Damaged => {
                    self.recovered.keep(index, *place);
                    self.unreadable += 1;
                }
            },
        }
        Ok(())
    }

    /// Lets the file go on behind the proven version's end, or in a last chunk that has grown, as far as the data is there
    /// without a gap. Whether it does here.
    fn extend(&mut self, index: u64, slots: &[Placed]) -> Result<bool> {
        let size = self.recovered.size;
        let (start, len) = (index * layout::CHUNK, layout::chunk_len(self.newest.size, index));
        if size > start + layout::CHUNK || start + len as u64 <= size {
            return Ok(false);
        }
        if size >= start {
            for (place, slot) in slots {
                if self.verifies(index, *slot, len)? {
                    self.recovered.keep(index, *place);
                    self.recovered.size = start + len as u64;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the stored bytes of a chunk are those of the slot, `len` of them.
    fn verifies(&self, index: u64, slot: Slot, len: usize) -> Result<bool> {
        if !holds(Rule::VerifyData) {
            return Ok(true);
        }
        self.file.verifies(self.identity, index, slot, len)
    }
}

/// What the versions before the newest proven one say of a chunk whose data is not there.
fn fallback(index: u64, slot: Slot, versions: &[Version]) -> Fallback {
    let Some((version, older)) = versions.split_first() else { return Fallback::Damaged };
    // One that has the same slot says nothing else.
    let Some(before) = older.iter().find(|older| older.epoch < slot.epoch) else { return Fallback::Damaged };
    let len = |version: &Version| layout::chunk_len(version.size, index);
    if len(before) == len(version) || !holds(Rule::ProvenHoles) {
        Fallback::Older
    } else if len(before) < len(version) {
        // Past its end, or in a chunk that has grown since.
        Fallback::End(before.size.max(index * layout::CHUNK))
    } else {
        Fallback::Damaged
    }
}
