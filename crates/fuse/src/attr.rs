//! Conversion of attributes between the kernel's types and the vault's.

use content::Time;
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vault::{Kind, SetAttr, SetTime, Stat};

/// Preferred I/O size reported to programs, in bytes (`st_blksize`).
const BLOCK_SIZE: u32 = 4096;

/// Converts a node's attributes for the kernel, under its number in the mount.
pub fn file_attr(number: u64, stat: &Stat) -> FileAttr {
    let ctime = system_time(stat.ctime);
    FileAttr {
        ino: INodeNo(number),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime,
        crtime: ctime,
        kind: file_type(stat.kind),
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        // The kernel's 32-bit encoding equals the low half of the C library's for majors below 4096.
        rdev: stat.rdev as u32,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Attributes of a node of which only the type and the number are known.
pub fn unknown(kind: Kind, ino: u64) -> Stat {
    Stat {
        dev: 0,
        ino,
        kind,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    }
}

/// Converts a node type to fuser's.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Extracts the node type from a mode given to mknod(2). A mode without a type means a regular file.
pub fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

/// Returns the mode after a write by a caller without privileges. The set-user-id bit is cleared, and so
/// is set-group-id, unless the group may not execute and the writer is `in_group`. `in_group` is called
/// only if it matters. `None` if no bit changes.
pub fn without_privileges(mode: u32, in_group: impl FnOnce() -> bool) -> Option<u32> {
    let mut kept = mode & !libc::S_ISUID;
    if mode & libc::S_ISGID != 0 && (mode & libc::S_IXGRP != 0 || !in_group()) {
        kept &= !libc::S_ISGID;
    }
    (kept != mode).then_some(kept)
}

/// Sets the modification time of a resized file. The kernel leaves that to us.
pub fn touch_resized(changes: &mut SetAttr) {
    if changes.size.is_some() && changes.mtime.is_none() {
        changes.mtime = Some(SetTime::Now);
    }
}

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    whole.and_then(|t| t.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

/// Converts a time from a setattr request. Before 1970, fuser subtracts the nanoseconds from the seconds
/// although the kernel means them added. This undoes it, so that programs read back the time they set.
pub fn set_time(time: TimeOrNow) -> SetTime {
    let TimeOrNow::SpecificTime(time) = time else { return SetTime::Now };
    let (since, sign) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after, 1),
        Err(before) => (before.duration(), -1),
    };
    let seconds = match i64::try_from(since.as_secs()) {
        Ok(seconds) => seconds * sign,
        Err(_) => i64::MIN,
    };
    SetTime::At(Time { seconds, nanoseconds: since.subsec_nanos() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_keep_their_nanoseconds() {
        for seconds in [0, 1, -1, -2, 1_700_000_000, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            for nanoseconds in [0, 1, 999_999_999] {
                let time = system_time(Time { seconds, nanoseconds });
                let expected = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
                let got = match time.duration_since(UNIX_EPOCH) {
                    Ok(d) => d.as_nanos() as i128,
                    Err(e) => -(e.duration().as_nanos() as i128),
                };
                assert_eq!(got, expected);
            }
        }
    }

    #[test]
    fn set_times_are_what_the_kernel_sent() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-2, 800_000_000), (i64::MIN, 0)] {
            // The time that fuser makes of the kernel's pair.
            let decoded = match seconds >= 0 {
                true => UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds),
                false => UNIX_EPOCH - Duration::new(i64::unsigned_abs(seconds), nanoseconds),
            };
            let set = set_time(TimeOrNow::SpecificTime(decoded));
            assert_eq!(set, SetTime::At(Time { seconds, nanoseconds }));
        }
        assert_eq!(set_time(TimeOrNow::Now), SetTime::Now);
    }

    #[test]
    fn writing_takes_privileges_away() {
        for in_group in [true, false] {
            assert_eq!(without_privileges(0o755, || panic!("no reason to ask")), None);
            assert_eq!(without_privileges(0o4755, || panic!("no reason to ask")), Some(0o755));
            assert_eq!(without_privileges(0o6755, || in_group), Some(0o755));
            assert_eq!(without_privileges(0o2755, || in_group), Some(0o755));
        }
        assert_eq!(without_privileges(0o2644, || true), None, "mandatory locking, not set-group-id");
        assert_eq!(without_privileges(0o6644, || true), Some(0o2644));
        assert_eq!(without_privileges(0o2644, || false), Some(0o644));
        assert_eq!(without_privileges(0o6666, || false), Some(0o666));
    }
}
