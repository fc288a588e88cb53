//! The counted activities and caches.

/// An activity of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Activity {
    Lookup,
    Forget,
    Getattr,
    Setattr,
    Readlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Symlink,
    Rename,
    Link,
    Create,
    Open,
    Read,
    Write,
    Flush,
    Release,
    Fsync,
    Opendir,
    Readdir,
    Releasedir,
    Fsyncdir,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Access,
    Fallocate,
    Lseek,
    Copy,
    Bmap,
    /// Passing read data to the kernel, which copies it.
    Reply,
    StoreRead,
    StoreWrite,
    StoreSync,
    /// Sealing and opening of single chunks inline, outside batches.
    Single,
    /// Sealing and opening of batches, on any engine.
    Batch,
    /// Waiting for a buffer while the pool is exhausted.
    Buffer,
    /// Background work waiting for a thread.
    Background,
}

/// Number of activities.
pub(super) const ACTIVITIES: usize = Activity::ALL.len();

impl Activity {
    /// All activities, in the order of their numbers.
    pub const ALL: [Activity; 41] = [
        Activity::Lookup,
        Activity::Forget,
        Activity::Getattr,
        Activity::Setattr,
        Activity::Readlink,
        Activity::Mknod,
        Activity::Mkdir,
        Activity::Unlink,
        Activity::Rmdir,
        Activity::Symlink,
        Activity::Rename,
        Activity::Link,
        Activity::Create,
        Activity::Open,
        Activity::Read,
        Activity::Write,
        Activity::Flush,
        Activity::Release,
        Activity::Fsync,
        Activity::Opendir,
        Activity::Readdir,
        Activity::Releasedir,
        Activity::Fsyncdir,
        Activity::Statfs,
        Activity::Setxattr,
        Activity::Getxattr,
        Activity::Listxattr,
        Activity::Removexattr,
        Activity::Access,
        Activity::Fallocate,
        Activity::Lseek,
        Activity::Copy,
        Activity::Bmap,
        Activity::Reply,
        Activity::StoreRead,
        Activity::StoreWrite,
        Activity::StoreSync,
        Activity::Single,
        Activity::Batch,
        Activity::Buffer,
        Activity::Background,
    ];

    /// The object of a snapshot that contains the activity.
    pub(super) fn group(self) -> &'static str {
        match self {
            Activity::StoreRead | Activity::StoreWrite | Activity::StoreSync => "store",
            Activity::Single | Activity::Batch => "crypto",
            Activity::Buffer | Activity::Background => "queue",
            Activity::Reply => "fuse",
            _ => "requests",
        }
    }

    /// Name of the activity in that object.
    pub(super) fn name(self) -> &'static str {
        match self {
            Activity::Lookup => "lookup",
            Activity::Forget => "forget",
            Activity::Getattr => "getattr",
            Activity::Setattr => "setattr",
            Activity::Readlink => "readlink",
            Activity::Mknod => "mknod",
            Activity::Mkdir => "mkdir",
            Activity::Unlink => "unlink",
            Activity::Rmdir => "rmdir",
            Activity::Symlink => "symlink",
            Activity::Rename => "rename",
            Activity::Link => "link",
            Activity::Create => "create",
            Activity::Open => "open",
            Activity::Read | Activity::StoreRead => "read",
            Activity::Write | Activity::StoreWrite => "write",
            Activity::Flush => "flush",
            Activity::Release => "release",
            Activity::Fsync => "fsync",
            Activity::Opendir => "opendir",
            Activity::Readdir => "readdir",
            Activity::Releasedir => "releasedir",
            Activity::Fsyncdir => "fsyncdir",
            Activity::Statfs => "statfs",
            Activity::Setxattr => "setxattr",
            Activity::Getxattr => "getxattr",
            Activity::Listxattr => "listxattr",
            Activity::Removexattr => "removexattr",
            Activity::Access => "access",
            Activity::Fallocate => "fallocate",
            Activity::Lseek => "lseek",
            Activity::Copy => "copy",
            Activity::Bmap => "bmap",
            Activity::Reply => "reply",
            Activity::StoreSync => "sync",
            Activity::Single => "single",
            Activity::Batch => "batch",
            Activity::Buffer => "buffer",
            Activity::Background => "background",
        }
    }
}

/// A cache whose hits and misses are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Cache {
    /// Bytes opened ahead of a reader.
    Ahead,
    /// Open directories.
    Folders,
}

/// Number of caches.
pub(super) const CACHES: usize = Cache::ALL.len();

impl Cache {
    /// All caches, in the order of their numbers.
    pub const ALL: [Cache; 2] = [Cache::Ahead, Cache::Folders];

    /// Name of the cache in a snapshot.
    pub(super) fn name(self) -> &'static str {
        match self {
            Cache::Ahead => "read_ahead",
            Cache::Folders => "directories",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_complete_and_in_order() {
        assert!(Activity::ALL.iter().enumerate().all(|(at, activity)| *activity as usize == at));
        assert_eq!(Activity::Background as usize + 1, ACTIVITIES);
        assert!(Cache::ALL.iter().enumerate().all(|(at, cache)| *cache as usize == at));
        assert_eq!(Cache::Folders as usize + 1, CACHES);
    }
}
