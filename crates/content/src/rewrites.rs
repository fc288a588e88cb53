//! Separate files that hold the new forms of files being rewritten under another key.

use format::record::RECORD;
use std::{ffi::OsString, io, sync::Arc};
use store::BackingFile;

/// Both record sectors of a file.
pub type Sectors = [[u8; RECORD]; 2];

/// Manages the separate files that hold new forms.
pub trait Rewrites: Send + Sync {
    /// Creates an empty one.
    ///
    /// # Errors
    /// The store's.
    fn begin(&self) -> io::Result<Rewrite>;
    /// Removes one.
    ///
    /// # Errors
    /// The store's.
    fn remove(&self, rewrite: &Rewrite) -> io::Result<()>;
    /// Removes all that a crash left behind. No file may still need one.
    ///
    /// # Errors
    /// The store's.
    fn clear(&self) -> io::Result<()>;
    /// Makes creations and removals durable.
    ///
    /// # Errors
    /// The store's.
    fn sync(&self) -> io::Result<()>;
    /// Finds one left by a crash whose sectors satisfy `wanted`.
    ///
    /// # Errors
    /// The store's.
    fn left(&self, wanted: &dyn Fn(&Sectors) -> bool) -> io::Result<Option<Rewrite>>;
}

/// The new form of a file being rewritten.
pub struct Rewrite {
    /// Its file name.
    pub name: OsString,
    /// Its stored bytes.
    pub store: Arc<dyn BackingFile>,
}
