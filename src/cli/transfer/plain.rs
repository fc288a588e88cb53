//! The filesystem as the process sees it, accessed by directory descriptors. Links are followed in the
//! path that the user named, and nowhere below it.

use super::side::{CopiedAttribute, CopyTarget, New, Room, SYNC_EACH, Side, if_there};
use crate::cli::mounts::{self, Mount};
use content::{Segment, Time};
use rustix::{
    fs::{CWD, Mode, OFlags, SeekFrom, Timespec, XattrFlags},
    io::Errno,
};
use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};
use store::{BackingFile, DirFile, Filesystem, Node, StoreDir};
use vault::{Kind, Stat};

/// Maximum number of bytes per read.
const PIECE: u64 = 8 << 20;

/// The filesystem as the process sees it.
pub struct PlainSide {
    /// Device and inode of a vault's directory. Neither it nor a mount of the vault is entered: a vault
    /// cannot be copied into itself.
    vault: (u64, u64),
    mounts: Vec<u64>,
    /// Filesystem and device of the first directory that was opened.
    filesystem: OnceCell<(Filesystem, u64)>,
}

impl PlainSide {
    /// The filesystem without the directory of this vault.
    ///
    /// # Errors
    /// If the vault's directory cannot be reached.
    pub fn beside(vault: &Path) -> io::Result<Self> {
        let mounts = mounts::of_vault(&vault.canonicalize()?).iter().map(Mount::device_number).collect();
        let vault = rustix::fs::stat(vault)?;
        Ok(PlainSide { vault: (vault.st_dev, vault.st_ino), mounts, filesystem: OnceCell::new() })
    }

    /// Remembers the filesystem to sync.
    fn note_filesystem(&self, dir: &StoreDir, device: u64) -> io::Result<()> {
        if self.filesystem.get().is_none() {
            let _ = self.filesystem.set((dir.filesystem()?, device)); // It was just found to be empty.
        }
        Ok(())
    }
}

impl Side for PlainSide {
    type Dir = StoreDir;
    type Node = Node<'static>;

    fn at(&self, path: &Path) -> io::Result<Option<Self::Node>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        if_there(opened.map(Node::owned).map_err(io::Error::from))
    }

    fn names(&self, dir: &StoreDir) -> io::Result<Vec<OsString>> {
        Ok(dir.list()?.into_iter().map(|entry| entry.name).collect())
    }

    fn node(&self, dir: &StoreDir, name: &OsStr) -> io::Result<Option<Self::Node>> {
        if_there(dir.node(name))
    }

    fn stat(&self, node: &Self::Node) -> io::Result<Stat> {
        let raw = node.stat()?;
        let kind = Kind::from_store(rustix::fs::FileType::from_raw_mode(raw.st_mode));
        Ok(Stat {
            dev: raw.st_dev,
            ino: raw.st_ino,
            kind: kind.ok_or(io::ErrorKind::Unsupported)?,
            mode: raw.st_mode & 0o7777,
            nlink: u32::try_from(raw.st_nlink).unwrap_or(u32::MAX),
            uid: raw.st_uid,
            gid: raw.st_gid,
            rdev: raw.st_rdev,
            size: u64::try_from(raw.st_size).unwrap_or(0),
            blocks: u64::try_from(raw.st_blocks).unwrap_or(0),
            atime: Time::from_store(raw.st_atime, raw.st_atime_nsec),
            mtime: Time::from_store(raw.st_mtime, raw.st_mtime_nsec),
            ctime: Time::from_store(raw.st_ctime, raw.st_ctime_nsec),
        })
    }

    fn enter(&self, node: &Self::Node) -> io::Result<StoreDir> {
        let dir = StoreDir::of(node)?;
        let raw = node.stat()?;
        if (raw.st_dev, raw.st_ino) == self.vault {
            return Err(io::Error::other("it is the vault itself"));
        }
        if self.mounts.contains(&raw.st_dev) {
            return Err(io::Error::other("it is a mount of the vault itself"));
        }
        self.note_filesystem(&dir, raw.st_dev)?;
        Ok(dir)
    }

    fn node_of_dir(&self, dir: &StoreDir) -> io::Result<Self::Node> {
        Ok(Node::owned(dir.as_fd().try_clone_to_owned()?))
    }

    fn link_target(&self, node: &Self::Node) -> io::Result<OsString> {
        node.readlink()
    }

    fn attributes(&self, node: &Self::Node) -> io::Result<Vec<CopiedAttribute>> {
        let mut attributes = Vec::new();
        for name in node.list_xattr()? {
            match node.get_xattr(&name) {
                Ok(None) => {} // It was removed meanwhile.
                Ok(Some(value)) => attributes.push((name, Ok(value))),
                Err(e) => attributes.push((name, Err(e))),
            }
        }
        Ok(attributes)
    }

    fn each_segment(
        &self,
        node: &Self::Node,
        give: &mut dyn FnMut(Segment) -> io::Result<()>,
    ) -> io::Result<Stat> {
        let fd = node.reopen(OFlags::RDONLY)?;
        let before = self.stat(node)?;
        let (mut at, mut buffer) = (0, Vec::new());
        while let Some(range) = next_data(&fd, at, before.size)? {
            buffer.resize((range.end - range.start).min(PIECE) as usize, 0);
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut buffer[..], range.start))?;
            if read == 0 {
                break;
            }
            give(Segment::Data(range.start, &buffer[..read]))?;
            at = range.start + read as u64;
        }
        let after = self.stat(node)?;
        if (after.size, after.mtime) != (before.size, before.mtime) {
            return Err(io::Error::other("it was changed while it was read"));
        }
        Ok(before)
    }
}

/// The next range with data, starting at `at`.
fn next_data(fd: &OwnedFd, at: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..size)), // No support for holes.
        Err(e) => return Err(e.into()),
    };
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some(start..end))
}

impl CopyTarget for PlainSide {
    type File = DirFile;

    fn make(&self, dir: &StoreDir, name: &OsStr, new: New) -> io::Result<()> {
        match new {
            New::Dir => dir.mkdir(name, 0o700),
            New::Symlink(target) => dir.symlink(target, name),
            New::Special(kind, number) => dir.mknod(name, kind.to_store(), 0o600, number),
        }
    }

    fn link(&self, node: &Self::Node, dir: &StoreDir, name: &OsStr) -> io::Result<()> {
        node.link(dir, name)
    }

    fn create(&self, dir: &StoreDir, name: &OsStr) -> io::Result<DirFile> {
        Ok(DirFile::new(dir.create_file(name, 0o600)?))
    }

    fn node_of_file(&self, file: &DirFile) -> Self::Node {
        Node::shared(file.fd())
    }

    fn write(&self, file: &DirFile, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_at(bytes, at)
    }

    fn set_len(&self, file: &DirFile, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn set_owner(&self, node: &Self::Node, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        node.chown(user, group)
    }

    fn set_mode(&self, node: &Self::Node, mode: u32) -> io::Result<()> {
        node.chmod(mode)
    }

    fn set_times(&self, node: &Self::Node, accessed: Time, modified: Time) -> io::Result<()> {
        let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
        node.set_times(spec(accessed), spec(modified))
    }

    fn set_attribute(&self, node: &Self::Node, name: &OsStr, value: &[u8]) -> io::Result<()> {
        node.set_xattr(name, value, XattrFlags::empty())
    }

    fn room(&self, node: &Self::Node) -> io::Result<Room> {
        let space = rustix::fs::fstatvfs(node)?;
        let nodes = (space.f_files > 0).then_some(space.f_favail);
        Ok(Room { bytes: space.f_bavail.saturating_mul(space.f_frsize), nodes })
    }

    fn store(&self, files: &[&DirFile]) -> io::Result<()> {
        let whole = self.filesystem.get().filter(|(all, _)| files.len() > SYNC_EACH && all.syncs());
        if let Some((all, _)) = whole {
            all.sync()?;
        }
        for file in files {
            let fd = file.fd();
            if whole
                .is_none_or(|(_, device)| rustix::fs::fstat(&*fd).is_ok_and(|stat| stat.st_dev != *device))
            {
                rustix::fs::fsync(&*fd)?;
            }
        }
        Ok(())
    }

    fn rename(&self, dir: &StoreDir, from: &OsStr, to: &OsStr) -> io::Result<()> {
        dir.rename(from, dir, to)
    }

    fn rename_new(&self, dir: &StoreDir, from: &OsStr, to: &OsStr) -> io::Result<()> {
        dir.rename_new(from, dir, to)
    }

    fn remove(&self, dir: &StoreDir, name: &OsStr) -> io::Result<()> {
        dir.unlink(name)
    }

    fn store_names(&self, dir: &StoreDir) -> io::Result<()> {
        dir.sync()
    }

    fn finish(&self) -> io::Result<()> {
        match self.filesystem.get() {
            Some((all, _)) if all.syncs() => all.sync(),
            _ => Ok(()),
        }
    }
}
