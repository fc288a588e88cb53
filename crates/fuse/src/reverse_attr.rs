//! Conversion of a reverse view's attributes to fuser's types.

use super::{attr, owners::Owners};
use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::Stat;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vault::Kind;

/// The type of a node.
pub fn kind(stat: &Stat) -> FileType {
    file_type(rustix::fs::FileType::from_raw_mode(stat.st_mode))
}

/// Converts a file type to fuser's.
pub fn file_type(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Plain;
    match kind {
        Plain::Directory => FileType::Directory,
        Plain::Symlink => FileType::Symlink,
        Plain::Fifo => FileType::NamedPipe,
        Plain::Socket => FileType::Socket,
        Plain::CharacterDevice => FileType::CharDevice,
        Plain::BlockDevice => FileType::BlockDevice,
        Plain::RegularFile | Plain::Unknown => FileType::RegularFile,
    }
}

/// Converts attributes for the kernel, which is told of these `owners`.
pub fn attr(number: u64, stat: &Stat, owners: Owners) -> FileAttr {
    let (uid, gid) = owners.instead_of(stat.st_uid, stat.st_gid);
    let ctime = time(stat.st_ctime, stat.st_ctime_nsec);
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime,
        crtime: ctime,
        kind: kind(stat),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid,
        gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// Attributes of a node of which only the type is known.
pub fn unknown(number: u64, kind: rustix::fs::FileType) -> FileAttr {
    let kind = Kind::from_store(kind).unwrap_or(Kind::File);
    attr::file_attr(number, &attr::unknown(kind, number))
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    start + Duration::from_nanos(nanoseconds)
}
