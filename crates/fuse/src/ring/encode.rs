//! Encodes answers as the bytes that the kernel takes from a ring. Layouts as in [`super::parse`].

use crate::replies::{AttrReply, Created, FoundReply, OpenReply};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, time::Duration};
use vault::{Kind, Stat, StatFs};

/// Preferred I/O size reported to programs, in bytes (`st_blksize`).
const BLOCK_SIZE: u32 = 4096;
/// Alignment of entries in a listing, in bytes.
const ALIGNMENT: usize = 8;

/// A number in native byte order.
trait WireNumber: Copy {
    fn put(self, bytes: &mut Vec<u8>);
}

macro_rules! number {
    ($($number:ty),*) => {
        $(impl WireNumber for $number {
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        })*
    };
}
number!(u32, i32, u64, i64);

fn put<T: WireNumber>(bytes: &mut Vec<u8>, numbers: &[T]) {
    numbers.iter().for_each(|number| number.put(bytes));
}

/// Encodes `fuse_attr_out`.
pub fn told(told: &AttrReply) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(104);
    put(&mut bytes, &[told.ttl.as_secs()]);
    put(&mut bytes, &[told.ttl.subsec_nanos(), 0]);
    put_attributes(&mut bytes, told.number, &told.stat);
    bytes
}

/// Encodes `fuse_entry_out`.
pub fn found(found: &FoundReply) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(160);
    put_found(&mut bytes, found, found.name_ttl);
    bytes
}

/// Encodes `fuse_open_out`.
pub fn opened(opened: &OpenReply) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    put_opened(&mut bytes, opened);
    bytes
}

/// Encodes `fuse_entry_out` followed by `fuse_open_out`.
pub fn created(created: &Created) -> Vec<u8> {
    let mut bytes = found(&created.found);
    put_opened(&mut bytes, &created.opened);
    bytes
}

/// Encodes `fuse_write_out` or `fuse_getxattr_out`.
pub fn count(count: u32) -> Vec<u8> {
    [count, 0].map(u32::to_ne_bytes).concat()
}

/// Encodes `fuse_lseek_out`.
pub fn place(place: i64) -> Vec<u8> {
    place.to_ne_bytes().to_vec()
}

/// Encodes `fuse_kstatfs`.
pub fn statfs(s: &StatFs) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(80);
    put(&mut bytes, &[s.blocks, s.bfree, s.bavail, s.files, s.ffree]);
    put(&mut bytes, &[s.bsize, s.namelen, s.frsize]);
    put(&mut bytes, &[0_u32; 7]);
    bytes
}

/// Appends a `fuse_dirent` and a name, if the total stays within `room` bytes. Returns whether it did not
/// fit.
pub fn listed(bytes: &mut Vec<u8>, room: usize, number: u64, next: u64, kind: Kind, name: &OsStr) -> bool {
    within(bytes, room, |bytes| put_name(bytes, number, next, kind, name))
}

/// Appends a `fuse_direntplus` and a name, if the total stays within `room` bytes. Returns whether it did
/// not fit.
pub fn listed_plus(bytes: &mut Vec<u8>, room: usize, next: u64, name: &OsStr, found: &FoundReply) -> bool {
    let ttl = found.told.ttl.min(found.name_ttl);
    within(bytes, room, |bytes| {
        put_found(bytes, found, ttl);
        put_name(bytes, found.told.number, next, found.told.stat.kind, name);
    })
}

/// Calls `add`, and removes its output again if the total exceeds `room`. Returns whether it did.
fn within(bytes: &mut Vec<u8>, room: usize, add: impl FnOnce(&mut Vec<u8>)) -> bool {
    let before = bytes.len();
    add(bytes);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    let full = bytes.len() > room;
    if full {
        bytes.truncate(before);
    }
    full
}

fn put_name(bytes: &mut Vec<u8>, number: u64, next: u64, kind: Kind, name: &OsStr) {
    put(bytes, &[number, next]);
    put(bytes, &[name.len() as u32, mode(kind, 0) >> 12]); // Names in the store have at most 255 bytes.
    bytes.extend_from_slice(name.as_bytes());
}

fn put_found(bytes: &mut Vec<u8>, found: &FoundReply, name_ttl: Duration) {
    let AttrReply { number, stat, ttl } = &found.told;
    put(bytes, &[*number, found.generation, name_ttl.as_secs(), ttl.as_secs()]);
    put(bytes, &[name_ttl.subsec_nanos(), ttl.subsec_nanos()]);
    put_attributes(bytes, *number, stat);
}

fn put_opened(bytes: &mut Vec<u8>, opened: &OpenReply) {
    put(bytes, &[opened.handle]);
    put(bytes, &[opened.mode.bits(), 0]);
}

fn put_attributes(bytes: &mut Vec<u8>, number: u64, s: &Stat) {
    put(bytes, &[number, s.size, s.blocks]);
    put(bytes, &[s.atime.seconds, s.mtime.seconds, s.ctime.seconds]);
    put(bytes, &[s.atime.nanoseconds, s.mtime.nanoseconds, s.ctime.nanoseconds]);
    // The kernel's 32-bit encoding of a device equals the low half of the C library's for majors below
    // 4096.
    put(bytes, &[mode(s.kind, s.mode), s.nlink, s.uid, s.gid, s.rdev as u32, BLOCK_SIZE, 0]);
}

/// A mode including the file type.
fn mode(kind: Kind, permissions: u32) -> u32 {
    let kind = match kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    };
    kind | permissions & 0o7777
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr;
    use fuser::FopenFlags;

    fn a_found() -> FoundReply {
        let stat = Stat { size: 5, mode: 0o644, ..attr::unknown(Kind::File, 7) };
        FoundReply {
            told: AttrReply { number: 7, stat, ttl: Duration::from_millis(1500) },
            generation: 3,
            name_ttl: Duration::from_secs(60),
        }
    }

    #[test]
    fn answers_have_the_kernels_sizes() {
        let opened = OpenReply { handle: 9, mode: FopenFlags::FOPEN_KEEP_CACHE };
        assert_eq!((told(&a_found().told).len(), found(&a_found()).len()), (104, 128));
        assert_eq!(super::opened(&opened).len(), 16);
        assert_eq!(created(&Created { found: a_found(), opened }).len(), 144);
        assert_eq!((count(1).len(), place(-1).len()), (8, 8));
    }

    #[test]
    fn an_entry_is_as_the_kernel_reads_it() {
        let bytes = found(&a_found());
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([0, 8, 16, 24].map(long), [7, 3, 60, 1]);
        assert_eq!([32, 36].map(word), [0, 500_000_000]);
        assert_eq!([40, 48].map(long), [7, 5]);
        assert_eq!(word(40 + 60), libc::S_IFREG | 0o644);
    }

    #[test]
    fn a_listing_keeps_to_its_room() {
        let mut bytes = Vec::new();
        let name = OsStr::new("nine char");
        assert!(!listed(&mut bytes, 80, 1, 1, Kind::Dir, name));
        assert_eq!(bytes.len(), 40);
        assert!(!listed(&mut bytes, 80, 1, 2, Kind::Dir, name));
        assert!(listed(&mut bytes, 80, 1, 3, Kind::Dir, name));
        assert_eq!(bytes.len(), 80);
        assert!(listed_plus(&mut bytes, 80, 1, name, &a_found()));
        assert!(!listed_plus(&mut bytes, 1000, 1, name, &a_found()));
        assert_eq!(bytes.len(), 80 + 128 + 40);
    }
}
