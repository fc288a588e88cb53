//! The plain directory, read by path relative to its descriptor. No link is followed, and nothing is
//! written. Excluded nodes do not exist here.

use super::exclusions::Exclusions;
use format::name::NAME_MAX;
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatVfs, fstat, fstatvfs, getxattr,
        listxattr, openat2, readlinkat, statat,
    },
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

/// The configuration file in the plain directory's root.
pub const CONFIG: &str = ".warpcrypt.reverse.json";

/// Linux's limit on the total bytes of a node's attribute names, and on the bytes of one value.
const ATTRIBUTES_MAX: usize = 65_536;

/// An entry of a directory.
pub struct PlainEntry {
    pub name: Vec<u8>,
    pub kind: FileType,
    pub inode: u64,
    pub size: u64,
}

/// The plain directory.
pub struct PlainDir {
    root: OwnedFd,
    /// Device number of the root.
    device: u64,
    exclusions: Exclusions,
}

impl PlainDir {
    pub fn open(path: &Path, exclusions: Exclusions) -> io::Result<PlainDir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        Ok(PlainDir { root, device, exclusions })
    }

    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        let mut stat = fstat(self.at(path, OFlags::PATH)?)?;
        if is_directory(&stat) && !self.exclusions.is_empty() {
            // The count includes excluded directories. 1 means that subdirectories are not counted.
            stat.st_nlink = 1;
        }
        Ok(stat)
    }

    /// Whether a node is on the same filesystem as the root.
    pub fn is_on_root_filesystem(&self, stat: &Stat) -> bool {
        stat.st_dev == self.device
    }

    /// Fails only if the node cannot be reached, for example because it does not exist. Its attributes need
    /// not be readable.
    pub fn find(&self, path: &Path) -> io::Result<()> {
        self.at(path, OFlags::PATH)?;
        Ok(())
    }

    pub fn space(&self) -> io::Result<StatVfs> {
        Ok(fstatvfs(&self.root)?)
    }

    pub fn target(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(readlinkat(self.at(path, OFlags::PATH)?, "", Vec::new())?.into_bytes())
    }

    /// Opens a regular file.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        // Do not block: it may have become a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = match self.at(path, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.at(path, flags),
            opened => opened,
        }?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(Errno::STALE.into()),
        }
    }

    /// The names of a node's attributes. Empty on a filesystem without attributes.
    pub fn attributes(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let node = self.at(path, OFlags::PATH)?;
        let mut names = vec![0; ATTRIBUTES_MAX];
        match listxattr(entry(&node), &mut names) {
            Ok(length) => names.truncate(length),
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
    }

    /// The value of an attribute.
    pub fn attribute(&self, path: &Path, name: &OsStr) -> io::Result<Vec<u8>> {
        let node = self.at(path, OFlags::PATH)?;
        let mut value = vec![0; ATTRIBUTES_MAX];
        let length = getxattr(entry(&node), name, &mut value)?;
        value.truncate(length);
        Ok(value)
    }

    /// The entries of a directory; none if it is on another filesystem and those are excluded. Entries
    /// whose attributes cannot be read are listed, too: copies would drop an entry that is missing from the
    /// listing. Accessing it by name then reports the error.
    pub fn list(&self, path: &Path) -> io::Result<Vec<PlainEntry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match self.at(path, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.at(path, flags),
            opened => opened,
        }?;
        let mut all = Vec::new();
        if self.exclusions.one_filesystem() && !self.is_on_root_filesystem(&fstat(&fd)?) {
            return Ok(all);
        }
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || name.len() > NAME_MAX {
                continue;
            }
            let place = path.join(OsStr::from_bytes(name));
            let is_excluded = |kind| self.exclusions.names(&place, kind == FileType::Directory);
            // Before the entry is examined, because an excluded mount may not answer.
            if entry.file_type() != FileType::Unknown && is_excluded(entry.file_type()) {
                continue;
            }
            let (kind, inode, size) = match statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => (FileType::from_raw_mode(stat.st_mode), stat.st_ino, stat.st_size),
                Err(Errno::NOENT) => continue,
                Err(_) => (entry.file_type(), entry.ino(), 0),
            };
            if is_excluded(kind) {
                continue;
            }
            let size = u64::try_from(size).unwrap_or(0);
            all.push(PlainEntry { name: name.to_vec(), kind, inode, size });
        }
        Ok(all)
    }

    /// Opens a node. Fails with ENOENT if it is excluded.
    fn at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let node = self.open_any(path, flags)?;
        if self.is_excluded(path, &node)? { Err(Errno::NOENT) } else { Ok(node) }
    }

    fn is_excluded(&self, path: &Path, node: &OwnedFd) -> rustix::io::Result<bool> {
        if self.exclusions.is_empty() {
            return Ok(false);
        }
        if self.exclusions.excludes(path, is_directory(&fstat(node)?)) {
            return Ok(true);
        }
        if self.exclusions.one_filesystem() {
            for above in path.ancestors().skip(1) {
                if !self.is_on_root_filesystem(&fstat(self.open_any(above, OFlags::PATH)?)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn open_any(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().as_bytes().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.root, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// A path to exactly this node. Attributes cannot be read through a descriptor opened with `O_PATH`.
fn entry(node: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", node.as_raw_fd())
}
