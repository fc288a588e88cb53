//! Small files that names depend on and that are not known to be durable yet: directory id files and
//! long-name sidecars.
//!
//! They are written without a barrier, so that creating many directories stays fast. All of them are
//! made durable together before anything that depends on one of them is confirmed as durable. After a
//! failed sync, a later successful sync says nothing about the data that the failed one lost, so the
//! files are written again before the next sync. Files left by a killed process are not known to be
//! durable either. The next process syncs the whole store or, if the store does not support that, notes
//! each such file that it meets.

use super::{
    Dir, Vault,
    dir::stored_path,
    keys::NamespaceKeys,
    names::{is_set_aside, read_opened, read_small},
    sharing::is_gone,
};
use content::Result;
use format::name::{DIR_ID_NAME, LONG, sidecar_name};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};
use store::{BackingFile, DirFile, Filesystem, StoreDir, fsync, is_dots};

/// If more than this are noted, the whole store is synced instead of each one. Every noted file holds a
/// descriptor of its directory.
const MOST_PENDING: usize = 512;
/// The noted files may use one part in `SHARE` of the process's descriptors.
const SHARE: usize = 8;

/// The small files that still have to be made durable.
pub(super) struct Pending {
    filesystem: Filesystem,
    most: usize,
    queue: Mutex<PendingQueue>,
    /// Held while a queue is made durable. Other callers may depend on that queue and have to wait. True
    /// from a failed sync until everything that it may have lost is written again and durable.
    doubtful: Mutex<bool>,
    /// Number of syncs that fail from now on.
    #[cfg(test)]
    pub(super) failing: std::sync::atomic::AtomicU32,
}

#[derive(Default)]
struct PendingQueue {
    files: Vec<Small>,
    /// The list is incomplete.
    overflown: bool,
}

struct Small {
    dir: Arc<StoreDir>,
    name: OsString,
    content: Vec<u8>,
}

impl Pending {
    /// An empty queue. `descriptors` is the process's limit.
    pub(super) fn new(filesystem: Filesystem, descriptors: usize) -> Self {
        Pending {
            filesystem,
            most: MOST_PENDING.min(descriptors / SHARE),
            queue: Mutex::default(),
            doubtful: Mutex::default(),
            #[cfg(test)]
            failing: Default::default(),
        }
    }

    /// Notes that the file `name` in `dir` was written.
    pub(super) fn add(&self, dir: &Arc<StoreDir>, name: OsString, content: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.overflown {
            return;
        }
        // A store that cannot be synced as a whole gets twice the room, for files noted while a sync is
        // in progress or a failure is still to be repaired.
        let most = if self.filesystem.syncs() { self.most } else { 2 * self.most };
        if queue.files.len() >= most {
            *queue = PendingQueue { files: Vec::new(), overflown: true };
            return;
        }
        queue.files.push(Small { dir: dir.clone(), name, content: content.to_vec() });
        let full = queue.files.len() > self.most;
        drop(queue);
        // Sync the files one by one before there are more. Failures stay noted, and the next fsync
        // reports them. Do not wait for the lock: a thread that recovers from a failed sync may need a
        // lock that the caller holds.
        if full
            && let Some(mut doubtful) = self.doubtful.try_lock()
            && !*doubtful
            && let Err(e) = self.make_durable(&mut doubtful, |queue| self.sync(queue).map(|()| 0))
        {
            log::warn!("names cannot be made durable: {e}");
        }
    }

    /// Calls `make` to make everything noted so far durable. `make` returns how many files are
    /// permanently lost. If it fails, the next call has to repair what may be lost.
    fn make_durable(
        &self,
        doubtful: &mut bool,
        make: impl FnOnce(&PendingQueue) -> io::Result<usize>,
    ) -> io::Result<()> {
        let queue = std::mem::take(&mut *self.queue.lock());
        match make(&queue) {
            Ok(lost) => {
                *doubtful = false;
                if lost == 0 { Ok(()) } else { Err(Errno::IO.into()) }
            }
            Err(e) => {
                *doubtful = true;
                let mut current = self.queue.lock();
                current.overflown |= queue.overflown;
                // Older ones first: of several entries for one name, the last counts.
                let newer = std::mem::replace(&mut current.files, queue.files);
                current.files.extend(newer);
                Err(e)
            }
        }
    }

    fn sync(&self, queue: &PendingQueue) -> io::Result<()> {
        if queue.overflown {
            return self.sync_all();
        }
        queue.files.iter().try_for_each(|small| self.sync_file(&small.dir, &small.name))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.fail()?;
        self.filesystem.sync()
    }

    /// Makes one file and its directory entry durable. A file that is gone needs nothing.
    pub(super) fn sync_file(&self, dir: &StoreDir, name: &OsStr) -> io::Result<()> {
        self.fail()?;
        let file = dir.open_file(name, OFlags::RDONLY);
        match file.and_then(fsync).and_then(|()| dir.sync()) {
            Err(e) if is_gone(&e) => Ok(()),
            // Even its owner may not read or search the directory now, so only the whole store can be
            // synced.
            Err(e) if is_refusal(&e) => self.filesystem.sync(),
            synced => synced,
        }
    }

    /// The failure that a test asked for.
    fn fail(&self) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering;
            let left = self.failing.load(Ordering::Relaxed);
            self.failing.store(left.saturating_sub(1), Ordering::Relaxed);
            if left > 0 {
                return Err(Errno::IO.into());
            }
        }
        Ok(())
    }
}

/// Small files met so far that a killed previous holder of the vault may have left not durable: files by
/// their content, which is unique, and directories in which all such files were met, by their ids.
#[derive(Default)]
pub(super) struct Met(Mutex<HashSet<Vec<u8>>>);

impl Vault {
    /// Notes an id or a sidecar that is about to be relied on, if it may not be durable.
    pub(super) fn note_met(&self, dir: &Arc<StoreDir>, name: &OsStr, content: &[u8]) {
        if let Some(met) = &self.left_pending
            && met.0.lock().insert(content.to_vec())
        {
            self.pending.add(dir, name.to_owned(), content);
        }
    }

    /// Calls `note_met` for the sidecar of a stored name, if the name is a long one. An unreadable sidecar
    /// is skipped, because the name cannot rely on it.
    pub(super) fn note_met_sidecar(&self, dir: &Dir, stored: &OsStr) {
        if self.left_pending.is_some() && stored.as_bytes().starts_with(LONG.as_bytes()) {
            let name = OsString::from_vec(sidecar_name(stored.as_bytes()));
            if let Ok(content) = read_small(dir, &name) {
                self.note_met(&dir.store, &name, &content);
            }
        }
    }

    /// Calls `note_met_sidecar` for all names in a directory that is about to be made durable. Done once
    /// per directory, because later names are noted when they are created.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn note_met_in(&self, dir: &Dir) -> io::Result<()> {
        let (Some(met), Some(id)) = (&self.left_pending, &dir.id) else { return Ok(()) };
        if met.0.lock().contains(id.0.as_slice()) {
            return Ok(());
        }
        let listed = self.with_access(&dir.store.itself(), 0o500, || dir.store.list())?;
        listed.iter().for_each(|entry| self.note_met_sidecar(dir, &entry.name));
        met.0.lock().insert(id.0.to_vec());
        Ok(())
    }

    /// Makes durable what the names created so far depend on: directory ids and the sidecars of long
    /// names.
    ///
    /// # Errors
    /// The store's. The next call writes again what may be lost.
    pub fn make_names_durable(&self) -> Result<()> {
        if self.read_only() {
            return Ok(());
        }
        let mut doubtful = self.pending.doubtful.lock();
        if !*doubtful {
            self.check_lock()?;
            return Ok(self
                .pending
                .make_durable(&mut doubtful, |queue| self.pending.sync(queue).map(|()| 0))?);
        }
        drop(doubtful);
        // No name may move to a part of the store that was already visited. This lock precedes
        // `doubtful` in the lock order.
        let alone = self.long_names.lock();
        self.make_names_durable_among(&alone)
    }

    /// Whether the store can be synced as a whole.
    pub(super) fn can_sync_store(&self) -> bool {
        self.pending.filesystem.syncs()
    }

    /// Makes everything in the store durable, including names and attributes. Returns false if the store
    /// can only sync single files and directories.
    ///
    /// # Errors
    /// The store's.
    pub fn sync_store(&self) -> Result<bool> {
        if !self.can_sync_store() {
            return Ok(false);
        }
        self.make_names_durable()?;
        // The store reports a failure only once, even if it affects small files that were noted
        // meanwhile.
        let mut doubtful = self.pending.doubtful.lock();
        self.pending.sync_all().inspect_err(|_| *doubtful = true)?;
        Ok(true)
    }

    /// [`Vault::make_names_durable`] for a caller that holds the lock of long names.
    pub(super) fn make_names_durable_among(&self, _alone: &MutexGuard<()>) -> Result<()> {
        self.check_lock()?;
        let mut doubtful = self.pending.doubtful.lock();
        let again = *doubtful;
        Ok(self.pending.make_durable(&mut doubtful, |queue| {
            if again { self.write_again(queue) } else { self.pending.sync(queue).map(|()| 0) }
        })?)
    }

    fn check_lock(&self) -> io::Result<()> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// After a failed sync, writes the files again and makes them durable. If the list is incomplete,
    /// covers all small files in the store. Returns how many are lost.
    fn write_again(&self, queue: &PendingQueue) -> io::Result<usize> {
        log::warn!("a sync failed; rewriting the files that names depend on");
        // In reverse order: of several entries for one name the last is the valid one, and earlier ones
        // then find it right.
        for small in queue.files.iter().rev() {
            self.with_access(&small.dir.itself(), 0o700, || {
                self.rewrite(&small.dir, &small.name, Some(&small.content), true)
            })?;
        }
        if !queue.overflown {
            return Ok(0);
        }
        let each = !self.pending.filesystem.syncs();
        let lost = self.rewrite_below(&self.root.store, each)?;
        if !each {
            self.pending.sync_all()?;
        }
        Ok(lost)
    }

    /// Writes again all small files in a directory and below it. Syncs each one if `each`.
    fn rewrite_below(&self, dir: &StoreDir, each: bool) -> io::Result<usize> {
        let mut stream = self.with_access(&dir.itself(), 0o500, || dir.stream())?;
        let mut lost = 0;
        loop {
            let listed = stream.next(dir)?;
            if listed.is_empty() {
                return Ok(lost);
            }
            for (_, entry) in listed.iter().filter(|(_, entry)| !is_dots(&entry.name) && !is_set_aside(entry))
            {
                let (name, node) = (&*entry.name, dir.itself());
                let done = if entry.kind == FileType::Directory {
                    let inner = self.with_access(&node, 0o100, || dir.open_dir(name));
                    inner.and_then(|inner| self.rewrite_below(&inner, each))
                } else if name == DIR_ID_NAME || self.is_sidecar(name) {
                    let rewritten = self.with_access(&node, 0o100, || self.rewrite(dir, name, None, each));
                    rewritten.map(usize::from)
                } else {
                    Ok(0)
                };
                lost += match done {
                    // Gone meanwhile, or another user's and so not written by this process.
                    Err(e) if is_gone(&e) || is_refusal(&e) => 0,
                    done => done?,
                };
            }
        }
    }

    /// Writes a small file again: with its present content or, if that is wrong, with the `known`
    /// content. Returns true if the content is wrong and no other is known. Does not create the file, so
    /// a removed one stays removed.
    fn rewrite(&self, dir: &StoreDir, name: &OsStr, known: Option<&[u8]>, sync: bool) -> io::Result<bool> {
        let fd = match dir.open_file(name, OFlags::RDWR) {
            Err(e) if is_gone(&e) => return Ok(false),
            opened => opened?,
        };
        let file = DirFile::new(fd);
        let present = read_opened(&file)?;
        let content = match known {
            _ if self.is_right(name, &present) => &present,
            Some(known) => known,
            None => {
                log::error!("{}: lost in a failed sync", stored_path(dir, name));
                return Ok(true);
            }
        };
        file.write_at(content, 0)?;
        file.set_len(content.len() as u64)?;
        if sync {
            self.pending.fail()?;
            fsync(&*file.fd())?;
            dir.sync()?;
        }
        Ok(false)
    }

    /// Whether the content of a small file authenticates for its name.
    fn is_right(&self, name: &OsStr, content: &[u8]) -> bool {
        if name == DIR_ID_NAME {
            self.keys.open(|keys| keys.open_dir_id(content)).is_ok()
        } else {
            let is_sidecar = |keys: &NamespaceKeys| keys.names.is_sidecar(name.as_encoded_bytes(), content);
            self.keys.open(|keys| is_sidecar(keys).then_some(()).ok_or(())).is_ok()
        }
    }
}

fn is_refusal(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::ACCESS.raw_os_error())
}
