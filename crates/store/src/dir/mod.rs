//! Operations relative to directory descriptors: no path is resolved twice, and no symbolic link is followed.
//!
//! Every name is a single component. Separators, "." and ".." are refused, so that nothing outside the
//! directory can be reached, whatever a caller passes.

mod file;
mod flock;
mod generation;
mod list;
#[cfg(feature = "testing")]
mod lost;
mod mode;
#[cfg(feature = "testing")]
mod nfs;
mod node;
#[cfg(feature = "testing")]
mod power;
#[cfg(feature = "testing")]
pub mod scarce;

pub use file::DirFile;
pub use flock::Flock;
pub use list::{DirStream, Listed, is_dots};
#[cfg(feature = "testing")]
pub use lost::Locks;
pub use mode::{is_marked, is_to_be_marked};
#[cfg(feature = "testing")]
pub use nfs::{is_kept, like_nfs, sweep};
pub use node::Node;
#[cfg(feature = "testing")]
pub use power::{after_power_cut, cut_power_after};

use metrics::{Activity, Counted};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, StatVfs, StatVfsMountFlags,
    },
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    sync::OnceLock,
};

/// Flags of every open.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// Copy-on-write filesystems, by their statfs(2) magic: btrfs, bcachefs, ZFS, F2FS, NILFS.
const COPY_ON_WRITE: [rustix::fs::FsWord; 5] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0xf2f5_2010, 0x3434];
/// FUSE_SUPER_MAGIC of statfs(2).
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// An open directory of the store.
pub struct StoreDir {
    fd: OwnedFd,
}

impl AsFd for StoreDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl StoreDir {
    /// Opens the directory at `path`. This is the only place where a path, with any links in it, is resolved.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn open_path(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(StoreDir { fd: openat(CWD, path, flags, Mode::empty())? })
    }

    /// The directory that `node` refers to.
    ///
    /// # Errors
    /// ENOTDIR if it is not a directory; otherwise any error from the store.
    pub fn of(node: &Node) -> io::Result<Self> {
        match FileType::from_raw_mode(node.stat()?.st_mode) {
            FileType::Directory => Ok(StoreDir { fd: duplicate(node)? }),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(StoreDir { fd: duplicate(&self.fd)? })
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// ENOTDIR if `name` is not a directory, for example a symbolic link; otherwise any error from the store.
    pub fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        let flags = ALWAYS | OFlags::PATH | OFlags::DIRECTORY;
        Ok(StoreDir { fd: openat(self, self.component(name)?, flags, Mode::empty())? })
    }

    /// Opens the parent directory.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn parent(&self) -> io::Result<Self> {
        let flags = ALWAYS | OFlags::PATH | OFlags::DIRECTORY;
        Ok(StoreDir { fd: openat(self, "..", flags, Mode::empty())? })
    }

    /// Opens a regular file in this directory and nothing else: opening a FIFO would wake its other end,
    /// and opening a device could operate it.
    ///
    /// # Errors
    /// ELOOP if `name` is a symbolic link; an error without an errno if it is another non-regular file;
    /// otherwise any error from the store.
    pub fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        require_regular(&self.stat(name)?)?;
        let fd = self.open_known(name, flags)?;
        // Another node may have taken the name in the meantime.
        require_regular(&rustix::fs::fstat(&fd)?)?;
        Ok(fd)
    }

    /// Opens a file for a caller that has seen a regular file under this name and checks what was
    /// opened. Never blocks, even if the name now belongs to another kind of node.
    ///
    /// # Errors
    /// ELOOP if `name` is a symbolic link; otherwise any error from the store.
    pub fn open_known(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | ALWAYS | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(openat(self, self.component(name)?, flags, Mode::empty())?)
    }

    /// Creates a regular file, open for reading and writing.
    ///
    /// # Errors
    /// EEXIST if the name is taken; otherwise any error from the store.
    pub fn create_file(&self, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        let flags = ALWAYS | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(openat(self, self.component(name)?, flags, Mode::from_raw_mode(mode))?)
    }

    /// Creates an unnamed regular file (`O_TMPFILE`) in this directory's filesystem, open for reading
    /// and writing. Unless it is linked, it is deleted with its last descriptor.
    ///
    /// # Errors
    /// EOPNOTSUPP if the store has no such files; otherwise any error from the store.
    pub fn create_nameless(&self, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::TMPFILE;
        Ok(openat(self, ".", flags, Mode::from_raw_mode(mode))?)
    }

    /// A handle on the node named `name`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn node(&self, name: &OsStr) -> io::Result<Node<'static>> {
        let fd = openat(self, self.component(name)?, ALWAYS | OFlags::PATH, Mode::empty())?;
        Ok(Node::owned(fd))
    }

    /// A handle on this directory.
    pub fn itself(&self) -> Node<'_> {
        Node::borrowed(self.fd.as_fd())
    }

    /// Attributes of the entry `name`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self, self.component(name)?, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Whether the entry `name` has any extended attribute.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn has_xattrs(&self, name: &OsStr) -> io::Result<bool> {
        // No system call takes a directory and a name. The path goes through the descriptor, so it leads
        // to this directory.
        let mut path = format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).into_bytes();
        path.extend_from_slice(self.component(name)?.as_bytes());
        node::any(|room| rustix::fs::llistxattr(OsStr::from_bytes(&path), room))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// EEXIST if the name is taken; otherwise any error from the store.
    pub fn mkdir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::mkdirat(self, self.component(name)?, Mode::from_raw_mode(mode))?)
    }

    /// Creates a FIFO, socket, device or empty regular file.
    ///
    /// # Errors
    /// EEXIST if the name is taken, EPERM for a device without privilege; otherwise any error from the store.
    pub fn mknod(&self, name: &OsStr, kind: FileType, mode: u32, device: u64) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::mknodat(self, self.component(name)?, kind, Mode::from_raw_mode(mode), device)?)
    }

    /// Creates a symbolic link to `target`.
    ///
    /// # Errors
    /// EEXIST if the name is taken; ENAMETOOLONG if the target is too long for the store; otherwise any error
    /// from the store.
    pub fn symlink(&self, target: &OsStr, name: &OsStr) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::symlinkat(target, self, self.component(name)?)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if `name` is not a symbolic link; otherwise any error from the store.
    pub fn readlink(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, self.component(name)?, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// EEXIST if the new name is taken; otherwise any error from the store.
    pub fn link(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::linkat(self, self.component(name)?, to, to.component(new)?, AtFlags::empty())?)
    }

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// EISDIR for a directory; otherwise any error from the store.
    pub fn unlink(&self, name: &OsStr) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(feature = "testing")]
        if nfs::keep(self, name)? {
            return Ok(());
        }
        Ok(rustix::fs::unlinkat(self, self.component(name)?, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY if it is not empty; otherwise any error from the store.
    pub fn rmdir(&self, name: &OsStr) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(feature = "testing")]
        nfs::sweep();
        Ok(rustix::fs::unlinkat(self, self.component(name)?, AtFlags::REMOVEDIR)?)
    }

    /// Renames, replacing an existing target.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn rename(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(feature = "testing")]
        nfs::keep_replaced(self, name, to, new)?;
        Ok(rustix::fs::renameat(self, self.component(name)?, to, to.component(new)?)?)
    }

    /// Renames, unless the new name is taken. On a store without RENAME_NOREPLACE that is checked
    /// beforehand, so a caller that must exclude concurrent creation has to hold a lock.
    ///
    /// # Errors
    /// EEXIST if the new name is taken; otherwise any error from the store.
    pub fn rename_new(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        match self.rename_with(name, to, new, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => match to.stat(new) {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => self.rename(name, to, new),
                Err(e) => Err(e),
            },
            other => Ok(other?),
        }
    }

    /// Renames atomically, unless the new name is taken.
    ///
    /// # Errors
    /// EEXIST if the new name is taken; EINVAL if the store does not support this; otherwise any error
    /// from the store.
    pub fn rename_to_free(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        Ok(self.rename_with(name, to, new, RenameFlags::NOREPLACE)?)
    }

    /// Swaps two names atomically.
    ///
    /// # Errors
    /// ENOENT if either name does not exist; EINVAL if the store does not support this; otherwise any
    /// error from the store.
    pub fn exchange(&self, name: &OsStr, to: &StoreDir, other: &OsStr) -> io::Result<()> {
        Ok(self.rename_with(name, to, other, RenameFlags::EXCHANGE)?)
    }

    /// Renames and leaves a whiteout under the old name, atomically. Replaces an existing target if
    /// `replace` is set.
    ///
    /// # Errors
    /// EEXIST if the new name is taken and `replace` is not set; EINVAL if the store does not support
    /// whiteouts; otherwise any error from the store.
    pub fn rename_whiteout(&self, name: &OsStr, to: &StoreDir, new: &OsStr, replace: bool) -> io::Result<()> {
        let mut flags = RenameFlags::WHITEOUT;
        flags.set(RenameFlags::NOREPLACE, !replace);
        Ok(self.rename_with(name, to, new, flags)?)
    }

    fn rename_with(&self, name: &OsStr, to: &StoreDir, new: &OsStr, flags: RenameFlags) -> Result<(), Errno> {
        #[cfg(feature = "testing")]
        scarce::ask(scarce::Call::Change)?;
        rustix::fs::renameat_with(self, self.component(name)?, to, to.component(new)?, flags)
    }

    /// Makes the entries of this directory durable.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn sync(&self) -> io::Result<()> {
        let _counted = Counted::start(Activity::StoreSync, 0);
        fsync(self.readable()?)
    }

    /// Locks the directory with flock(2).
    ///
    /// # Errors
    /// EWOULDBLOCK if there is another holder; EBADF, ENOLCK and others if the store cannot
    /// lock directories.
    pub fn lock(&self, operation: FlockOperation) -> io::Result<Flock> {
        Flock::take(self.readable()?, operation)
    }

    /// Makes the whole filesystem durable. Returns false if that is not supported (FUSE).
    ///
    /// # Errors
    /// Any error from the store.
    pub fn sync_all(&self) -> io::Result<bool> {
        match self.filesystem().and_then(|all| all.sync()) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
            synced => synced.map(|()| true),
        }
    }

    /// The filesystem that contains this directory.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn filesystem(&self) -> io::Result<Filesystem> {
        let known = OnceLock::new();
        if let Ok(fd) = self.readable() {
            let _ = known.set(fd); // The cell is new, so `set` succeeds.
        }
        Ok(Filesystem { dir: self.try_clone()?, fd: known })
    }

    /// Total and free space of the store's filesystem.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn space(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(self)?)
    }

    /// Checks that `name` is a single path component; EINVAL otherwise.
    fn component<'n>(&self, name: &'n OsStr) -> Result<&'n OsStr, Errno> {
        #[cfg(feature = "testing")]
        nfs::known(self)?;
        let bytes = name.as_bytes();
        if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        Ok(name)
    }

    /// A descriptor of the same directory that can be listed, locked and synced.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn readable(&self) -> Result<OwnedFd, Errno> {
        #[cfg(feature = "testing")]
        nfs::known(self)?;
        openat(self, ".", ALWAYS | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }
}

fn require_regular(stat: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Err(io::Error::other("not a regular file")),
    }
}

/// All opens of the store go through here, so that tests can make them fail.
fn openat(
    dir: impl AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    #[cfg(feature = "testing")]
    scarce::ask(scarce::Call::Open)?;
    rustix::fs::openat(dir, name, flags, mode)
}

/// Duplicates a descriptor.
fn duplicate(of: impl AsFd) -> io::Result<OwnedFd> {
    #[cfg(feature = "testing")]
    scarce::ask(scarce::Call::Open)?;
    of.as_fd().try_clone_to_owned()
}

/// The filesystem of a store.
///
/// The kernel reports a write-back error once to each descriptor that is open at the time, and not to
/// descriptors opened after it was reported. A caller that must not miss one keeps a `Filesystem`.
pub struct Filesystem {
    dir: StoreDir,
    /// `None` while the directory is unreadable.
    fd: OnceLock<OwnedFd>,
}

impl Filesystem {
    /// Whether [`Filesystem::sync`] works. On FUSE the kernel answers syncfs(2) itself, without asking
    /// the server that keeps the files.
    pub fn syncs(&self) -> bool {
        #[cfg(feature = "testing")]
        if scarce::is_like_fuse() {
            return false;
        }
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| stat.f_type != FUSE)
    }

    /// Whether its file handles distinguish an inode from an earlier one with the same number, even
    /// across mounts. The handles that the kernel makes up for FUSE do not, and getting one by name
    /// costs a lookup.
    pub fn has_generations(&self) -> bool {
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| stat.f_type != FUSE)
    }

    /// Whether it records access times.
    pub fn keeps_atime(&self) -> bool {
        rustix::fs::fstatvfs(&self.dir).is_ok_and(|space| !space.f_flag.contains(StatVfsMountFlags::NOATIME))
    }

    /// Whether data is overwritten in place, so that an overwrite needs no new space. Copy-on-write
    /// filesystems write it elsewhere and may run out of space.
    pub fn overwrites_in_place(&self) -> bool {
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| !COPY_ON_WRITE.contains(&stat.f_type))
    }

    /// Makes the whole filesystem durable.
    ///
    /// # Errors
    /// EOPNOTSUPP if [`Filesystem::syncs`] is false; otherwise any error from the store, including
    /// write-back errors since the last call.
    pub fn sync(&self) -> io::Result<()> {
        if !self.syncs() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let _counted = Counted::start(Activity::StoreSync, 0);
        let fd = match self.fd.get() {
            Some(fd) => fd,
            None => {
                let fd = self.dir.readable()?;
                self.fd.get_or_init(|| fd)
            }
        };
        #[cfg(feature = "testing")]
        power::call()?;
        rustix::fs::syncfs(fd)?;
        #[cfg(feature = "testing")]
        power::all_synced();
        Ok(())
    }
}

/// fsync(2) of a file or directory.
///
/// # Errors
/// Any error from the store.
pub fn fsync(fd: impl AsFd) -> io::Result<()> {
    #[cfg(feature = "testing")]
    power::call()?;
    rustix::fs::fsync(&fd)?;
    #[cfg(feature = "testing")]
    power::synced(&fd);
    Ok(())
}

#[cfg(test)]
mod tests;
