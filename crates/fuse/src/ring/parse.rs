//! Decodes a request from the bytes that the kernel puts into a ring. Tolerates any bytes.
//!
//! Layouts are those of the kernel's `include/uapi/linux/fuse.h`, protocol 7.42, in native byte order.

use content::Time;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
use vault::{SetAttr, SetTime};

/// Length in bytes of the header of every request.
pub const HEADER: usize = 40;
/// Length in bytes of the memory for the arguments.
pub const ARGUMENTS: usize = 128;

/// Opcode of a write request, whose data is not copied.
pub const WRITE: u32 = 16;

/// Bits of `fuse_getattr_in::getattr_flags` and `fuse_read_in::read_flags`.
const GETATTR_HANDLE: u32 = 1;
const READ_LOCK_OWNER: u32 = 1 << 1;
/// In a sync request: only the content must be durable.
const FSYNC_DATA: u32 = 1;
/// Nanoseconds per second.
const SECOND: u32 = 1_000_000_000;

/// Why a request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseFault {
    /// Its opcode is unknown.
    Unknown,
    /// It is too short, or one of its values is out of range.
    Malformed,
}

type Result<T> = std::result::Result<T, ParseFault>;

/// The header, common to all requests.
#[derive(Debug, Clone, Copy)]
pub struct RequestHeader {
    /// The kind of request.
    pub opcode: u32,
    /// Unique number of the request.
    pub unique: u64,
    /// The node concerned.
    pub number: u64,
    /// The calling user.
    pub user: u32,
    /// The calling group.
    pub group: u32,
    /// The calling thread's ID; 0 if it is not visible from this PID namespace.
    pub thread: u32,
}

/// A decoded request. Names and written data are borrowed from the ring.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // The fields are those of the system calls.
pub enum Operation<'a> {
    Lookup { name: &'a OsStr },
    Getattr { handle: Option<u64> },
    Setattr { handle: Option<u64>, changes: SetAttr },
    Readlink,
    Symlink { name: &'a OsStr, target: &'a OsStr },
    Mknod { name: &'a OsStr, mode: u32, rdev: u32, umask: u32 },
    Mkdir { name: &'a OsStr, mode: u32, umask: u32 },
    Unlink { name: &'a OsStr },
    Rmdir { name: &'a OsStr },
    Rename { name: &'a OsStr, to: u64, new_name: &'a OsStr, flags: u32 },
    Link { number: u64, name: &'a OsStr },
    Open { flags: i32 },
    Read { handle: u64, offset: u64, size: u32, page: bool },
    Write { handle: u64, offset: u64, data: &'a [u8], flags: u32, open: i32 },
    Statfs,
    Release { handle: u64 },
    Fsync { handle: u64, data: bool },
    Setxattr { name: &'a OsStr, value: &'a [u8], flags: i32 },
    Getxattr { name: &'a OsStr, room: u32 },
    Listxattr { room: u32 },
    Removexattr { name: &'a OsStr },
    Flush { handle: u64 },
    Opendir,
    Readdir { handle: u64, offset: u64, size: u32 },
    Readdirplus { handle: u64, offset: u64, size: u32 },
    Releasedir { handle: u64 },
    Fsyncdir { handle: u64 },
    Access { mask: i32 },
    Create { name: &'a OsStr, mode: u32, umask: u32, flags: i32 },
    Destroy,
    Fallocate { handle: u64, offset: u64, len: u64, mode: i32 },
    Lseek { handle: u64, offset: i64, whence: i32 },
    Copy { from: (u64, u64), number: u64, to: (u64, u64), len: u64 },
    Tmpfile { mode: u32, umask: u32, flags: i32 },
}

/// Decodes a header.
pub fn header(bytes: &[u8; HEADER]) -> RequestHeader {
    fn part<const N: usize>(bytes: &[u8; HEADER], at: usize) -> [u8; N] {
        std::array::from_fn(|i| bytes[at + i])
    }
    RequestHeader {
        opcode: u32::from_ne_bytes(part(bytes, 4)),
        unique: u64::from_ne_bytes(part(bytes, 8)),
        number: u64::from_ne_bytes(part(bytes, 16)),
        user: u32::from_ne_bytes(part(bytes, 24)),
        group: u32::from_ne_bytes(part(bytes, 28)),
        thread: u32::from_ne_bytes(part(bytes, 32)),
    }
}

/// Decodes a request with this opcode from its arguments and its payload.
///
/// # Errors
/// If the opcode is unknown or a value is invalid.
pub fn operation<'a>(opcode: u32, arguments: &[u8; ARGUMENTS], payload: &'a [u8]) -> Result<Operation<'a>> {
    use Operation as Op;
    let (args, rest) = (&mut Fields(arguments), &mut NameReader(payload));
    Ok(match opcode {
        1 => Op::Lookup { name: rest.name()? },
        3 => {
            let (flags, _unused, handle) = (args.u32()?, args.u32()?, args.u64()?);
            Op::Getattr { handle: (flags & GETATTR_HANDLE != 0).then_some(handle) }
        }
        4 => setattr(args)?,
        5 => Op::Readlink,
        6 => Op::Symlink { name: rest.name()?, target: rest.name()? },
        8 => {
            let (mode, rdev, umask) = (args.u32()?, args.u32()?, args.u32()?);
            Op::Mknod { name: rest.name()?, mode, rdev, umask }
        }
        9 => Op::Mkdir { name: rest.name()?, mode: args.u32()?, umask: args.u32()? },
        10 => Op::Unlink { name: rest.name()? },
        11 => Op::Rmdir { name: rest.name()? },
        12 => Op::Rename { to: args.u64()?, name: rest.name()?, new_name: rest.name()?, flags: 0 },
        13 => Op::Link { number: args.u64()?, name: rest.name()? },
        14 => Op::Open { flags: args.i32()? },
        15 => {
            let (handle, offset, size, flags) = (args.u64()?, args.offset()?, args.u32()?, args.u32()?);
            // A direct read carries a lock owner, even if no lock is held. A read of pages does not.
            Op::Read { handle, offset, size, page: flags & READ_LOCK_OWNER == 0 }
        }
        WRITE => {
            let (handle, offset, size, flags) = (args.u64()?, args.offset()?, args.u32()?, args.u32()?);
            let (_owner, open) = (args.u64()?, args.i32()?);
            Op::Write { handle, offset, data: rest.bytes(size)?, flags, open }
        }
        17 => Op::Statfs,
        18 => Op::Release { handle: args.u64()? },
        20 => Op::Fsync { handle: args.u64()?, data: args.u32()? & FSYNC_DATA != 0 },
        21 => {
            let (size, flags) = (args.u32()?, args.i32()?);
            Op::Setxattr { name: rest.name()?, value: rest.bytes(size)?, flags }
        }
        22 => Op::Getxattr { room: args.u32()?, name: rest.name()? },
        23 => Op::Listxattr { room: args.u32()? },
        24 => Op::Removexattr { name: rest.name()? },
        25 => Op::Flush { handle: args.u64()? },
        27 => Op::Opendir,
        28 => Op::Readdir { handle: args.u64()?, offset: args.u64()?, size: args.u32()? },
        29 => Op::Releasedir { handle: args.u64()? },
        30 => Op::Fsyncdir { handle: args.u64()? },
        34 => Op::Access { mask: args.i32()? },
        35 => {
            let (flags, mode, umask) = (args.i32()?, args.u32()?, args.u32()?);
            Op::Create { name: rest.name()?, mode, umask, flags }
        }
        38 => Op::Destroy,
        43 => {
            let (handle, offset, len) = (args.u64()?, args.offset()?, args.offset()?);
            Op::Fallocate { handle, offset, len, mode: args.i32()? }
        }
        44 => Op::Readdirplus { handle: args.u64()?, offset: args.u64()?, size: args.u32()? },
        45 => {
            let (to, flags) = (args.u64()?, args.u32()?);
            Op::Rename { to, name: rest.name()?, new_name: rest.name()?, flags }
        }
        46 => Op::Lseek { handle: args.u64()?, offset: args.i64()?, whence: args.i32()? },
        47 => {
            let (from, number) = ((args.u64()?, args.offset()?), args.u64()?);
            Op::Copy { from, number, to: (args.u64()?, args.offset()?), len: args.u64()? }
        }
        51 => {
            // The name in the payload has no meaning.
            let (flags, mode, umask) = (args.i32()?, args.u32()?, args.u32()?);
            Op::Tmpfile { mode, umask, flags }
        }
        _ => return Err(ParseFault::Unknown),
    })
}

fn setattr(args: &mut Fields) -> Result<Operation<'static>> {
    let (valid, _unused) = (args.u32()?, args.u32()?);
    let set = |bit: u32| valid & 1 << bit != 0;
    let (handle, size, _owner) = (args.u64()?, args.u64()?, args.u64()?);
    let (atime, mtime, _ctime) = (args.i64()?, args.i64()?, args.i64()?);
    let (atime_part, mtime_part, _ctime_part) = (args.u32()?, args.u32()?, args.u32()?);
    let (mode, _unused, uid, gid) = (args.u32()?, args.u32()?, args.u32()?, args.u32()?);
    let changes = SetAttr {
        mode: set(0).then_some(mode & 0o7777),
        uid: set(1).then_some(uid),
        gid: set(2).then_some(gid),
        size: set(3).then_some(size),
        atime: time(set(4), set(7), atime, atime_part)?,
        mtime: time(set(5), set(8), mtime, mtime_part)?,
    };
    Ok(Operation::Setattr { handle: set(6).then_some(handle), changes })
}

/// Decodes a time to set, which may be the present.
fn time(is_set: bool, now: bool, seconds: i64, nanoseconds: u32) -> Result<Option<SetTime>> {
    match (is_set, now) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) if nanoseconds < SECOND => Ok(Some(SetTime::At(Time { seconds, nanoseconds }))),
        (true, false) => Err(ParseFault::Malformed),
    }
}

/// A sequence of numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or(ParseFault::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Result<i32> {
        self.take().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn i64(&mut self) -> Result<i64> {
        self.take().map(i64::from_ne_bytes)
    }

    /// A file offset, or a length in bytes.
    fn offset(&mut self) -> Result<u64> {
        u64::try_from(self.i64()?).map_err(|_| ParseFault::Malformed)
    }
}

/// Names that end with a zero byte, one after another, and the bytes after them.
struct NameReader<'a>(&'a [u8]);

impl<'a> NameReader<'a> {
    fn name(&mut self) -> Result<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(ParseFault::Malformed)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        if name.is_empty() { Err(ParseFault::Malformed) } else { Ok(OsStr::from_bytes(name)) }
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8]> {
        self.0.get(..len as usize).ok_or(ParseFault::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments that begin with these bytes.
    fn arguments(parts: &[&[u8]]) -> [u8; ARGUMENTS] {
        let mut all = parts.concat();
        all.resize(ARGUMENTS, 0);
        all.try_into().expect("of this length")
    }

    #[test]
    fn names_end_with_zero_and_are_not_empty() {
        let none = arguments(&[]);
        let parsed = operation(6, &none, b"name\0target\0");
        assert!(
            matches!(parsed, Ok(Operation::Symlink { name, target }) if name == "name" && target == "target")
        );
        for bad in [&b""[..], b"name", b"name\0", b"name\0target", b"\0target\0", b"name\0\0"] {
            assert_eq!(operation(6, &none, bad).err(), Some(ParseFault::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_write_has_as_many_bytes_as_it_says() {
        let write = |offset: i64, size: u32| {
            let bytes = [&7_u64.to_ne_bytes()[..], &offset.to_ne_bytes(), &size.to_ne_bytes()];
            arguments(&bytes)
        };
        let parsed = operation(WRITE, &write(5, 3), b"abc");
        assert!(matches!(parsed, Ok(Operation::Write { handle: 7, offset: 5, data: b"abc", .. })));
        for (offset, size) in [(5, 4), (-1, 3), (0, u32::MAX)] {
            assert_eq!(operation(WRITE, &write(offset, size), b"abc").err(), Some(ParseFault::Malformed));
        }
    }

    #[test]
    fn attributes_are_set_as_their_bits_say() {
        let setattr = |valid: u32, nanoseconds: u32| {
            let times = [-5_i64, 6, 7].map(i64::to_ne_bytes).concat();
            let parts = [nanoseconds, 1, 2, 0o104_644, 0, 8, 9].map(u32::to_ne_bytes).concat();
            let longs = [3_u64, 4, 0].map(u64::to_ne_bytes).concat();
            arguments(&[&valid.to_ne_bytes(), &[0; 4], &longs, &times, &parts])
        };
        let Ok(Operation::Setattr { handle, changes }) = operation(4, &setattr(0b1_0111_1111, 5), b"") else {
            panic!("refused")
        };
        assert_eq!((handle, changes.mode, changes.size), (Some(3), Some(0o4644), Some(4)));
        assert_eq!((changes.uid, changes.gid), (Some(8), Some(9)));
        let at = SetTime::At(Time { seconds: -5, nanoseconds: 5 });
        assert_eq!((changes.atime, changes.mtime), (Some(at), Some(SetTime::Now)));
        assert_eq!(operation(4, &setattr(1 << 4, SECOND), b"").err(), Some(ParseFault::Malformed));
        let nothing = operation(4, &setattr(0, SECOND), b"");
        assert!(matches!(nothing, Ok(Operation::Setattr { handle: None, changes })
            if changes.atime.is_none() && changes.size.is_none()));
    }

    #[test]
    fn kinds_that_are_never_asked_for_are_unknown() {
        for opcode in [0, 2, 7, 26, 31, 36, 37, 39, 40, 48, 4096, u32::MAX] {
            assert_eq!(
                operation(opcode, &arguments(&[]), b"a\0b\0").err(),
                Some(ParseFault::Unknown),
                "{opcode}"
            );
        }
    }

    #[test]
    fn a_file_without_a_name_is_asked_for_with_any_name_or_none() {
        let bytes = arguments(&[&1_u32.to_ne_bytes(), &2_u32.to_ne_bytes(), &3_u32.to_ne_bytes()]);
        for name in [&b"/\0"[..], b"", b"name", b"\0\0", &[0xff; 300]] {
            let parsed = operation(51, &bytes, name);
            assert!(matches!(parsed, Ok(Operation::Tmpfile { flags: 1, mode: 2, umask: 3 })), "{name:?}");
        }
    }

    #[test]
    fn a_header_is_taken_apart() {
        let mut bytes = [0; HEADER];
        for (at, value) in [(4, 1_u32), (8, 2), (16, 3), (24, 4), (28, 5), (32, 6)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let RequestHeader { opcode, unique, number, user, group, thread } = header(&bytes);
        assert_eq!((opcode, unique, number, user, group, thread), (1, 2, 3, 4, 5, 6));
    }
}
