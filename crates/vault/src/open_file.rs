//! An open regular file: its content, its descriptor, and its inode.

use content::{Context, Error, File};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use store::{DirFile, Node};

/// Device and inode number in the store.
pub type Key = (u64, u64);

/// An open regular file, shared by all its handles.
pub struct OpenFile {
    /// Its content.
    pub file: Arc<File>,
    /// Its descriptor in the store.
    pub store: Arc<DirFile>,
    /// Device and inode number in the store.
    pub key: Key,
    /// The inode's last link is gone, so unflushed data need not be stored.
    pub(super) unlinked: AtomicBool,
    /// A failure to store something was logged, and not everything has been stored since.
    pub(super) complained: AtomicBool,
    generation: OnceLock<u32>,
}

impl OpenFile {
    /// Wraps a file that was just opened or created.
    pub(super) fn new(file: Arc<File>, store: Arc<DirFile>, key: Key) -> Self {
        OpenFile {
            file,
            store,
            key,
            unlinked: AtomicBool::new(false),
            complained: AtomicBool::new(false),
            generation: OnceLock::new(),
        }
    }

    /// [`Node::generation`] of its inode. Asks the store once, as the inode cannot change while the
    /// file is open.
    pub(super) fn generation(&self) -> u32 {
        *self.generation.get_or_init(|| Node::shared(self.store.fd()).generation())
    }

    /// Whether the table can drop the file without losing data.
    pub(super) fn may_go(&self, context: &Context) -> bool {
        context.read_only
            || self.unlinked.load(Ordering::Relaxed)
            || self.file.is_clean()
            || self.file.failed()
    }

    /// Logs that something cannot be stored, once until everything is stored.
    pub(super) fn complain(&self, e: &Error) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            log::error!("inode {}: cannot store written data: {e}", self.key.1);
        }
    }
}
