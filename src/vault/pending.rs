//! Small files that names depend on and that are not known to be durable yet: directory id files and
//! long-name sidecars.
//!
//! They are written without a barrier, so that making many directories stays fast, and made durable all
//! together before anything that depends on one of them is promised to be durable.

use crate::store::{Filesystem, StoreDir};
use parking_lot::Mutex;
use rustix::{fs::OFlags, io::Errno};
use std::{ffi::OsString, io, sync::Arc};

/// More than this are made durable by one call for the whole store: each one kept holds a descriptor.
const MOST: usize = 512;
/// The part of the process's descriptors that they may take.
const SHARE: usize = 8;

/// What has yet to be made durable.
pub(super) struct Pending {
    filesystem: Filesystem,
    most: usize,
    queue: Mutex<Queue>,
    /// Held while a queue is made durable: who comes meanwhile may depend on it and has to wait. True once a sync failed:
    /// one that succeeds afterwards says nothing about what the failed one lost.
    failed: Mutex<bool>,
}

#[derive(Default)]
struct Queue {
    files: Vec<(Arc<StoreDir>, OsString)>,
    overflown: bool,
}

impl Pending {
    /// Nothing yet; with `descriptors` for the whole process.
    pub(super) fn new(filesystem: Filesystem, descriptors: usize) -> Self {
        let (queue, failed) = (Mutex::default(), Mutex::default());
        Pending { filesystem, most: MOST.min(descriptors / SHARE), queue, failed }
    }

    /// Notes that the file `name` in `dir` was written.
    pub(super) fn add(&self, dir: &Arc<StoreDir>, name: OsString) {
        let mut queue = self.queue.lock();
        if queue.overflown {
            return;
        }
        if queue.files.len() >= self.most && self.filesystem.syncs() {
            *queue = Queue { files: Vec::new(), overflown: true };
            return;
        }
        queue.files.push((dir.clone(), name));
        let full = queue.files.len() > self.most;
        drop(queue);
        // Each by itself, then, and before there are more. What fails stays noted: the next fsync says so.
        if full && let Err(e) = self.make_durable() {
            log::warn!("names cannot be made durable: {e}");
        }
    }

    /// Makes everything noted so far durable.
    ///
    /// # Errors
    /// The store's; everything then stays noted. EIO for good once something may be gone.
    pub(super) fn make_durable(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            return Err(Errno::IO.into());
        }
        let queue = std::mem::take(&mut *self.queue.lock());
        let result = if queue.overflown {
            self.filesystem.sync()
        } else {
            queue.files.iter().try_for_each(|(dir, name)| self.sync_file(dir, name))
        };
        if let Err(e) = &result {
            *failed = is_loss(e);
            let mut current = self.queue.lock();
            current.overflown |= queue.overflown;
            current.files.extend(queue.files);
        }
        result
    }

    /// Makes one file and its entry durable; one that is gone needs nothing.
    fn sync_file(&self, dir: &StoreDir, name: &OsString) -> io::Result<()> {
        let file = dir.open_file(name, OFlags::RDONLY);
        match file.and_then(|file| Ok(rustix::fs::fsync(file)?)).and_then(|()| dir.sync()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            // A directory that even its owner may not read or search now: only the whole store can be asked.
            Err(e) if e.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => self.filesystem.sync(),
            synced => synced,
        }
    }
}

/// Whether an error says that what was written may be gone.
fn is_loss(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::IO | Errno::NOSPC | Errno::DQUOT))
}
