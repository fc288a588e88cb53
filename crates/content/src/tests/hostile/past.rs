//! The past of a file: the states that its store showed, and the versions that its records name.

use super::*;
use crate::state::NO_VERSION;
use format::{
    record::{Between, Claim, RECORD, Record, RecordError},
    tree::Digest,
};
use std::{collections::BTreeMap, ops::Range};

/// Plaintext by chunks. Missing chunks are zeros.
#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    chunks: BTreeMap<u64, Vec<u8>>,
}

/// A version of a file.
#[derive(Clone)]
pub(super) struct Version {
    epoch: u64,
    root: Digest,
    pub(super) content: Content,
}

/// A file being written, and its model.
pub(super) struct History {
    pub(super) context: Arc<Context>,
    pub(super) store: Arc<FaultyFile>,
    pub(super) file: Arc<File>,
    pub(super) rng: Rng,
    pub(super) content: Content,
    pub(super) versions: Vec<Version>,
    pub(super) states: Vec<Arc<FaultyFile>>,
    pub(super) bases: Vec<(&'static str, Arc<FaultyFile>)>,
}

/// The result of a history.
pub(super) struct Past {
    salt: [u8; 32],
    versions: Vec<Version>,
    /// Each state that the store showed, in order.
    pub(super) states: Vec<Arc<FaultyFile>>,
    /// The states to edit.
    pub(super) bases: Vec<(&'static str, Arc<FaultyFile>)>,
}

/// The contents that may be read from a stored file.
pub(super) enum Allowed<'a> {
    /// None: the file cannot be opened.
    Refused,
    /// An empty file.
    Empty,
    /// The version of a clean record, with its size.
    One(&'a Version),
    /// For each chunk, one of the versions that a dirty record names. The end may be that of any chunk or
    /// version between the smallest and the largest version.
    Between(Vec<&'a Version>),
}

impl Content {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            self.chunks.entry(at / 4096).or_insert_with(|| vec![0; 4096])[(at % 4096) as usize] = *byte;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn zero(&mut self, range: Range<u64>) {
        for (index, chunk) in self.chunks.range_mut(range.start / 4096..range.end.div_ceil(4096)) {
            let within = |at: u64| at.saturating_sub(index * 4096).min(4096) as usize;
            chunk[within(range.start)..within(range.end)].fill(0);
        }
    }

    fn cut(&mut self, size: u64) {
        self.zero(size..self.size.max(size));
        self.size = size;
    }

    pub(super) fn chunk_is(&self, index: u64, bytes: &[u8]) -> bool {
        bytes.len() == layout::chunk_len(self.size, index)
            && match self.chunks.get(&index) {
                Some(chunk) => chunk[..bytes.len()] == *bytes,
                None => bytes.iter().all(|byte| *byte == 0),
            }
    }
}

impl Version {
    /// The present version of an open file.
    pub(super) fn of(file: &File, content: &Content) -> Version {
        let st = file.core.state.read();
        assert_eq!(st.stored.tree.size(), content.size);
        Version { epoch: st.stored.tree.epoch(), root: st.stored.tree.root(), content: content.clone() }
    }

    pub(super) fn size(&self) -> u64 {
        self.content.size
    }
}

impl History {
    pub(super) fn new(context: &Arc<Context>, seed: u64) -> History {
        let store = FaultyFile::new();
        store.record();
        let nothing = Version { epoch: NO_VERSION.epoch, root: NO_VERSION.root, content: Content::default() };
        History {
            context: context.clone(),
            file: open(&store, context),
            store,
            rng: Rng(seed),
            content: Content::default(),
            versions: vec![nothing],
            states: Vec::new(),
            bases: Vec::new(),
        }
    }

    /// Writes this many random bytes, which stay buffered.
    pub(super) fn write(&mut self, offset: u64, len: usize) -> &mut Self {
        let bytes = self.rng.bytes(len);
        self.file.write(offset, &bytes).unwrap();
        self.content.write(offset, &bytes);
        self
    }

    /// Writes random data to these chunks.
    pub(super) fn chunks(&mut self, indices: impl IntoIterator<Item = u64>) -> &mut Self {
        for index in indices {
            self.write(index * 4096, 4096);
        }
        self
    }

    pub(super) fn punch(&mut self, indices: Range<u64>) -> &mut Self {
        let range = indices.start * 4096..(indices.end * 4096).min(self.content.size);
        self.file.punch(range.start, range.end - range.start).unwrap();
        self.content.zero(range);
        self
    }

    pub(super) fn resize(&mut self, size: u64) -> &mut Self {
        self.file.truncate(size).unwrap();
        self.content.cut(size);
        self.flush()
    }

    pub(super) fn flush(&mut self) -> &mut Self {
        self.file.flush().unwrap();
        self.versions.push(Version::of(&self.file, &self.content));
        self
    }

    pub(super) fn sync(&mut self) -> &mut Self {
        self.flush().file.sync().unwrap();
        self
    }

    pub(super) fn clean(&mut self) -> &mut Self {
        clean(&self.flush().file);
        self
    }

    /// Simulates a kill, followed by recovery.
    pub(super) fn reopen(&mut self) -> &mut Self {
        self.file = open(&self.store, &self.context);
        self.versions.push(Version::of(&self.file, &self.content));
        self
    }

    /// Simulates a kill during a flush, after this many calls, followed by recovery.
    pub(super) fn crash(&mut self, calls: u64) -> &mut Self {
        self.store.fail_from(calls, ENOSPC);
        self.file.flush().unwrap_err();
        let epoch = self.file.core.state.read().stored.last_epoch;
        self.versions.push(Version { epoch, root: [0xff; 32], content: self.content.clone() });
        self.file = File::fresh(FaultyFile::new(), self.context.clone());
        self.store.mend();
        self.file = open(&self.store, &self.context);
        // Other tests check the outcome of recovery.
        self.content = Content::default();
        self.content.write(0, &read_all(&self.file).unwrap());
        self.versions.push(Version::of(&self.file, &self.content));
        self
    }

    /// Keeps the present state for edits.
    pub(super) fn keep(&mut self, what: &'static str) -> &mut Self {
        self.bases.push((what, FaultyFile::at(&self.store.snapshot())));
        self
    }

    /// Adds versions written during a flush. Their content is that of the next version, up to their size.
    fn note_writes(&mut self) {
        for state in &self.states {
            for record in records(&self.context, state).into_iter().flatten().flatten() {
                let target = record.target;
                let named = |own: &Version| own.root == target.root && own.size() == target.size;
                if self.versions.iter().any(named) {
                    continue;
                }
                let next = self.versions.iter().filter(|own| own.epoch >= target.epoch);
                let mut content = next.min_by_key(|own| own.epoch).expect("a later version").content.clone();
                content.cut(target.size);
                self.versions.push(Version { epoch: target.epoch, root: target.root, content });
            }
        }
    }

    pub(super) fn end(mut self) -> Past {
        self.states.extend(self.store.recorded().iter().map(FaultyFile::at));
        self.note_writes();
        Past {
            salt: self.file.salt(false).unwrap().unwrap(),
            versions: self.versions,
            states: self.states,
            bases: self.bases,
        }
    }
}

impl Past {
    /// Adds the present version of an open file, whatever its content.
    pub(super) fn note(&mut self, file: &File, content: &Content) {
        let st = file.core.state.read();
        let root = if st.stored.tree.size() == content.size { st.stored.tree.root() } else { [0xff; 32] };
        self.versions.push(Version { epoch: st.stored.last_epoch, root, content: content.clone() });
    }

    pub(super) fn forget(&mut self, versions: usize) {
        self.versions.truncate(versions);
    }

    pub(super) fn noted(&self) -> usize {
        self.versions.len()
    }

    fn version(&self, version: &format::record::Version) -> Option<&Version> {
        self.versions.iter().find(|own| own.size() == version.size && own.root == version.root)
    }
}

/// The records of an image; `None` for a blank sector.
fn records(context: &Context, image: &FaultyFile) -> Result<[Option<Record>; 2], RecordError> {
    let mut sectors = [[0; RECORD]; 2];
    if image.len().unwrap() >= layout::PAGE {
        image.read_at(sectors.as_flattened_mut(), 0).unwrap();
    }
    let [a, b] = sectors.map(|sector| match Record::peek_key(&sector) {
        Err(RecordError::Empty) => Ok(None),
        Err(error) => Err(error),
        Ok(key) => {
            Record::decode(&sector, &context.keys.any_of(key.salt).next().unwrap()().1.record).map(Some)
        }
    });
    Ok([a?, b?])
}

/// The contents of these files that may be read from an image, according to its records.
pub(super) fn allowed<'a>(pasts: &'a [Past], context: &Context, image: &FaultyFile) -> Allowed<'a> {
    let Ok(records) = records(context, image) else { return Allowed::Refused };
    let mut records: Vec<Record> = records.into_iter().flatten().collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.sequence));
    let newest = match records[..] {
        [] => return Allowed::Empty,
        [ref a, ref b] if a.key != b.key || a.sequence == b.sequence && a != b => return Allowed::Refused,
        [ref newest, ..] => newest.clone(),
    };
    // The versions tell to which of the two copies the record belongs.
    let find = |wanted: format::record::Version| {
        let found =
            pasts.iter().filter(|past| past.salt == newest.key.salt).find_map(|past| past.version(&wanted));
        found.unwrap_or_else(|| panic!("a version that nobody wrote: {wanted:?}"))
    };
    Allowed::Between(match newest.claim {
        Claim::Clean => return Allowed::One(find(newest.target)),
        Claim::Dirty { base, between: Between { previous, barrier } } => {
            [Some(newest.target), previous, barrier, Some(base)].into_iter().flatten().map(find).collect()
        }
        Claim::Recovery(_) => vec![find(newest.target)],
    })
}
