//! Computes the root of a version from the digests of its leaves, in one pass, with one page in memory
//! per level.

use super::{Children, FANOUT};
use crate::error::Result;
use crypto::kdf::FileKeys;
use format::{
    layout,
    tree::{ALL_HOLES, Digest, node_digest},
};

/// The node pages on the path from the last added leaf to the root.
pub(crate) struct RootBuilder<'a> {
    keys: &'a FileKeys,
    /// Pages of levels 1, 2, …
    open: Vec<PartialPage>,
    root: Digest,
}

struct PartialPage {
    k: u64,
    children: Children,
}

/// Receives each node page that is not all holes: level, index, children.
pub(crate) trait Sink: FnMut(u32, u64, &[Digest; FANOUT]) -> Result<()> {}
impl<F: FnMut(u32, u64, &[Digest; FANOUT]) -> Result<()>> Sink for F {}

impl<'a> RootBuilder<'a> {
    /// Starts a version of `size` bytes.
    pub(crate) fn new(keys: &'a FileKeys, size: u64) -> Self {
        let page = |_| PartialPage { k: 0, children: Box::new([ALL_HOLES; FANOUT]) };
        let open = (0..layout::levels(layout::groups(size))).map(page).collect();
        RootBuilder { keys, open, root: ALL_HOLES }
    }

    /// Adds the digest of a group. Groups must be in ascending order; omitted ones are holes.
    ///
    /// # Errors
    /// Those of `sink`.
    pub(crate) fn add(&mut self, group: u64, leaf: Digest, sink: &mut impl Sink) -> Result<()> {
        if leaf == ALL_HOLES { Ok(()) } else { self.put(0, group, leaf, sink) }
    }

    /// Closes the open pages and returns the root.
    ///
    /// # Errors
    /// Those of `sink`.
    pub(crate) fn finish(mut self, sink: &mut impl Sink) -> Result<Digest> {
        for below in 0..self.open.len() {
            self.close(below, sink)?;
        }
        Ok(self.root)
    }

    /// Puts the digest of a leaf (level 0) or node page into its parent page.
    fn put(&mut self, level: usize, index: u64, digest: Digest, sink: &mut impl Sink) -> Result<()> {
        let (k, place) = (index / FANOUT as u64, (index % FANOUT as u64) as usize);
        match self.open.get(level) {
            None => {
                self.root = digest;
                return Ok(());
            }
            Some(page) if page.k != k => self.close(level, sink)?,
            Some(_) => {}
        }
        let page = &mut self.open[level];
        page.k = k;
        page.children[place] = digest;
        Ok(())
    }

    /// Closes the open page above level `below`.
    fn close(&mut self, below: usize, sink: &mut impl Sink) -> Result<()> {
        let level = below as u32 + 1;
        let PartialPage { k, children } = &self.open[below];
        let (k, digest) = (*k, node_digest(self.keys, level, *k, children));
        if digest == ALL_HOLES {
            return Ok(());
        }
        sink(level, k, children)?;
        self.open[below].children.fill(ALL_HOLES);
        self.put(below + 1, k, digest, sink)
    }
}
