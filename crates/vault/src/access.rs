//! Access to stored nodes whose permission bits in the store forbid what the kernel has already granted.

use super::{
    Dir, OpenFile, StoredName, Target, Vault,
    anchor::AnchoredIdentity,
    attr::{key, permissions, stamp},
};
use content::{Error, Result};
use rustix::{
    fs::{FileType, OFlags, Stat as RawStat},
    io::Errno,
};
use std::{io, sync::Arc};
use store::{DirFile, Node, is_marked};

impl Vault {
    /// Opens a regular file. One `OpenFile` serves all handles of an inode.
    ///
    /// # Errors
    /// EISDIR for a directory, ELOOP for a symbolic link, `Invalid` for any other node that is not a
    /// regular file; otherwise the store's error.
    pub fn open_file(&self, parent: &Dir, name: &StoredName, write: bool) -> Result<Arc<OpenFile>> {
        let look = || self.open_stored(parent, name, write);
        let open = self.compared_entry(parent, name, look, |open| {
            Ok(Some(AnchoredIdentity::File(open.file.salt(false)?)))
        })?;
        if self.anchor.is_some() && open.file.salt(false)?.is_none() {
            self.changing_entry(parent, name)?;
        }
        Ok(open)
    }

    /// Like `open_file`, but without consulting the anchor.
    pub(super) fn open_stored(&self, parent: &Dir, name: &StoredName, write: bool) -> Result<Arc<OpenFile>> {
        if write {
            self.writable()?;
        }
        self.note_met_sidecar(parent, &name.0);
        let raw = parent.store.stat(&name.0)?;
        check_regular(&raw)?;
        // Not in a shared vault: many stores check for other machines' writes only when a descriptor is
        // opened.
        if !self.is_shared()
            && let Some(open) = self.already_open(&raw, write)
        {
            return Ok(open);
        }
        // Open by name, the usual case: going through a handle takes three more system calls, and
        // `/proc`.
        let flags = if self.read_only() { OFlags::RDONLY } else { OFlags::RDWR };
        if let Ok(fd) = parent.store.open_known(&name.0, flags)
            && let file = DirFile::quiet(fd)
            && let opened = Node::shared(file.fd()).stat()?
            && key(&opened) == key(&raw)
            && check_regular(&opened).is_ok()
        {
            let open = self.files.open(key(&raw), file)?;
            open.file.lease().opened_as(stamp(&opened));
            return Ok(open);
        }
        // The permission bits forbid it, or another node has the name by now.
        let node = parent.store.node(&name.0)?;
        let raw = node.stat()?;
        check_regular(&raw)?;
        self.open_node(&node, &raw, write)
    }

    /// The inode's open file, unless the caller needs to write and its descriptor is read-only.
    fn already_open(&self, raw: &RawStat, write: bool) -> Option<Arc<OpenFile>> {
        self.files.get(key(raw)).filter(|open| !write || open.store.writable())
    }

    /// Opens the file that `node` refers to. With `write`, its descriptor is writable.
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
            // A writer may come later, and recovery needs to write.
            both().or_else(|_| self.with_access(node, 0o400, || node.reopen(OFlags::RDONLY)))?
        };
        self.files.open(key(raw), DirFile::quiet(fd))
    }

    /// Opens a target that must be a regular file, with a writable descriptor.
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

    /// Runs `op`. If the store refuses it although this process's user owns the node, another program or
    /// root has set the node's mode. The mode is then stored so that the owner has access. If the store
    /// does not support that, the owner gets `bits` temporarily.
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
        // Another machine might mistake the added bits for the node's own.
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
