//! The stored form of a plain file, readable at any offset. Of the computed data it keeps the digests of
//! the tree (32 bytes per 256 KiB) and the most recently sealed groups. Every group is compared with the
//! tree before it is returned, so a read never mixes the old and new content of a file that changes.
//!
//! All cores seal together. The tree is built from several groups at a time, and a sequential reader gets
//! the next groups sealed along with the one it needs.

use super::{
    keys::SealKeys,
    seal::{EPOCH, Group, next_data},
};
use engine::CpuEngine;
use format::{
    entry::ENTRY,
    layout::{
        CHUNK, FANOUT, GROUP0_ENTRIES, MAX_LEVELS, MAX_SIZE, PAGE, RECORD, chunk_offset, entries_in,
        entries_offset, first_chunk, group_of, groups, levels, node_offset, plain_size, stored_size,
    },
    record::{Claim, Record, Version},
    tree::{ALL_HOLES, Digest, node_digest},
};
use parking_lot::Mutex;
use rustix::{
    fs::{Stat, fstat},
    io::Errno,
};
use std::{fs::File, io, ops::Range, sync::Arc};

/// Attempts to read a file that keeps changing.
const TRIES: u32 = 2;
/// Maximum number of groups sealed together: 2 MiB.
const TOGETHER: u64 = 8;

/// An open plain file.
pub struct Content {
    file: File,
    /// Size in bytes when the file was opened. The kernel relies on it.
    size: u64,
    keys: SealKeys,
    engine: Arc<CpuEngine>,
    made: Mutex<Option<ComputedTree>>,
}

struct ComputedTree {
    size: u64,
    /// Digests of the leaves, then of the node pages of level 1, and so on up to the root.
    levels: Vec<Vec<Digest>>,
    /// The most recently sealed groups, consecutive.
    sealed: Vec<Group>,
}

impl Content {
    pub(super) fn new(file: File, size: u64, keys: SealKeys, engine: Arc<CpuEngine>) -> Self {
        Content { file, size, keys, engine, made: Mutex::new(None) }
    }

    /// Size of the stored form in bytes, as of when the file was opened.
    pub fn stored_size(&self) -> u64 {
        stored_size(self.size)
    }

    /// Whether a read may take long: it is the first read of a large file, or has to wait for another read.
    pub fn is_slow(&self) -> bool {
        groups(self.size) > TOGETHER && self.made.try_lock().is_none_or(|made| made.is_none())
    }

    /// The file's attributes, with its stored size.
    ///
    /// # Errors
    /// Errors of the plain filesystem.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(as_stored(fstat(&self.file)?, self.size))
    }

    /// The stored bytes from `offset` on: `length` bytes, or fewer at the end. The first call reads the
    /// whole file.
    ///
    /// # Errors
    /// Errors of reading. ESTALE if the file has changed since it was first read, no longer has the size
    /// that it had when it was opened, or keeps changing.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut guard = self.made.lock();
        let made = match &mut *guard {
            Some(made) => made,
            none => none.insert(self.make()?),
        };
        let stored = stored_size(made.size);
        let end = stored.min(offset.saturating_add(length as u64));
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let number = group_of(plain_size(at - at % PAGE) / CHUNK);
            let first = chunk_offset(first_chunk(number));
            if at < first {
                let page = at - at % PAGE;
                let to = (end - page).min(PAGE);
                let bytes = self.page(made, number, page)?;
                out.extend_from_slice(&bytes[(at - page) as usize..to as usize]);
                at = page + to;
            } else {
                let to = end.min(first + entries_in(number) as u64 * CHUNK);
                self.group(made, number, end)?.copy((at - first) as usize, (to - at) as usize, &mut out);
                at = to;
            }
        }
        Ok(out)
    }

    /// Builds the tree of the current file, provided that the file does not change meanwhile.
    fn make(&self) -> io::Result<ComputedTree> {
        for _ in 0..TRIES {
            let before = fstat(&self.file)?;
            let size = u64::try_from(before.st_size).unwrap_or(0);
            if size > MAX_SIZE {
                return Err(Errno::FBIG.into());
            }
            if size != self.size {
                return Err(changed());
            }
            let made = self.tree(size);
            if is_unchanged(&before, &fstat(&self.file)?) {
                return made;
            }
        }
        Err(changed())
    }

    fn tree(&self, size: u64) -> io::Result<ComputedTree> {
        let count = groups(size);
        let mut leaves = vec![ALL_HOLES; count as usize];
        let mut number = 0;
        while number < count {
            let data = next_data(&self.file, first_chunk(number) * CHUNK)?;
            number = data.map_or(count, |at| number.max(group_of(at / CHUNK))).min(count);
            let end = count.min(number + TOGETHER);
            for (group, leaf) in self.seal(size, number..end)?.iter().zip(&mut leaves[number as usize..]) {
                *leaf = group.digest(&self.keys);
            }
            number = end;
        }
        let mut all = vec![leaves];
        for level in 1..=levels(count) {
            let below = all.last().map(Vec::as_slice).unwrap_or_default();
            let pages = (0_u64..).zip(below.chunks(FANOUT as usize));
            let digests =
                pages.map(|(k, part)| node_digest(&self.keys.file, level, k, &children(part))).collect();
            all.push(digests);
        }
        Ok(ComputedTree { size, levels: all, sealed: Vec::new() })
    }

    /// The page at `at`, a multiple of `PAGE`, which precedes the data of a group.
    fn page(&self, made: &mut ComputedTree, number: u64, at: u64) -> io::Result<[u8; PAGE as usize]> {
        let mut page = [0; PAGE as usize];
        let entries = entries_offset(number);
        if at == 0 {
            let record = self.record(made).encode(&self.keys.file.record);
            let (records, entries) = page.split_at_mut(GROUP0_ENTRIES as usize);
            records.chunks_exact_mut(RECORD as usize).for_each(|sector| sector.copy_from_slice(&record));
            entries.copy_from_slice(&self.group(made, 0, 0)?.entries());
        } else if at < entries {
            let (level, k) = node_at(number, at).ok_or_else(changed)?;
            let below = made.levels.get(level as usize - 1).map(Vec::as_slice).unwrap_or_default();
            let part = below.chunks(FANOUT as usize).nth(k as usize).unwrap_or_default();
            page.copy_from_slice(children(part).as_flattened());
        } else {
            page[..].copy_from_slice(&self.group(made, number, at)?.entries());
        }
        Ok(page)
    }

    fn record(&self, made: &ComputedTree) -> Record {
        let root = made.levels.last().and_then(|top| top.first()).copied().unwrap_or(ALL_HOLES);
        let target = Version { epoch: EPOCH, size: made.size, root };
        Record { sequence: 1, key: self.keys.id, target, claim: Claim::Clean }
    }

    /// A group that agrees with the tree. `end` is the end of the reader's range in the stored file, and
    /// limits how many groups are sealed with it.
    fn group<'a>(&self, made: &'a mut ComputedTree, number: u64, end: u64) -> io::Result<&'a Group> {
        if made.sealed.iter().all(|group| group.number != number) {
            let goes_on = made.sealed.last().is_some_and(|last| last.number + 1 == number);
            let wanted = if goes_on { number + TOGETHER } else { group_of(plain_size(end) / CHUNK) + 1 };
            let to = wanted.clamp(number + 1, number + TOGETHER).min(groups(made.size));
            // Freed first, so that no more than `TOGETHER` groups are in memory.
            made.sealed = Vec::new();
            made.sealed = self.seal(made.size, number..to).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => e,
            })?;
            let as_before =
                |group: &Group| made.levels[0].get(group.number as usize) == Some(&group.digest(&self.keys));
            let whole = made.sealed.iter().take_while(|group| as_before(group)).count();
            made.sealed.truncate(whole);
        }
        made.sealed.iter().find(|group| group.number == number).ok_or_else(changed)
    }

    /// Seals these groups, on all cores.
    fn seal(&self, size: u64, numbers: Range<u64>) -> io::Result<Vec<Group>> {
        let mut parts: Vec<(u64, Option<io::Result<Group>>)> = numbers.map(|number| (number, None)).collect();
        let work = |(number, sealed): &mut (u64, Option<io::Result<Group>>)| {
            *sealed = Some(Group::seal(&self.keys, &self.file, size, *number));
        };
        self.engine.share(&mut parts, work).map_err(io::Error::other)?;
        parts.into_iter().filter_map(|(_, sealed)| sealed).collect()
    }
}

/// The digests in a node page.
fn children(part: &[Digest]) -> [Digest; FANOUT as usize] {
    let mut all = [ALL_HOLES; FANOUT as usize];
    all[..part.len()].copy_from_slice(part);
    all
}

/// Level and index of the node page at offset `at`, which precedes the leaf page of a group.
fn node_at(group: u64, at: u64) -> Option<(u32, u64)> {
    (1..=MAX_LEVELS).find_map(|level| {
        let k = group / FANOUT.pow(level);
        (node_offset(level, k) == at).then_some((level, k))
    })
}

/// Attributes of a plain file of `size` bytes, in its stored form.
pub(super) fn as_stored(mut stat: Stat, size: u64) -> Stat {
    let stored = stored_size(size);
    stat.st_size = stored as _;
    stat.st_blocks += (stored - size).div_ceil(512) as i64;
    stat
}

fn is_unchanged(a: &Stat, b: &Stat) -> bool {
    let of = |s: &Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec);
    of(a) == of(b)
}

/// The error for reading a file that has changed.
fn changed() -> io::Error {
    Errno::STALE.into()
}

const _: () = assert!(GROUP0_ENTRIES as usize + 48 * ENTRY == PAGE as usize);
const _: () = assert!(GROUP0_ENTRIES == 2 * RECORD);
