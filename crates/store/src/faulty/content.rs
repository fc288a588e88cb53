//! Content of a file in memory, including the states that a power cut may leave.

use super::{PAGE, SECTOR, attributes::Attributes};
use std::{collections::BTreeMap, sync::Arc};

const PAGE_BYTES: u64 = PAGE as u64;

type Page = Arc<[u8; PAGE]>;

/// Versions of a page since it was last durable.
#[derive(Clone, Default)]
struct Past {
    /// Oldest first, which is the durable one. `None` is a hole.
    versions: Vec<Option<Page>>,
    /// A failed sync marked the page clean, so later syncs do not write it.
    lost: bool,
}

#[derive(Clone, Default)]
pub(super) struct Content {
    /// The current pages. A page that is missing is a hole.
    pages: BTreeMap<u64, Page>,
    len: u64,
    past: BTreeMap<u64, Past>,
    /// Earlier lengths since the last sync, oldest first.
    lengths: Vec<u64>,
    /// Whether the last change of the length was made by a write.
    written_longer: bool,
    /// As `Past::lost`, for the length.
    length_lost: bool,
    pub(super) attributes: Attributes,
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut content = Content { len: bytes.len() as u64, ..Content::default() };
        for (number, part) in (0..).zip(bytes.chunks(PAGE)) {
            if part.iter().any(|byte| *byte != 0) {
                let mut page = [0; PAGE];
                page[..part.len()].copy_from_slice(part);
                content.pages.insert(number, Arc::new(page));
            }
        }
        content
    }

    /// A copy in which everything is durable.
    pub(super) fn durable(&self) -> Self {
        let attributes = self.attributes.durable();
        Content { pages: self.pages.clone(), len: self.len, attributes, ..Content::default() }
    }

    /// Replaces the current content, but not the durable one.
    pub(super) fn show(&mut self, bytes: &[u8]) {
        let new = Content::of(bytes);
        (self.pages, self.len) = (new.pages, new.len);
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Reads until `buf` is full or the file ends; returns the number of bytes read.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = buf.len().min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES) as usize;
            let next = len.min(done + PAGE - within);
            match self.pages.get(&(at / PAGE_BYTES)) {
                Some(page) => buf[done..next].copy_from_slice(&page[within..within + next - done]),
                None => buf[done..next].fill(0),
            }
            done = next;
        }
        len
    }

    /// Writes within one page.
    pub(super) fn write(&mut self, buf: &[u8], offset: u64) {
        let (number, within) = (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize);
        self.remember(number);
        let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[within..within + buf.len()].copy_from_slice(buf);
        let end = offset + buf.len() as u64;
        if end > self.len {
            self.lengths.push(self.len);
            (self.len, self.written_longer) = (end, true);
        }
        self.length_lost &= end < self.len;
    }

    /// Truncates or extends; returns how many pages became holes.
    pub(super) fn resize(&mut self, len: u64) -> u64 {
        if len == self.len {
            return 0;
        }
        self.lengths.push(self.len);
        let shorter = len < self.len;
        (self.len, self.written_longer, self.length_lost) = (len, false, false);
        if shorter { self.clear(len, u64::MAX) } else { 0 }
    }

    /// Zeroes a range; returns how many pages became holes.
    pub(super) fn clear(&mut self, from: u64, to: u64) -> u64 {
        let touched: Vec<u64> =
            self.pages.range(from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)).map(|(number, _)| *number).collect();
        let before = self.pages.len();
        for number in touched {
            self.remember(number);
            let start = number * PAGE_BYTES;
            if from <= start && (to >= start + PAGE_BYTES || to >= self.len) {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                let part = from.saturating_sub(start) as usize..PAGE.min((to - start) as usize);
                Arc::make_mut(page)[part].fill(0);
            }
        }
        (before - self.pages.len()) as u64
    }

    fn remember(&mut self, number: u64) {
        let past = self.past.entry(number).or_default();
        past.versions.push(self.pages.get(&number).cloned());
        past.lost = false;
    }

    /// Makes everything durable, except what an earlier failed sync lost.
    pub(super) fn sync(&mut self) {
        self.past.retain(|_, past| past.lost);
        if !self.length_lost {
            self.lengths.clear();
        }
    }

    /// A sync fails: the written data stays readable and counts as clean, although it may not be durable.
    pub(super) fn lose(&mut self) {
        // A new hole is metadata of the filesystem, not data, and is not lost.
        self.past.iter_mut().for_each(|(number, past)| past.lost = self.pages.contains_key(number));
        self.length_lost = !self.lengths.is_empty() && self.written_longer;
    }

    /// Memory pressure: reread from disk the pages that a failed sync lost.
    pub(super) fn evict(&mut self, mut pick: impl FnMut(usize) -> usize) {
        let lost: Vec<u64> = self.past.iter().filter(|(_, past)| past.lost).map(|(n, _)| *n).collect();
        for number in lost {
            let Some(past) = self.past.remove(&number) else { continue };
            let at = pick(past.versions.len() + 1);
            if let Some(version) = past.versions.into_iter().nth(at) {
                self.set(number, version);
            }
        }
    }

    fn set(&mut self, number: u64, page: Option<Page>) {
        match page {
            Some(page) => _ = self.pages.insert(number, page),
            None => _ = self.pages.remove(&number),
        }
    }

    /// A state that a power cut may leave.
    pub(super) fn power_cut(
        &self,
        torn: impl Fn(u64) -> bool,
        mut pick: impl FnMut(usize) -> usize,
    ) -> Content {
        let len = self.lengths.get(pick(self.lengths.len() + 1)).copied().unwrap_or(self.len);
        let mut after = self.durable();
        for (number, past) in &self.past {
            let now = self.pages.get(number);
            let version = |at: usize| past.versions.get(at).map_or(now, Option::as_ref);
            let kept = if torn(*number) {
                let mut mixed = [0; PAGE];
                for sector in mixed.as_chunks_mut::<SECTOR>().0.iter_mut().zip(0..) {
                    let (out, at): (&mut [u8; SECTOR], usize) = sector;
                    if let Some(page) = version(pick(past.versions.len() + 1)) {
                        out.copy_from_slice(&page[at * SECTOR..][..SECTOR]);
                    }
                }
                Some(Arc::new(mixed))
            } else {
                version(pick(past.versions.len() + 1)).cloned()
            };
            after.set(*number, kept);
        }
        after.len = len;
        after.clear(len, u64::MAX);
        after.past.clear();
        after.attributes = self.attributes.power_cut(pick);
        after
    }

    /// Pages for which a power cut may leave more than one state.
    pub(super) fn unsynced(&self) -> impl Iterator<Item = u64> {
        self.past.keys().copied()
    }

    /// Whether a power cut could leave more than one state.
    pub(super) fn is_unsynced(&self) -> bool {
        !self.past.is_empty() || !self.lengths.is_empty() || self.attributes.is_unsynced()
    }

    /// Whether nothing is stored for this page.
    pub(super) fn is_hole(&self, page: u64) -> bool {
        !self.pages.contains_key(&page)
    }

    /// The first offset from `offset` on that is not in a hole.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (number, _) = self.pages.range(offset / PAGE_BYTES..).next()?;
        Some(offset.max(number * PAGE_BYTES)).filter(|found| *found < self.len)
    }
}
