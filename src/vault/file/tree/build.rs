//! The root of a version from the digests of its leaves, in one pass and with a page of memory for each level.

use super::{Children, FANOUT};
use crate::{
    crypto::kdf::FileKeys,
    format::{
        layout,
        tree::{ALL_HOLES, Digest, node_digest},
    },
    vault::Result,
};

/// The node pages on the way from the leaf that was added last to the root.
pub(in crate::vault::file) struct RootBuilder<'a> {
    keys: &'a FileKeys,
    /// Of levels 1, 2, …
    open: Vec<Page>,
    root: Digest,
}

struct Page {
    k: u64,
    children: Children,
}

/// Takes each node page that is not all holes: level, place, children.
pub(in crate::vault::file) trait Sink:
    FnMut(u32, u64, &[Digest; FANOUT]) -> Result<()>
{
}
impl<F: FnMut(u32, u64, &[Digest; FANOUT]) -> Result<()>> Sink for F {}

impl<'a> RootBuilder<'a> {
    /// For a version of `size` bytes.
    pub(in crate::vault::file) fn new(keys: &'a FileKeys, size: u64) -> Self {
        let page = |_| Page { k: 0, children: Box::new([ALL_HOLES; FANOUT]) };
        let open = (0..layout::levels(layout::groups(size))).map(page).collect();
        RootBuilder { keys, open, root: ALL_HOLES }
    }

    /// Adds the digest of a group behind all that were added before. Groups that are left out are holes.
    ///
    /// # Errors
    /// Those of `sink`.
    pub(in crate::vault::file) fn add(
        &mut self,
        group: u64,
        leaf: Digest,
        sink: &mut impl Sink,
    ) -> Result<()> {
        if leaf == ALL_HOLES { Ok(()) } else { self.put(0, group, leaf, sink) }
    }

    /// The root.
    ///
    /// # Errors
    /// Those of `sink`.
    pub(in crate::vault::file) fn finish(mut self, sink: &mut impl Sink) -> Result<Digest> {
        for below in 0..self.open.len() {
            self.close(below, sink)?;
        }
        Ok(self.root)
    }

    /// Puts the digest of a leaf (level 0) or node page into the page above it.
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

    /// Ends the open page over a level.
    fn close(&mut self, below: usize, sink: &mut impl Sink) -> Result<()> {
        let level = below as u32 + 1;
        let Page { k, children } = &self.open[below];
        let (k, digest) = (*k, node_digest(self.keys, level, *k, children));
        if digest == ALL_HOLES {
            return Ok(());
        }
        sink(level, k, children)?;
        self.open[below].children.fill(ALL_HOLES);
        self.put(below + 1, k, digest, sink)
    }
}
