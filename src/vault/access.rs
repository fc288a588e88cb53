//! Reaching the store where its permission bits are in the way of what the kernel has already granted.

use super::{
    Dir, Error, OpenFile, Result, StoredName, Target, Vault,
    anchor::Identity,
    attr::{key, permissions, stamp},
};
use crate::store::{DirFile, Node, is_marked};
use rustix::{
    fs::{FileType, OFlags, Stat as RawStat},
    io::Errno,
};
use std::{io, sync::Arc};

impl Vault {
    /// Opens a regular file. One `OpenFile` serves all handles of an inode.
    ///
    /// # Errors
    /// `Invalid` for anything that is not a regular file; else the store's.
    pub fn open_file(&self, parent: &Dir, name: &StoredName, write: bool) -> Result<Arc<OpenFile>> {
        let look = || self.open_stored(parent, name, write);
        let open =
            self.compared_entry(parent, name, look, |open| Ok(Some(Identity::File(open.file.salt(false)?))))?;
        if self.anchor.is_some() && open.file.salt(false)?.is_none() {
            self.changing_entry(parent, name)?;
        }
        Ok(open)
    }

    /// The same, whatever an anchor says of it.
    pub(super) fn open_stored(&self, parent: &Dir, name: &StoredName, write: bool) -> Result<Arc<OpenFile>> {
        if write {
            self.writable()?;
        }
        self.note_met_sidecar(parent, &name.0);
        let raw = parent.store.stat(&name.0)?;
        check_regular(&raw)?;
        // A descriptor of a shared one is opened all the same: at that many stores look what others have written.
        if !self.is_shared()
            && let Some(open) = self.already_open(&raw, write)
        {
            return Ok(open);
        }
        // By its name, as nearly always: the way through a handle takes three calls more, and `/proc`.
        let flags = if self.read_only() { OFlags::RDONLY } else { OFlags::RDWR };
        if let Ok(fd) = parent.store.open_known(&name.0, flags)
            && let file = DirFile::quiet(fd)
            && let opened = Node::shared(file.fd()).stat()?
            && key(&opened) == key(&raw)
            && check_regular(&opened).is_ok()
        {
            let open = self.files.open(key(&raw), file)?;
            open.file.opened_as(stamp(&opened));
            return Ok(open);
        }
        // Its permission bits are in the way, or another node has the name by now.
        let node = parent.store.node(&name.0)?;
        let raw = node.stat()?;
        check_regular(&raw)?;
        self.open_node(&node, &raw, write)
    }

    /// The open file of an inode, if its descriptor may write or need not.
    fn already_open(&self, raw: &RawStat, write: bool) -> Option<Arc<OpenFile>> {
        self.files.get(key(raw)).filter(|open| !write || open.store.writable())
    }

    /// The open file that `node` is, with a descriptor that may write if `write`.
    pub(super) fn open_node(&self, node: &Node, raw: &RawStat, write: bool) -> Result<Arc<OpenFile>> {
        if !self.is_shared()
            && let Some(open) = self.already_open(raw, write)
        {
            return Ok(open);
        }
        let both = || node.reopen(OFlags::RDWR);
        let fd = if write {
            self.with_access(node, 0o600, both)?
        } else if self.read_only() {
            node.reopen(OFlags::RDONLY)?
        } else {
            // A writer may come later, and recovery wants to write.
            both().or_else(|_| self.with_access(node, 0o400, || node.reopen(OFlags::RDONLY)))?
        };
        self.files.open(key(raw), DirFile::quiet(fd))
    }

    /// The open file behind a target that is a regular file, with a descriptor that may write.
    pub(super) fn open_for_writing(&self, target: &Target) -> Result<Arc<OpenFile>> {
        match target {
            Target::Dir(_) => Err(Errno::ISDIR.into()),
            Target::Entry(dir, name) => self.open_file(dir, name, true),
            Target::File(file) => {
                let node = Node::shared(file.store.fd());
                self.open_node(&node, &node.stat()?, true)
            }
        }
    }

    /// Does `op`. If the store refuses it although the node is this process's own, its mode was set by another program or by
    /// root: then it is stored so that its owner may work on it. Where the store cannot have that, the owner's `bits` are added
    /// for the moment.
    pub(super) fn with_access<T>(
        &self,
        node: &Node,
        bits: u32,
        op: impl Fn() -> io::Result<T>,
    ) -> io::Result<T> {
        let refused = match op() {
            Err(e) if e.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => e,
            other => return other,
        };
        let _alone = self.modes.lock();
        let raw = node.stat_behind()?;
        if self.read_only() || raw.st_uid != self.user {
            return Err(refused);
        }
        let mode = permissions(raw.st_mode);
        node.set_mode(mode)?;
        let refused = match op() {
            Err(e) if e.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => e,
            other => return other,
        };
        // Another machine might take the added bits for the node's own.
        if is_marked(&node.stat()?) || self.is_shared() {
            return Err(refused);
        }
        node.chmod(mode | bits)?;
        let result = op();
        if let Err(e) = node.chmod(mode) {
            log::warn!("permission bits {mode:o} of inode {} cannot be put back: {e}", raw.st_ino);
        }
        result
    }
}

fn check_regular(raw: &RawStat) -> Result<()> {
    match FileType::from_raw_mode(raw.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Err(Error::Invalid("not a regular file")),
    }
}
