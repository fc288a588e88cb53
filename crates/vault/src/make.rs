//! Creating files, directories and special files, and giving them to their owner.

use super::{
    Dir, Kind, OpenFile, Pin, SetTime, Stat, StoredName, Target, There, Vault,
    acl::Inherited,
    attr::{key, permissions, stamp},
    names::temporary_name,
};
use content::{Error, Result, Time};
use format::acl::Acl;
use rustix::{
    fs::{FileType, Stat as RawStat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    io,
    sync::{Arc, atomic::Ordering},
};
use store::{DirFile, Listed, Node, StoreDir, is_to_be_marked};

/// Initial attributes of a new node. `uid` and `gid` are the caller's. They are set if the process may
/// do so, and the group is inherited from a set-group-id parent.
#[derive(Debug, Clone, Copy)]
pub struct NewNode<'a> {
    /// Permission bits after the umask. If there is a default ACL, which replaces the umask, the bits
    /// before it.
    pub mode: u32,
    /// The caller.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The default ACL of the directory, if it has one.
    pub default_acl: Option<&'a Acl>,
}

impl NewNode<'_> {
    /// Initial attributes in a directory without a default ACL.
    pub fn plain(mode: u32, uid: u32, gid: u32) -> Self {
        NewNode { mode, uid, gid, default_acl: None }
    }
}

const SETGID: u32 = 0o2000;
const SETUID: u32 = 0o4000;

impl Vault {
    /// Creates a regular file and opens it. EEXIST if the name is taken.
    pub fn create(
        &self,
        parent: &Dir,
        name: &OsStr,
        node: NewNode,
    ) -> Result<(StoredName, Stat, Arc<OpenFile>)> {
        let inherited = Inherited::by(&node, Kind::File);
        let node = NewNode { mode: inherited.mode, ..node };
        let mut opened = None;
        let (stored, raw) = self.make(parent, name, node, |stored| {
            let file = DirFile::quiet(parent.store.create_file(stored, node.mode & 0o777)?);
            let made = Node::shared(file.fd());
            opened = Some(file);
            Ok(made)
        })?;
        let file = opened.expect("made"); // invariant: `make` succeeds only after its closure did
        let file = self.files.create(key(&raw), file);
        file.file.lease().opened_as(stamp(&raw));
        let stat = self.give_acls(&inherited, parent, &stored, Some(&file))?;
        Ok((stored, stat.map_or_else(|| self.present(&raw), Ok)?, file))
    }

    /// Creates a regular file without a name, in the filesystem of a directory, and opens it. Until it
    /// is linked, it is treated like a file whose last name was removed: it disappears when it is
    /// closed, and its data need not be stored unless a sync asks for it.
    ///
    /// # Errors
    /// EOPNOTSUPP if the store does not support such files; else the store's.
    pub fn create_nameless(&self, dir: &Dir, node: NewNode) -> Result<(There, Arc<OpenFile>)> {
        self.writable()?;
        let inherited = Inherited::by(&node, Kind::File);
        let node = NewNode { mode: inherited.mode, ..node };
        let file = DirFile::quiet(dir.store.create_nameless(node.mode & 0o777)?);
        let pin = Pin::new(Node::shared(file.fd()));
        let raw = self.adopt(&dir.store, pin.node(), node)?;
        let file = self.files.create(key(&raw), file);
        self.files.forget(file.key);
        let stat = self.inherit(&inherited, Target::File(&file));
        match stat.and_then(|stat| stat.map_or_else(|| self.present(&raw), Ok)) {
            Ok(stat) => Ok((There::new(pin, stat), file)),
            Err(e) => {
                self.files.release(file);
                Err(e)
            }
        }
    }

    /// Creates a regular file, FIFO, socket or device. `rdev` is encoded as the kernel does.
    pub fn mknod(
        &self,
        parent: &Dir,
        name: &OsStr,
        node: NewNode,
        kind: Kind,
        rdev: u64,
    ) -> Result<(StoredName, Stat)> {
        if matches!(kind, Kind::Dir | Kind::Symlink) {
            return Err(Error::Invalid("not a node that mknod makes"));
        }
        let inherited = Inherited::by(&node, kind);
        let node = NewNode { mode: inherited.mode, ..node };
        let (stored, raw) = self.make(parent, name, node, |stored| {
            parent.store.mknod(stored, kind.to_store(), node.mode & 0o777, rdev)?;
            just_made(&parent.store, stored)
        })?;
        let stat = self.give_acls(&inherited, parent, &stored, None)?;
        Ok((stored, stat.map_or_else(|| self.present(&raw), Ok)?))
    }

    /// Creates a directory. It gets its id before its name, so that no directory is visible without an
    /// id.
    pub fn mkdir(&self, parent: &Dir, name: &OsStr, node: NewNode) -> Result<(StoredName, Stat)> {
        self.writable()?;
        let inherited = Inherited::by(&node, Kind::Dir);
        let node = NewNode { mode: inherited.mode, ..node };
        let place = self.place(parent, name)?;
        let _changing = self.changing(parent, name)?;
        let _locked = self.lock_dir(parent, place.is_long())?;
        let _long = self.lock_long(&[&place]);
        self.prepare(parent, &place)?;
        let temporary = temporary_name()?;
        parent.store.mkdir(&temporary, 0o700)?;
        let made = self.furnish(parent, &temporary, node).and_then(|dir| {
            parent.store.rename_new(&temporary, &parent.store, &place.stored.0).map_err(is_taken)?;
            dir.store.itself().stat_behind() // After the rename: a store may count the new name as a change.
        });
        match made {
            Ok(raw) => {
                let stat = self.give_acls(&inherited, parent, &place.stored, None)?;
                Ok((place.stored, stat.map_or_else(|| self.present(&raw), Ok)?))
            }
            Err(e) => {
                let unfinished = Listed { name: temporary, kind: FileType::Directory, ino: 0 };
                // The first error counts. A leftover is hidden and is removed with the directory.
                let _ = super::dir_id::remove_left_over(&parent.store, &unfinished);
                Err(e.into())
            }
        }
    }

    /// Gives a new directory its id, owner and mode, and returns it.
    fn furnish(&self, parent: &Dir, name: &OsStr, node: NewNode) -> io::Result<Dir> {
        let dir = Dir::new(parent.store.open_dir(name)?, None);
        self.make_id(&dir)?;
        self.adopt(&parent.store, &dir.store.itself(), node)?;
        Ok(dir)
    }

    /// Makes the caller of a rename the owner of the whiteout that the rename left.
    ///
    /// # Errors
    /// The store's. It is not an error if this process may not change the whiteout's owner.
    pub fn adopt_whiteout(&self, parent: &Dir, name: &StoredName, uid: u32, gid: u32) -> Result<()> {
        let node = parent.store.node(&name.0)?;
        self.adopt(&parent.store, &node, NewNode::plain(0, uid, gid))?;
        Ok(())
    }

    /// Adds another name to a node, or the first name to a file without one.
    ///
    /// # Errors
    /// ENOENT for an open file that a rotation passed over because it was in no directory: its key may
    /// be forgotten. EXDEV: see `may_go`. Else the store's.
    pub fn link(&self, node: Target, parent: &Dir, name: &OsStr) -> Result<(StoredName, Stat)> {
        self.writable()?;
        if let Target::File(file) = node
            && file.file.has_former_key()
        {
            return Err(Errno::NOENT.into());
        }
        if let Target::Entry(dir, old) = node {
            self.may_go(dir, old, parent)?;
        }
        let place = self.place(parent, name)?;
        let _changing = self.changing(parent, name)?;
        if let Target::Entry(dir, old) = node {
            self.changing_entry(dir, old)?; // If it has no identity yet, it gets one now, under both names.
        }
        let _locked = self.lock_dir(parent, place.is_long())?;
        let long = match self.is_rotating() {
            true => Some(self.long_names.lock()),
            false => self.lock_long(&[&place]),
        };
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.prepare(parent, &place)?;
        // The old name may be removed next, and its target may be durable already. The new name must be
        // valid by then.
        match &long {
            Some(alone) => self.make_names_durable_among(alone)?,
            None => self.make_names_durable()?,
        }
        match node {
            Target::Dir(_) => return Err(Error::os(Errno::PERM.raw_os_error())),
            Target::Entry(dir, old) => dir.store.link(&old.0, &parent.store, &place.stored.0)?,
            Target::File(file) => Node::shared(file.store.fd()).link(&parent.store, &place.stored.0)?,
        }
        if let Target::File(file) = node {
            self.files.remember(file.key); // even if a later step fails
        }
        let inode = key(&parent.store.stat(&place.stored.0)?);
        self.files.remember(inode);
        if let Some(open) = self.files.get(inode) {
            self.file_came_back(&open);
            self.files.note_durable(&open); // it may have been synced before it had a name
        }
        self.files.changed(inode);
        let stat = self.stat(Target::Entry(parent, &place.stored))?;
        Ok((place.stored, stat))
    }

    /// Creates a node under its stored name with the closure `make`, and gives it to its owner.
    pub(super) fn make<'a>(
        &self,
        parent: &Dir,
        name: &OsStr,
        node: NewNode,
        make: impl FnOnce(&OsStr) -> io::Result<Node<'a>>,
    ) -> Result<(StoredName, RawStat)> {
        self.writable()?;
        let place = self.place(parent, name)?;
        let _changing = self.changing(parent, name)?;
        let _locked = self.lock_dir(parent, place.is_long())?;
        let _long = self.lock_long(&[&place]);
        self.prepare(parent, &place)?;
        let made = make(&place.stored.0)?;
        match self.adopt(&parent.store, &made, node) {
            Ok(raw) => Ok((place.stored, raw)),
            Err(e) => {
                // The first error counts.
                let _ = parent.store.unlink(&place.stored.0);
                Err(e.into())
            }
        }
    }

    /// Sets owner, group and mode of a new node as open(2) and mkdir(2) do for the caller, and returns
    /// its attributes.
    fn adopt(&self, parent: &StoreDir, made: &Node, new: NewNode) -> io::Result<RawStat> {
        let mut raw = made.stat()?;
        let kind = FileType::from_raw_mode(raw.st_mode);
        if kind != FileType::RegularFile {
            // Files get the exact time of each write, but the store's own clock is coarse. Without this,
            // the new node could appear older than a file written before it.
            let now = SetTime::to_store(Some(SetTime::At(Time::now())));
            let _ = made.set_times(now, now); // not every store has times of links
            raw = made.stat()?;
        }
        let same_mode =
            kind == FileType::Symlink || permissions(raw.st_mode) == new.mode && !is_to_be_marked(&raw);
        if same_mode && (raw.st_uid, raw.st_gid) == (new.uid, new.gid) {
            return Ok(raw);
        }
        let above = parent.itself().stat()?;
        let inherits = above.st_mode & SETGID != 0;
        let gid = if inherits { above.st_gid } else { new.gid };
        let given = give(made, &raw, new.uid, gid)?;
        if kind == FileType::Symlink {
            return made.stat();
        }
        let mut mode = permissions(new.mode);
        if kind == FileType::Directory {
            mode |= if inherits { SETGID } else { 0 };
        } else if !given {
            // Otherwise the file would run as a user other than its creator.
            mode &= !(SETUID | SETGID);
        }
        let _alone = self.modes.lock();
        made.set_mode(mode)?;
        made.stat_behind()
    }
}

/// The node that was just created under this name. If it cannot be opened, the name is removed again,
/// because the caller is told that nothing was created.
///
/// # Errors
/// The store's.
pub(super) fn just_made<'a>(store: &'a StoreDir, stored: &OsStr) -> io::Result<Node<'a>> {
    store.node(stored).inspect_err(|_| drop(store.unlink(stored)))
}

/// Maps the error of a store that has no rename restricted to free names, for a name that another
/// machine has just taken. A directory cannot replace a directory that contains an id file, nor anything
/// that is not a directory.
fn is_taken(e: io::Error) -> io::Error {
    match Errno::from_io_error(&e) {
        Some(Errno::NOTEMPTY | Errno::NOTDIR) => Errno::EXIST.into(),
        _ => e,
    }
}

/// Gives a node to `uid` and `gid` as far as this process may. Returns false if it does not now have
/// both.
fn give(made: &Node, raw: &RawStat, uid: u32, gid: u32) -> io::Result<bool> {
    let uid = (raw.st_uid != uid).then_some(uid);
    let gid = (raw.st_gid != gid).then_some(gid);
    if uid.is_none() && gid.is_none() {
        return Ok(true);
    }
    let refused = |e: &io::Error| {
        matches!(Errno::from_io_error(e), Some(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP))
    };
    match made.chown(uid, gid) {
        Ok(()) => return Ok(true),
        Err(e) if refused(&e) => {}
        Err(e) => return Err(e),
    }
    match made.chown(None, gid) {
        Err(e) if !refused(&e) => Err(e),
        _ => Ok(false),
    }
}
