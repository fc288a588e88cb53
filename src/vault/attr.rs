//! Attributes of a node as an application sees them.

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

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

/// Attributes; `size` is the plaintext's (of an open file: with what is not yet flushed).
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
    /// Links. (A directory's, like the store's.)
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks in the store.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last write.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// A given time.
    At(Time),
}

/// Attributes to set; `None` leaves one as it is.
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

/// Space of the store, as an application sees it.
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
