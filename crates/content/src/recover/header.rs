//! The stored page with the commit records.

use format::{layout, record::RECORD};
use std::io;
use store::BackingFile;

/// Read in one call, because the store may be remote.
pub(crate) struct Header {
    page: [u8; layout::PAGE as usize],
    is_whole: bool,
}

impl Header {
    /// Reads the first page of the stored file, with zeros past its end.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn read(store: &dyn BackingFile) -> io::Result<Self> {
        let mut page = [0; layout::PAGE as usize];
        let is_whole = store.read_at(&mut page, 0)? == page.len();
        Ok(Header { page, is_whole })
    }

    /// The page; `None` if nothing was committed, that is, if both records are zeros or the file is
    /// shorter than a page. A power cut may keep a later record of a new file and lose the rest of its
    /// first page.
    pub(crate) fn committed(&self) -> Option<&[u8; layout::PAGE as usize]> {
        (self.is_whole && self.records() != [[0; RECORD]; 2]).then_some(&self.page)
    }

    /// Both record sectors.
    pub(crate) fn records(&self) -> [[u8; RECORD]; 2] {
        let mut records = [[0; RECORD]; 2];
        records.as_flattened_mut().copy_from_slice(&self.page[..2 * RECORD]);
        records
    }
}
