//! One node of the store, whatever its type, through a descriptor that pins it.
//!
//! An `O_PATH` descriptor exists for every type of node and has no side effect, but few calls take it.
//! The others go through its entry in `/proc/self/fd`, which leads to that very node and no further. A
//! descriptor that is open for reading or writing takes more of them, and is asked directly.

use super::StoreDir;
use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    sync::Arc,
};

/// A node of the store.
pub struct Node<'a> {
    fd: Descriptor<'a>,
}

enum Descriptor<'a> {
    Owned(OwnedFd),
    Borrowed(BorrowedFd<'a>),
    Shared(Arc<OwnedFd>),
}

impl AsFd for Node<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Descriptor::Owned(fd) => fd.as_fd(),
            Descriptor::Borrowed(fd) => *fd,
            Descriptor::Shared(fd) => fd.as_fd(),
        }
    }
}

impl Node<'static> {
    /// The node of a descriptor.
    pub fn owned(fd: OwnedFd) -> Self {
        Node { fd: Descriptor::Owned(fd) }
    }

    /// The node of a descriptor that others hold too, open for reading or writing.
    pub fn shared(fd: Arc<OwnedFd>) -> Self {
        Node { fd: Descriptor::Shared(fd) }
    }
}

impl<'a> Node<'a> {
    /// The node of a descriptor that another holds.
    pub fn borrowed(fd: BorrowedFd<'a>) -> Self {
        Node { fd: Descriptor::Borrowed(fd) }
    }

    /// Attributes.
    ///
    /// # Errors
    /// The store's.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(self)?)
    }

    /// Opens the node itself again, with other flags.
    ///
    /// # Errors
    /// The store's.
    pub fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(super::openat(CWD, self.path(), flags, Mode::empty())?)
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// ENOENT if it is not a link; else the store's.
    pub fn readlink(&self) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Sets the permission bits (0 to 0o7777). EOPNOTSUPP for a symbolic link.
    ///
    /// # Errors
    /// The store's.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match &self.fd {
            Descriptor::Shared(fd) => Ok(rustix::fs::fchmod(fd, mode)?),
            _ => Ok(rustix::fs::chmodat(CWD, self.path(), mode, AtFlags::empty())?),
        }
    }

    /// Sets owner, group, or both. The kernel clears set-user-id and set-group-id bits of a file.
    ///
    /// # Errors
    /// EPERM without privilege; EINVAL for the id that means "leave it"; else the store's.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(Errno::INVAL.into());
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(rustix::fs::chownat(self, "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    /// Sets the times of last access and last modification (`UTIME_NOW`, `UTIME_OMIT` as in utimensat(2)).
    ///
    /// # Errors
    /// The store's.
    pub fn set_times(&self, last_access: Timespec, last_modification: Timespec) -> io::Result<()> {
        let times = Timestamps { last_access, last_modification };
        match &self.fd {
            Descriptor::Shared(fd) => Ok(rustix::fs::futimens(fd, &times)?),
            _ => Ok(rustix::fs::utimensat(CWD, self.path(), &times, AtFlags::empty())?),
        }
    }

    /// Gives the node another name. ENOENT if it has none any more.
    ///
    /// # Errors
    /// EEXIST if the name is taken; else the store's.
    pub fn link(&self, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        let new = to.component(new)?;
        Ok(rustix::fs::linkat(CWD, self.path(), to, new, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Value of an extended attribute; `None` if there is none.
    ///
    /// # Errors
    /// EOPNOTSUPP if the store has none at all; else the store's.
    pub fn get_xattr(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        match grow(|out| rustix::fs::getxattr(self.path(), name, out)) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether there is any extended attribute.
    ///
    /// # Errors
    /// The store's.
    pub fn has_xattrs(&self) -> io::Result<bool> {
        any(|room| rustix::fs::listxattr(self.path(), room))
    }

    /// Names of the extended attributes; none if the store has none at all.
    ///
    /// # Errors
    /// The store's.
    pub fn list_xattr(&self) -> io::Result<Vec<OsString>> {
        let names = match grow(|out| rustix::fs::listxattr(self.path(), out)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        let names = names.split(|&b| b == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
    }

    /// Bytes of the names of all extended attributes, each with a zero byte; 0 if the store has none at all.
    ///
    /// # Errors
    /// The store's.
    pub fn xattr_names_len(&self) -> io::Result<usize> {
        match rustix::fs::listxattr_query(self.path()) {
            Err(Errno::OPNOTSUPP) => Ok(0),
            len => Ok(len?),
        }
    }

    /// Sets an extended attribute; `flags` as in setxattr(2).
    ///
    /// # Errors
    /// EEXIST and ENODATA as `flags` ask; ENOSPC or E2BIG for a value the store cannot hold; else the store's.
    pub fn set_xattr(&self, name: &OsStr, value: &[u8], flags: XattrFlags) -> io::Result<()> {
        #[cfg(test)]
        super::power::call()?;
        Ok(rustix::fs::setxattr(self.path(), name, value, flags)?)
    }

    /// Removes an extended attribute; false if there was none.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_xattr(&self, name: &OsStr) -> io::Result<bool> {
        #[cfg(test)]
        super::power::call()?;
        match rustix::fs::removexattr(self.path(), name) {
            Ok(()) => Ok(true),
            Err(Errno::NODATA) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.as_fd().as_raw_fd())
    }
}

/// The largest attribute value and list of names that Linux has.
const XATTR_MAX: usize = 64 * 1024;

/// Whether `list` lists any name. One byte is room for none.
pub(super) fn any(list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> io::Result<bool> {
    match list(&mut [0]) {
        Ok(len) => Ok(len > 0),
        Err(Errno::RANGE) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// What `read` returns, tried with a small buffer first.
fn grow(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; 512];
    loop {
        match read(&mut out) {
            Ok(n) => {
                out.truncate(n);
                return Ok(out);
            }
            Err(Errno::RANGE) if out.len() < XATTR_MAX => out = vec![0; XATTR_MAX],
            Err(e) => return Err(e),
        }
    }
}
