//! Files in the vault's root that hold the new form of files that are being rewritten under another key.

use super::names::random_name;
use content::{Rewrite, Rewrites, Sectors};
use format::{name::REWRITE, record::RECORD};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::{ffi::OsString, io, os::unix::ffi::OsStrExt, sync::Arc};
use store::{BackingFile, DirFile, Listed, StoreDir};

/// The new forms in the store.
pub(super) struct StoredRewrites {
    root: StoreDir,
    /// New forms that a crash left behind, and their record sectors.
    left: Mutex<Vec<(OsString, Sectors)>>,
}

impl StoredRewrites {
    /// Finds the new forms that a crash left in the vault's root, if a rotation is in progress.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn open(root: StoreDir, rotating: bool) -> io::Result<Self> {
        let mut left = Vec::new();
        let listed = if rotating { root.list()? } else { Vec::new() };
        for entry in listed.into_iter().filter(is_rewrite) {
            let mut records = [[0; RECORD]; 2];
            let file = DirFile::new(root.open_file(&entry.name, OFlags::RDONLY)?);
            if file.read_at(records.as_flattened_mut(), 0)? == 2 * RECORD {
                left.push((entry.name, records));
            }
        }
        Ok(StoredRewrites { root, left: Mutex::new(left) })
    }
}

/// Whether an entry of the vault's root is the new form of a file.
fn is_rewrite(entry: &Listed) -> bool {
    entry.name.as_bytes().starts_with(REWRITE.as_bytes())
}

impl Rewrites for StoredRewrites {
    fn begin(&self) -> io::Result<Rewrite> {
        let name = random_name(REWRITE)?;
        let store = Arc::new(DirFile::new(self.root.create_file(&name, 0o600)?));
        Ok(Rewrite { name, store })
    }

    fn sync(&self) -> io::Result<()> {
        self.root.sync()
    }

    fn remove(&self, rewrite: &Rewrite) -> io::Result<()> {
        self.root.unlink(&rewrite.name)?;
        self.left.lock().retain(|(name, _)| *name != rewrite.name);
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        for entry in self.root.list()?.iter().filter(|entry| is_rewrite(entry)) {
            self.root.unlink(&entry.name)?;
        }
        self.left.lock().clear();
        self.root.sync()
    }

    fn left(&self, wanted: &dyn Fn(&Sectors) -> bool) -> io::Result<Option<Rewrite>> {
        let name = self.left.lock().iter().find(|(_, of)| wanted(of)).map(|(name, _)| name.clone());
        let Some(name) = name else { return Ok(None) };
        let store = Arc::new(DirFile::new(self.root.open_file(&name, OFlags::RDONLY)?));
        Ok(Some(Rewrite { name, store }))
    }
}
