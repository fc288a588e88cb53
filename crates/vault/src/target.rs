//! Attributes of a node, however it was reached.

use super::{
    Dir, Key, Kind, OpenFile, SetAttr, SetTime, Stat, StoredName, Vault,
    attr::{key, permissions, stamp},
};
use content::{Error, Result, Time};
use format::link;
use rustix::{
    fs::{FileType, Stat as RawStat},
    io::Errno,
};
use std::{ffi::OsString, io};
use store::{Node, is_marked};

const SET_ID: u32 = 0o6000;
const SET_USER_ID: u32 = 0o4000;
const GROUP_EXECUTES: u32 = 0o010;

/// A node to work on.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// An open directory.
    Dir(&'a Dir),
    /// A name in an open directory (never followed if it is a link).
    Entry(&'a Dir, &'a StoredName),
    /// An open file (it may have no name any more).
    File(&'a OpenFile),
}

impl Target<'_> {
    /// The node in the store.
    pub(super) fn node(&self) -> Result<Node<'_>> {
        Ok(match self {
            Target::Dir(dir) => dir.store.itself(),
            Target::Entry(dir, name) => dir.store.node(&name.0)?,
            Target::File(file) => Node::shared(file.store.fd()),
        })
    }
}

/// Keeps an inode alive in the store, with or without a name, so that its number is not reused.
pub struct Pin(Node<'static>);

impl Pin {
    pub(super) fn new(node: Node<'static>) -> Self {
        Pin(node)
    }

    /// The pinned inode.
    pub(super) fn node(&self) -> &Node<'static> {
        &self.0
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// ENOENT if it is not a link; else the store's.
    pub(super) fn text(&self) -> io::Result<OsString> {
        self.0.readlink()
    }

    /// The 31-bit number that [`Vault::generation`] returns for the node.
    pub fn generation(&self) -> u32 {
        self.0.generation()
    }

    /// Its current number of names.
    ///
    /// # Errors
    /// The store's.
    pub fn links(&self) -> Result<u64> {
        Ok(self.0.stat()?.st_nlink)
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

impl Vault {
    /// Attributes of a node.
    pub fn stat(&self, target: Target) -> Result<Stat> {
        let ask = || match target {
            Target::Entry(dir, name) => Ok(dir.store.stat_behind(&name.0)?),
            _ => Ok(target.node()?.stat_behind()?),
        };
        self.with_target_len(self.settled(ask)?, || Ok(target.node()?.readlink()?))
    }

    /// Attributes of a node as applications see them, where `ask` returns the store's. Asks again if a
    /// file left the table meanwhile: before that, the store may have had an older length and time than
    /// the file, and afterwards the newer values are no longer in memory.
    fn settled(&self, ask: impl Fn() -> Result<RawStat>) -> Result<Stat> {
        loop {
            let before = self.files.departures();
            let stat = self.present(&ask()?)?;
            if stat.kind != Kind::File || self.files.departures() == before {
                return Ok(stat);
            }
        }
    }

    /// Converts the store's attributes, as returned by `stat_behind`, to those that applications see.
    /// For an open file they include what is not flushed yet.
    pub(super) fn present(&self, raw: &RawStat) -> Result<Stat> {
        let target_len = |stored| link::target_len(usize::try_from(stored).unwrap_or(0)) as u64;
        let mut stat =
            Stat::from_store(raw, target_len).ok_or(Error::NotSupported("unknown type of file"))?;
        if stat.kind != Kind::File {
            return Ok(stat);
        }
        stat.ctime = self.files.ctime(key(raw), stat.ctime);
        // If the open file cannot be examined, it will be opened anew. The store's values are used.
        if let Some(open) = self.files.get(key(raw))
            && open.file.lease().look_again_at(stamp(raw)).is_ok()
        {
            stat.size = open.file.size();
            stat.mtime = open.file.times().mtime().unwrap_or(stat.mtime);
            stat.ctime = stat.ctime.max(open.file.times().written_at().unwrap_or(stat.ctime));
        }
        Ok(stat)
    }

    /// Changes attributes and returns the new ones. The size can also be set on a file that is not open.
    pub fn set_attr(&self, target: Target, changes: &SetAttr) -> Result<Stat> {
        self.writable()?;
        let node = target.node()?;
        let (kind, inode) = match target {
            Target::File(open) => (FileType::RegularFile, open.key),
            _ => {
                let raw = node.stat()?;
                (FileType::from_raw_mode(raw.st_mode), key(&raw))
            }
        };
        let changed = self.change(&target, &node, (kind, inode), changes);
        self.files.changed(inode); // Also if a part failed: the parts before it took effect.
        changed?;
        self.with_target_len(self.settled(|| Ok(node.stat_behind()?))?, || Ok(node.readlink()?))
    }

    fn change(
        &self,
        target: &Target,
        node: &Node,
        (kind, inode): (FileType, Key),
        changes: &SetAttr,
    ) -> Result<()> {
        // In this order, because a new owner clears set-user-id, and a new size changes the time.
        self.change_owner_and_mode(node, kind, changes)?;
        if let Some(size) = changes.size {
            match kind {
                FileType::RegularFile => self.resize(target, size)?,
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Error::Invalid("size of something that has none")),
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            self.set_times(node, inode, changes)?;
        }
        Ok(())
    }

    /// Changes attributes of a node whose last name is gone. Not for files.
    ///
    /// # Errors
    /// `Invalid` for a size; else the store's.
    pub fn set_attr_of(&self, pin: &Pin, changes: &SetAttr) -> Result<Stat> {
        self.writable()?;
        if changes.size.is_some() {
            return Err(Error::Invalid("size of something that is gone"));
        }
        let node = pin.node();
        let raw = node.stat()?;
        self.change_owner_and_mode(node, FileType::from_raw_mode(raw.st_mode), changes)?;
        if changes.atime.is_some() || changes.mtime.is_some() {
            self.set_times(node, key(&raw), changes)?;
        }
        self.with_target_len(self.present(&node.stat_behind()?)?, || Ok(pin.text()?))
    }

    fn change_owner_and_mode(&self, node: &Node, kind: FileType, changes: &SetAttr) -> Result<()> {
        if changes.uid.is_some() || changes.gid.is_some() {
            node.chown(changes.uid, changes.gid)?;
            if changes.mode.is_none() {
                self.drop_set_id(node)?;
            }
        }
        if let Some(mode) = changes.mode {
            if kind == FileType::Symlink {
                return Err(Error::NotSupported("mode of a symbolic link"));
            }
            let _alone = self.modes.lock();
            node.set_mode(permissions(mode))?;
        }
        Ok(())
    }

    /// Clears the set-id bits that the store does not know of, on a file that got a new owner.
    fn drop_set_id(&self, node: &Node) -> Result<()> {
        if !is_marked(&node.stat()?) {
            return Ok(());
        }
        let _alone = self.modes.lock();
        let raw = node.stat_behind()?;
        if FileType::from_raw_mode(raw.st_mode) == FileType::RegularFile && raw.st_mode & SET_ID != 0 {
            // If the group may not execute, set-group-id is kept, as on every Linux filesystem.
            let lost = if raw.st_mode & GROUP_EXECUTES != 0 { SET_ID } else { SET_USER_ID };
            node.set_mode(permissions(raw.st_mode) & !lost)?;
        }
        Ok(())
    }

    fn resize(&self, target: &Target, size: u64) -> Result<()> {
        let open = self.open_for_writing(target)?;
        match target {
            // The handle lost its lease, so its state of the file is stale, and it fails. A new handle
            // can truncate the file.
            Target::File(handle) if !std::ptr::eq(*handle, &raw const *open) => Err(Errno::IO.into()),
            Target::File(_) => open.file.truncate(size), // The file is stored when its user closes it.
            Target::Entry(..) | Target::Dir(_) => {
                open.file.truncate(size)?;
                self.files.give_back(&open)
            }
        }
    }

    fn set_times(&self, node: &Node, inode: Key, changes: &SetAttr) -> Result<()> {
        let set = |mtime| match node.set_times(SetTime::to_store(changes.atime), SetTime::to_store(mtime)) {
            // The process may write to the file, but does not own it. The new size changes the time, too.
            Err(e) if changes.size.is_some() && is_not_owner(&e) => Ok(()),
            done => done,
        };
        match (changes.mtime, self.files.get(inode)) {
            // The file restores this time whenever it has written to the store.
            (Some(wanted), Some(open)) => {
                let time = match wanted {
                    SetTime::Now => Time::now(),
                    SetTime::At(time) => time,
                };
                open.file.times().set_mtime(time, |shown| match set(Some(SetTime::At(shown))) {
                    // Without owning the file, the process may only set both times to the present.
                    Err(e) if wanted == SetTime::Now && is_not_owner(&e) => Ok(set(Some(SetTime::Now))?),
                    done => Ok(done?),
                })
            }
            (mtime, _) => Ok(set(mtime)?),
        }
    }
}

/// Whether a call failed because the process does not own the node.
fn is_not_owner(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::PERM.raw_os_error())
}
