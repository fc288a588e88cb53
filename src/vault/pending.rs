//! Small files that names depend on and that are not known to be durable yet: directory id files and
//! long-name sidecars.
//!
//! They are written without a barrier, so that making many directories stays fast, and made durable all
//! together before anything that depends on one of them is promised to be durable.

use crate::store::StoreDir;
use parking_lot::Mutex;
use rustix::{fs::OFlags, io::Errno};
use std::{ffi::OsString, io, sync::Arc};

/// More than this are made durable by one call for the whole store: each one kept holds a descriptor.
const MOST: usize = 512;
/// The part of the process's descriptors that they may take.
const SHARE: usize = 8;

/// What has yet to be made durable.
pub(super) struct Pending {
    most: usize,
    queue: Mutex<Queue>,
    /// Held while a queue is made durable: who comes meanwhile may depend on it and has to wait.
    flushing: Mutex<()>,
}

#[derive(Default)]
struct Queue {
    files: Vec<(Arc<StoreDir>, OsString)>,
    overflown: bool,
}

impl Pending {
    /// Nothing yet; with `descriptors` for the whole process.
    pub(super) fn new(descriptors: usize) -> Self {
        Pending { most: MOST.min(descriptors / SHARE), queue: Mutex::default(), flushing: Mutex::default() }
    }

    /// Notes that the file `name` in `dir` was written.
    pub(super) fn add(&self, dir: &Arc<StoreDir>, name: OsString) {
        let mut queue = self.queue.lock();
        if queue.overflown {
            return;
        }
        if queue.files.len() >= self.most {
            *queue = Queue { files: Vec::new(), overflown: true };
            return;
        }
        queue.files.push((dir.clone(), name));
    }

    /// Makes everything noted so far durable; `root` is any directory of the store.
    ///
    /// # Errors
    /// The store's; everything then stays noted.
    pub(super) fn make_durable(&self, root: &StoreDir) -> io::Result<()> {
        let _flushing = self.flushing.lock();
        let queue = std::mem::take(&mut *self.queue.lock());
        let result = if queue.overflown {
            root.sync_all()
        } else {
            queue.files.iter().try_for_each(|(dir, name)| sync_file_in(dir, name))
        };
        if result.is_err() {
            let mut current = self.queue.lock();
            current.overflown |= queue.overflown;
            current.files.extend(queue.files);
        }
        result
    }
}

/// Makes one file and its entry durable; one that is gone needs nothing.
fn sync_file_in(dir: &StoreDir, name: &OsString) -> io::Result<()> {
    match dir.open_file(name, OFlags::RDONLY) {
        Ok(file) => rustix::fs::fsync(file)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A directory that even its owner may not search now: only the whole store can be asked.
        Err(e) if e.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => return dir.sync_all(),
        Err(e) => return Err(e),
    }
    dir.sync()
}
