//! Attributes of a node as an application sees them.

use content::{Stamp, Time};
use format::layout;
use rustix::fs::{FileType, Timespec, UTIME_NOW, UTIME_OMIT};

/// Type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Attributes of a node. `size` is the plaintext size; for an open file it includes data not yet
/// flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Device of the store.
    pub dev: u64,
    /// Inode number in the store.
    pub ino: u64,
    /// Type.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    /// Number of links. (For a directory, the store's.)
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks in the store.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last write.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// The given time.
    At(Time),
}

/// Attributes to set; those that are `None` keep their values.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

/// Space in the store, as an application sees it.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct StatFs {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
}

impl Kind {
    /// Converts a file type of the store; `None` for one that Linux does not have.
    pub fn from_store(kind: FileType) -> Option<Self> {
        Some(match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Unknown => return None,
        })
    }

    /// The store's file type for this kind.
    pub fn to_store(self) -> FileType {
        match self {
            Kind::File => FileType::RegularFile,
            Kind::Dir => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
        }
    }
}

/// Permission bits of a store's `st_mode`.
pub(super) fn permissions(mode: u32) -> u32 {
    mode & 0o7777
}

/// Identifies an inode: device and inode number.
pub(super) fn key(raw: &rustix::fs::Stat) -> (u64, u64) {
    (raw.st_dev, raw.st_ino)
}

/// Values that reveal that another machine changed the file.
pub(super) fn stamp(raw: &rustix::fs::Stat) -> Stamp {
    Stamp {
        len: u64::try_from(raw.st_size).unwrap_or(0),
        mtime: Time::from_store(raw.st_mtime, raw.st_mtime_nsec),
        ctime: Time::from_store(raw.st_ctime, raw.st_ctime_nsec),
    }
}

impl Stat {
    /// Converts the store's attributes to those an application sees; the plaintext size is computed.
    /// `None` for a type that Linux does not have.
    pub(super) fn from_store(raw: &rustix::fs::Stat, target_len: impl Fn(u64) -> u64) -> Option<Self> {
        let kind = Kind::from_store(FileType::from_raw_mode(raw.st_mode))?;
        let stored = u64::try_from(raw.st_size).unwrap_or(0);
        Some(Stat {
            dev: raw.st_dev,
            ino: raw.st_ino,
            kind,
            mode: permissions(raw.st_mode),
            nlink: u32::try_from(raw.st_nlink).unwrap_or(u32::MAX),
            uid: raw.st_uid,
            gid: raw.st_gid,
            rdev: raw.st_rdev,
            size: match kind {
                Kind::File => layout::plain_size(stored),
                Kind::Symlink => target_len(stored),
                _ => stored,
            },
            blocks: u64::try_from(raw.st_blocks).unwrap_or(0),
            atime: Time::from_store(raw.st_atime, raw.st_atime_nsec),
            mtime: Time::from_store(raw.st_mtime, raw.st_mtime_nsec),
            ctime: Time::from_store(raw.st_ctime, raw.st_ctime_nsec),
        })
    }
}

impl SetTime {
    /// Converts to the form that utimensat(2) takes; `None` leaves the time unchanged.
    pub(super) fn to_store(time: Option<SetTime>) -> Timespec {
        match time {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(SetTime::At(t)) => Timespec { tv_sec: t.seconds, tv_nsec: t.nanoseconds.into() },
        }
    }
}
