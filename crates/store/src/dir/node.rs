//! A node of the store of any type, pinned by a descriptor.
//!
//! An `O_PATH` descriptor works for every type of node and has no side effects, but few system calls accept
//! it. The other calls use its entry in `/proc/self/fd`, which resolves to exactly that node. A descriptor
//! that is open for reading or writing is accepted by more calls, and is passed to them directly.

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
    /// Takes ownership of a descriptor.
    pub fn owned(fd: OwnedFd) -> Self {
        Node { fd: Descriptor::Owned(fd) }
    }

    /// Shares a descriptor, which must be open for reading or writing.
    pub fn shared(fd: Arc<OwnedFd>) -> Self {
        Node { fd: Descriptor::Shared(fd) }
    }
}

impl<'a> Node<'a> {
    /// Borrows a descriptor.
    pub fn borrowed(fd: BorrowedFd<'a>) -> Self {
        Node { fd: Descriptor::Borrowed(fd) }
    }

    /// Attributes, by fstat(2).
    ///
    /// # Errors
    /// Any error from the store.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(self)?)
    }

    /// Opens the same node again with other flags.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(super::openat(CWD, self.path(), flags, Mode::empty())?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// ENOENT if it is not a symbolic link; otherwise any error from the store.
    pub fn readlink(&self) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Sets the permission bits (0 to 0o7777).
    ///
    /// # Errors
    /// EOPNOTSUPP for a symbolic link; otherwise any error from the store.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match &self.fd {
            Descriptor::Shared(fd) => Ok(rustix::fs::fchmod(fd, mode)?),
            _ => Ok(rustix::fs::chmodat(CWD, self.path(), mode, AtFlags::empty())?),
        }
    }

    /// Sets owner, group, or both. The kernel clears the set-user-id and set-group-id bits of a file.
    ///
    /// # Errors
    /// EPERM without privilege; EINVAL for `u32::MAX`, which means "unchanged" to chown(2); otherwise
    /// any error from the store.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(Errno::INVAL.into());
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(rustix::fs::chownat(self, "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    /// Sets access and modification time (`UTIME_NOW` and `UTIME_OMIT` as in utimensat(2)).
    ///
    /// # Errors
    /// Any error from the store.
    pub fn set_times(&self, last_access: Timespec, last_modification: Timespec) -> io::Result<()> {
        let times = Timestamps { last_access, last_modification };
        match &self.fd {
            Descriptor::Shared(fd) => Ok(rustix::fs::futimens(fd, &times)?),
            _ => Ok(rustix::fs::utimensat(CWD, self.path(), &times, AtFlags::empty())?),
        }
    }

    /// Creates a hard link to the node.
    ///
    /// # Errors
    /// ENOENT if the node has no name any more; EEXIST if `new` is taken; otherwise any error from the store.
    pub fn link(&self, to: &StoreDir, new: &OsStr) -> io::Result<()> {
        let new = to.component(new)?;
        Ok(rustix::fs::linkat(CWD, self.path(), to, new, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// The value of an extended attribute; `None` if it is not set.
    ///
    /// # Errors
    /// EOPNOTSUPP if the store has no extended attributes; otherwise any error from the store.
    pub fn get_xattr(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        match grow(|out| rustix::fs::getxattr(self.path(), name, out)) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the node has any extended attribute.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn has_xattrs(&self) -> io::Result<bool> {
        any(|room| rustix::fs::listxattr(self.path(), room))
    }

    /// Names of all extended attributes. Empty if the store does not support them.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn list_xattr(&self) -> io::Result<Vec<OsString>> {
        let names = match grow(|out| rustix::fs::listxattr(self.path(), out)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        let names = names.split(|&b| b == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
    }

    /// Length in bytes of the list of all attribute names, each with its NUL terminator. 0 if the store
    /// does not support extended attributes.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn xattr_names_len(&self) -> io::Result<usize> {
        match rustix::fs::listxattr_query(self.path()) {
            Err(Errno::OPNOTSUPP) => Ok(0),
            len => Ok(len?),
        }
    }

    /// Sets an extended attribute; `flags` as in setxattr(2).
    ///
    /// # Errors
    /// EEXIST or ENODATA according to `flags`; ENOSPC or E2BIG if the store has no room for the value;
    /// otherwise any error from the store.
    pub fn set_xattr(&self, name: &OsStr, value: &[u8], flags: XattrFlags) -> io::Result<()> {
        #[cfg(feature = "testing")]
        super::power::call()?;
        Ok(rustix::fs::setxattr(self.path(), name, value, flags)?)
    }

    /// Removes an extended attribute. Returns false if it was not set.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn remove_xattr(&self, name: &OsStr) -> io::Result<bool> {
        #[cfg(feature = "testing")]
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

/// Linux's limit for an attribute value and for a list of names, in bytes.
const XATTR_MAX: usize = 64 * 1024;

/// Whether `list` returns any name. The one-byte buffer is too small for any, which is reported as ERANGE.
pub(super) fn any(list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> io::Result<bool> {
    match list(&mut [0]) {
        Ok(len) => Ok(len > 0),
        Err(Errno::RANGE) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Calls `read` with a small buffer, then with the largest one if that was too small.
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
