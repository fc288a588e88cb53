//! The page of the commit records, as the store has it.

use crate::{
    format::{layout, record::RECORD},
    store::BackingFile,
};
use std::io;

/// It is read at once, as a store may be far away.
pub(in crate::vault::file) struct Header {
    page: [u8; layout::PAGE as usize],
    is_whole: bool,
}

impl Header {
    /// What the stored file begins with; zeros behind its end.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::vault::file) fn read(store: &dyn BackingFile) -> io::Result<Self> {
        let mut page = [0; layout::PAGE as usize];
        let is_whole = store.read_at(&mut page, 0)? == page.len();
        Ok(Header { page, is_whole })
    }

    /// All of it; `None` if nothing was committed: both records are zeros, or the file is shorter than this page. A power cut may
    /// keep a later record of a new file and lose the rest of its first page.
    pub(in crate::vault::file) fn committed(&self) -> Option<&[u8; layout::PAGE as usize]> {
        (self.is_whole && self.records() != [[0; RECORD]; 2]).then_some(&self.page)
    }

    /// Both records.
    pub(in crate::vault::file) fn records(&self) -> [[u8; RECORD]; 2] {
        let mut records = [[0; RECORD]; 2];
        records.as_flattened_mut().copy_from_slice(&self.page[..2 * RECORD]);
        records
    }
}
