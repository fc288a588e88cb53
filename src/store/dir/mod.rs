//! Directory-descriptor operations: no path is ever resolved twice, no link followed.
//!
//! Every name is one component: a separator, "." and ".." are refused, so that nothing beside the
//! directory can be reached whatever a caller passes.

mod file;
mod flock;
mod generation;
mod list;
#[cfg(test)]
mod lost;
mod mode;
#[cfg(test)]
mod nfs;
mod node;
#[cfg(test)]
mod power;
#[cfg(test)]
pub mod scarce;

pub use file::DirFile;
pub use flock::Flock;
pub use list::{DirStream, Listed, is_dots};
#[cfg(test)]
pub use lost::Locks;
pub use mode::{is_marked, is_to_be_marked};
#[cfg(test)]
pub use nfs::{is_kept, like_nfs, sweep};
pub use node::Node;
#[cfg(test)]
pub use power::{after_power_cut, cut_power_after};

use crate::metrics::{Activity, Counted};
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

/// How every descriptor is opened.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// Filesystems that write data elsewhere when it is overwritten: btrfs, bcachefs, ZFS, F2FS, NILFS.
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
    /// Opens the directory at `path`, the only place where a path (and a link in it) is followed.
    ///
    /// # Errors
    /// The store's.
    pub fn open_path(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(StoreDir { fd: openat(CWD, path, flags, Mode::empty())? })
    }

    /// The directory that a node is.
    ///
    /// # Errors
    /// ENOTDIR if it is anything else; else the store's.
    pub fn of(node: &Node) -> io::Result<Self> {
        match FileType::from_raw_mode(node.stat()?.st_mode) {
            FileType::Directory => Ok(StoreDir { fd: duplicate(node)? }),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Another descriptor of the same directory.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(StoreDir { fd: duplicate(&self.fd)? })
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// ENOTDIR if `name` is anything else, a symbolic link included; else the store's.
    pub fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        let flags = ALWAYS | OFlags::PATH | OFlags::DIRECTORY;
        Ok(StoreDir { fd: openat(self, self.component(name)?, flags, Mode::empty())? })
    }

    /// Opens the directory above this one.
    ///
    /// # Errors
    /// The store's.
    pub fn parent(&self) -> io::Result<Self> {
        let flags = ALWAYS | OFlags::PATH | OFlags::DIRECTORY;
        Ok(StoreDir { fd: openat(self, "..", flags, Mode::empty())? })
    }

    /// Opens a regular file in this directory. Nothing else is opened: that would wake the other end of a FIFO, or operate a
    /// device.
    ///
    /// # Errors
    /// ELOOP if `name` is a symbolic link, an error without an errno if it is anything else; else the store's.
    pub fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        require_regular(&self.stat(name)?)?;
        let fd = self.open_known(name, flags)?;
        // Another node may have taken the name meanwhile.
        require_regular(&rustix::fs::fstat(&fd)?)?;
        Ok(fd)
    }

    /// Opens a file for a caller that has seen a regular one there and checks what was opened. Never waits, whatever has the
    /// name by then.
    ///
    /// # Errors
    /// ELOOP if `name` is a symbolic link; else the store's.
    pub fn open_known(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | ALWAYS | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(openat(self, self.component(name)?, flags, Mode::empty())?)
    }

    /// Makes a regular file, open for reading and writing.
    ///
    /// # Errors
    /// EEXIST if the name is taken; else the store's.
    pub fn create_file(&self, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        let flags = ALWAYS | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(openat(self, self.component(name)?, flags, Mode::from_raw_mode(mode))?)
    }

    /// Makes a regular file without a name in the filesystem of this directory, open for reading and writing. Without one it goes
    /// with its last descriptor.
    ///
    /// # Errors
    /// EOPNOTSUPP if the store has no such files; else the store's.
    pub fn create_nameless(&self, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::TMPFILE;
        Ok(openat(self, ".", flags, Mode::from_raw_mode(mode))?)
    }

    /// A handle on whatever stands under `name`, links included.
    ///
    /// # Errors
    /// The store's.
    pub fn node(&self, name: &OsStr) -> io::Result<Node<'static>> {
        let fd = openat(self, self.component(name)?, ALWAYS | OFlags::PATH, Mode::empty())?;
        Ok(Node::owned(fd))
    }

    /// A handle on the directory itself.
    pub fn itself(&self) -> Node<'_> {
        Node::borrowed(self.fd.as_fd())
    }

    /// Attributes of what stands under `name`.
    ///
    /// # Errors
    /// The store's.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self, self.component(name)?, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Whether what stands under `name` has any extended attribute.
    ///
    /// # Errors
    /// The store's.
    pub fn has_xattrs(&self, name: &OsStr) -> io::Result<bool> {
        // No call takes a directory and a name. The way through the descriptor leads to this directory.
        let mut path = format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).into_bytes();
        path.extend_from_slice(self.component(name)?.as_bytes());
        node::any(|room| rustix::fs::llistxattr(OsStr::from_bytes(&path), room))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST if the name is taken; else the store's.
    pub fn mkdir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::mkdirat(self, self.component(name)?, Mode::from_raw_mode(mode))?)
    }

    /// Makes a FIFO, socket, device or empty regular file.
    ///
    /// # Errors
    /// EEXIST if the name is taken, EPERM for a device without privilege; else the store's.
    pub fn mknod(&self, name: &OsStr, kind: FileType, mode: u32, device: u64) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::mknodat(self, self.component(name)?, kind, Mode::from_raw_mode(mode), device)?)
    }

    /// Makes a symbolic link that holds `target`.
    ///
    /// # Errors
    /// EEXIST if the name is taken, ENAMETOOLONG for a target the store cannot hold; else the store's.
    pub fn symlink(&self, target: &OsStr, name: &OsStr) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::symlinkat(target, self, self.component(name)?)?)
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// EINVAL if it is not a link; else the store's.
    pub fn readlink(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, self.component(name)?, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// EEXIST if the new name is taken; else the store's.
    pub fn link(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        Ok(rustix::fs::linkat(self, self.component(name)?, to, to.component(new)?, AtFlags::empty())?)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// EISDIR for a directory; else the store's.
    pub fn unlink(&self, name: &OsStr) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(test)]
        if nfs::keep(self, name)? {
            return Ok(());
        }
        Ok(rustix::fs::unlinkat(self, self.component(name)?, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY if it is not empty; else the store's.
    pub fn rmdir(&self, name: &OsStr) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(test)]
        nfs::sweep();
        Ok(rustix::fs::unlinkat(self, self.component(name)?, AtFlags::REMOVEDIR)?)
    }

    /// Renames, replacing what is there.
    ///
    /// # Errors
    /// The store's.
    pub fn rename(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        #[cfg(test)]
        nfs::keep_replaced(self, name, to, new)?;
        Ok(rustix::fs::renameat(self, self.component(name)?, to, to.component(new)?)?)
    }

    /// Renames if the new name is free. A store without RENAME_NOREPLACE is asked first: a caller that
    /// must exclude a concurrent creation there holds a lock of its own.
    ///
    /// # Errors
    /// EEXIST if the new name is taken; else the store's.
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

    /// Renames if the new name is free, in one step.
    ///
    /// # Errors
    /// EEXIST if the new name is taken, EINVAL if the store cannot do that; else the store's.
    pub fn rename_to_free(&self, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        Ok(self.rename_with(name, to, new, RenameFlags::NOREPLACE)?)
    }

    /// Swaps two names.
    ///
    /// # Errors
    /// ENOENT if either is free, EINVAL if the store cannot swap; else the store's.
    pub fn exchange(&self, name: &OsStr, to: &StoreDir, other: &OsStr) -> io::Result<()> {
        Ok(self.rename_with(name, to, other, RenameFlags::EXCHANGE)?)
    }

    /// Renames, and leaves a whiteout under the old name, in one step. A name that is taken is replaced if `replace`.
    ///
    /// # Errors
    /// EEXIST if the new name is taken and not to be replaced; EINVAL if the store cannot leave a whiteout; else the store's.
    pub fn rename_whiteout(&self, name: &OsStr, to: &StoreDir, new: &OsStr, replace: bool) -> io::Result<()> {
        let mut flags = RenameFlags::WHITEOUT;
        flags.set(RenameFlags::NOREPLACE, !replace);
        Ok(self.rename_with(name, to, new, flags)?)
    }

    fn rename_with(&self, name: &OsStr, to: &StoreDir, new: &OsStr, flags: RenameFlags) -> Result<(), Errno> {
        #[cfg(test)]
        scarce::ask(scarce::Call::Change)?;
        rustix::fs::renameat_with(self, self.component(name)?, to, to.component(new)?, flags)
    }

    /// Makes the entries of this directory durable.
    ///
    /// # Errors
    /// The store's.
    pub fn sync(&self) -> io::Result<()> {
        let _counted = Counted::start(Activity::StoreSync, 0);
        fsync(self.readable()?)
    }

    /// Locks the directory itself.
    ///
    /// # Errors
    /// EWOULDBLOCK if another has it locked; EBADF, ENOLCK and others where the store locks no directories.
    pub fn lock(&self, operation: FlockOperation) -> io::Result<Flock> {
        Flock::take(self.readable()?, operation)
    }

    /// Makes all of the filesystem that it is on durable; false where that cannot be asked for (FUSE).
    ///
    /// # Errors
    /// The store's.
    pub fn sync_all(&self) -> io::Result<bool> {
        match self.filesystem().and_then(|all| all.sync()) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
            synced => synced.map(|()| true),
        }
    }

    /// The whole filesystem that it is on.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn filesystem(&self) -> io::Result<Filesystem> {
        let known = OnceLock::new();
        if let Ok(fd) = self.readable() {
            let _ = known.set(fd); // It is new.
        }
        Ok(Filesystem { dir: self.try_clone()?, fd: known })
    }

    /// Space of the store's filesystem.
    ///
    /// # Errors
    /// The store's.
    pub fn space(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(self)?)
    }

    /// `name` if it is one component of a path.
    fn component<'n>(&self, name: &'n OsStr) -> Result<&'n OsStr, Errno> {
        #[cfg(test)]
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
    /// The store's.
    pub fn readable(&self) -> Result<OwnedFd, Errno> {
        #[cfg(test)]
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

/// Every open of the store.
fn openat(
    dir: impl AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    #[cfg(test)]
    scarce::ask(scarce::Call::Open)?;
    rustix::fs::openat(dir, name, flags, mode)
}

/// Another descriptor of the same.
fn duplicate(of: impl AsFd) -> io::Result<OwnedFd> {
    #[cfg(test)]
    scarce::ask(scarce::Call::Open)?;
    of.as_fd().try_clone_to_owned()
}

/// The filesystem of a store.
///
/// That something could not be written back is told once to each descriptor that is open, and to nobody who opens one
/// after another was told: so whoever has to know keeps one of these.
pub struct Filesystem {
    dir: StoreDir,
    /// Not there as long as the directory may not be read.
    fd: OnceLock<OwnedFd>,
}

impl Filesystem {
    /// Whether it can be made durable as a whole. The kernel answers syncfs(2) on a FUSE filesystem by itself: the
    /// program that keeps the files is never asked.
    pub fn syncs(&self) -> bool {
        #[cfg(test)]
        if scarce::is_like_fuse() {
            return false;
        }
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| stat.f_type != FUSE)
    }

    /// Whether its file handles tell an inode from an earlier one with its number, also for who mounts it anew. Those that the
    /// kernel makes for FUSE do not, and to get one by a name takes a look at that.
    pub fn has_generations(&self) -> bool {
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| stat.f_type != FUSE)
    }

    /// Whether it keeps times of access.
    pub fn keeps_atime(&self) -> bool {
        rustix::fs::fstatvfs(&self.dir).is_ok_and(|space| !space.f_flag.contains(StatVfsMountFlags::NOATIME))
    }

    /// Whether data that is overwritten stays in its place, which it has then for certain. Others write it elsewhere, and may be
    /// out of space for that.
    pub fn overwrites_in_place(&self) -> bool {
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| !COPY_ON_WRITE.contains(&stat.f_type))
    }

    /// Makes everything in it durable.
    ///
    /// # Errors
    /// EOPNOTSUPP where that cannot be asked for; else the store's, also of what failed since this was last called.
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
        #[cfg(test)]
        power::call()?;
        rustix::fs::syncfs(fd)?;
        #[cfg(test)]
        power::all_synced();
        Ok(())
    }
}

/// Makes a file or a directory durable, by its descriptor.
///
/// # Errors
/// The store's.
pub fn fsync(fd: impl AsFd) -> io::Result<()> {
    #[cfg(test)]
    power::call()?;
    rustix::fs::fsync(&fd)?;
    #[cfg(test)]
    power::synced(&fd);
    Ok(())
}

#[cfg(test)]
mod tests;
