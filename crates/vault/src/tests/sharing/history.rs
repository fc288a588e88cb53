//! A model of the contents that a file may have.

use super::Draw;

/// Several groups of chunks, so that there are node pages.
pub(super) const LONGEST: usize = 260 << 10;

/// Picks a random offset, and the data to write there.
pub(super) fn some_data(draw: &mut Draw) -> (usize, Vec<u8>) {
    let offset = draw.below(LONGEST) / [1, 4096][draw.below(2)] * [1, 64][draw.below(2)] % LONGEST;
    let most = [300, 20_000, 150_000][draw.below(3)];
    (offset, vec![1 + draw.below(255) as u8; 1 + draw.below(most)])
}

/// Writes `data` to a content.
pub(super) fn put(now: &mut Vec<u8>, offset: usize, data: &[u8]) {
    now.resize(now.len().max(offset + data.len()), 0);
    now[offset..offset + data.len()].copy_from_slice(data);
}

/// A process that has a file's lease.
pub(super) struct Holder {
    pub(super) client: usize,
    /// The content as the holder has changed it.
    pub(super) now: Vec<u8>,
    /// The content that certainly survives if the holder is killed.
    pub(super) floor: Vec<u8>,
    /// Later contents, any part of which may have replaced `floor`.
    pub(super) later: Vec<Vec<u8>>,
}

/// A file: every version that was visible to all, and the version that one holder is creating.
#[derive(Default)]
pub(super) struct Content {
    pub(super) versions: Vec<Vec<u8>>,
    pub(super) holder: Option<Holder>,
    /// Content that a killed holder left: its `floor` and `later`.
    pub(super) left: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    /// A kill left a non-empty stored file without a header. It reads as empty, but until it is written,
    /// its attributes report another size.
    pub(super) may_be_blank: bool,
}

impl Content {
    pub(super) fn new() -> Self {
        Content { versions: vec![Vec::new()], ..Content::default() }
    }

    pub(super) fn last(&self) -> &[u8] {
        self.versions.last().unwrap()
    }

    pub(super) fn is_held_by(&self, client: usize) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.client == client)
    }

    pub(super) fn is_held_by_another(&self, client: usize) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.client != client)
    }

    /// Records a change by `client`.
    pub(super) fn change(&mut self, client: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let last = self.last().to_vec();
        let holder = self.holder.get_or_insert_with(|| Holder {
            client,
            now: last.clone(),
            floor: last,
            later: Vec::new(),
        });
        change(&mut holder.now);
        holder.later.push(holder.now.clone());
    }

    /// Records that all changes are in the store.
    pub(super) fn stored(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.floor = holder.now.clone();
            holder.later.clear();
        }
    }

    /// Records that the lease was released.
    pub(super) fn given_back(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.may_be_blank = false;
            self.versions.push(holder.now);
        }
    }

    pub(super) fn killed(&mut self) {
        if let Some(Holder { floor, later, .. }) = self.holder.take() {
            self.left = Some((floor, later));
        }
    }

    /// Records that the store has revoked the lease, if `client` holds it.
    pub(super) fn lost_by(&mut self, client: usize) -> Option<Holder> {
        let holder = self.holder.take_if(|holder| holder.client == client)?;
        self.left = Some((holder.floor.clone(), holder.later.clone()));
        Some(holder)
    }

    /// Checks the first read after a holder was killed; its result becomes the current version.
    pub(super) fn recovered(&mut self, read: Vec<u8>) {
        let Some((floor, later)) = self.left.take() else { return };
        let all: Vec<&Vec<u8>> = std::iter::once(&floor).chain(&later).collect();
        let lens = || all.iter().map(|version| version.len());
        let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
        assert!((least..=most).contains(&read.len()), "{} bytes, not {least} to {most}", read.len());
        for (at, byte) in read.iter().enumerate() {
            // There may be a hole between two sizes.
            let may_be = |version: &&Vec<u8>| version.get(at).copied().unwrap_or(0) == *byte;
            assert!(all.iter().any(may_be), "byte {at} was never {byte} since what was confirmed");
        }
        self.may_be_blank = read.is_empty();
        self.versions.push(read);
    }

    /// Checks a read through a handle that was opened at version `since` and may also see `more`.
    pub(super) fn may_read(&self, since: usize, more: &[Vec<u8>], read: &[u8]) {
        let versions = || self.versions[since..].iter().chain(more);
        assert!(versions().any(|version| version.len() == read.len()), "{} bytes", read.len());
        for (at, byte) in read.iter().enumerate() {
            let may_be = |version: &Vec<u8>| version.get(at) == Some(byte);
            assert!(versions().any(may_be), "byte {at} was not {byte} since the file was opened");
        }
    }
}
