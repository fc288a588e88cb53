//! Generation numbers: they distinguish an inode from earlier ones with the same inode number.

use super::{Node, StoreDir};
use rustix::{
    fs::{AtFlags, StatxFlags},
    io::Errno,
};
use std::{
    ffi::{CString, OsStr, c_int, c_uint},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
};

/// Maximum length of a file handle in bytes (MAX_HANDLE_SZ).
const LONGEST: usize = 128;

/// A `struct file_handle` with room for the longest handle.
#[repr(C)]
struct RawHandle {
    bytes: c_uint,
    kind: c_int,
    content: [u8; LONGEST],
}

impl StoreDir {
    /// A 31-bit generation number for the entry `name`. It differs from that of an earlier inode with
    /// the same inode number, except with negligible probability. It is derived from the store's file
    /// handle, or else from the creation time. 0 if the store provides neither.
    pub fn generation(&self, name: &OsStr) -> u32 {
        self.component(name).map_or(0, |name| generation(self.as_fd(), name, AtFlags::empty()))
    }
}

impl Node<'_> {
    /// The generation number of this node, as in [`StoreDir::generation`]. The node need not have a name.
    pub fn generation(&self) -> u32 {
        generation(self.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH)
    }
}

fn generation(dir: BorrowedFd, name: &OsStr, flags: AtFlags) -> u32 {
    let known = file_handle(dir, name, flags).or_else(|_| birth(dir, name, flags));
    known.map_or(0, |known| short_hash(&known))
}

/// The store's file handle. On most filesystems it contains a generation number.
fn file_handle(dir: BorrowedFd, name: &OsStr, flags: AtFlags) -> io::Result<Vec<u8>> {
    let name = CString::new(name.as_bytes())?;
    let mut handle = RawHandle { bytes: LONGEST as c_uint, kind: 0, content: [0; LONGEST] };
    let mut mount: c_int = 0;
    // SAFETY: the name is NUL-terminated, `handle` has the layout of `file_handle` with room for as many
    // bytes as it declares, and apart from it the call writes only `mount`. Without AT_SYMLINK_FOLLOW no
    // link is followed.
    let result = unsafe {
        libc::name_to_handle_at(
            dir.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags.bits() as c_int,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let content = handle.content.get(..handle.bytes as usize).ok_or(Errno::OVERFLOW)?;
    Ok(content.to_vec())
}

/// The creation time of the inode.
fn birth(dir: BorrowedFd, name: &OsStr, flags: AtFlags) -> io::Result<Vec<u8>> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let known = rustix::fs::statx(dir, name, flags, StatxFlags::BTIME)?;
    if known.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return Err(Errno::NODATA.into());
    }
    let (seconds, nanoseconds) = (known.stx_btime.tv_sec, known.stx_btime.tv_nsec);
    Ok([&seconds.to_be_bytes()[..], &nanoseconds.to_be_bytes()].concat())
}

/// FNV-1a, folded to 31 bits. It must stay the same across versions; it need not resist attackers.
fn short_hash(bytes: &[u8]) -> u32 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    ((hash >> 32) ^ hash) as u32 & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_inode_keeps_its_generation_and_who_gets_its_number_has_another() {
        let place = tempfile::tempdir().unwrap();
        let dir = StoreDir::open_path(place.path()).unwrap();
        let file = place.path().join("file");
        let make = || {
            fs::write(&file, "").unwrap();
            (dir.stat(OsStr::new("file")).unwrap().st_ino, dir.generation(OsStr::new("file")))
        };
        let (inode, generation) = make();
        assert_eq!(make().1, generation);
        fs::rename(&file, place.path().join("moved")).unwrap();
        assert_eq!(dir.generation(OsStr::new("moved")), generation);
        fs::remove_file(place.path().join("moved")).unwrap();
        for _ in 0..1000 {
            let (again, other) = make();
            assert!(
                again != inode || other != generation,
                "inode {inode} again, generation {generation} too"
            );
            fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn a_store_without_file_handles_tells_inodes_apart_by_their_times() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let dir = StoreDir::open_path(place.path()).unwrap();
        let birth = birth(dir.as_fd(), OsStr::new("file"), AtFlags::empty());
        assert_eq!(birth.unwrap().len(), 12);
        assert_eq!(dir.generation(OsStr::new("none")), 0);
    }

    #[test]
    fn a_file_without_a_name_keeps_its_generation_when_it_gets_one() {
        let place = tempfile::tempdir().unwrap();
        let dir = StoreDir::open_path(place.path()).unwrap();
        let node = Node::owned(dir.create_nameless(0o600).unwrap());
        let (handle, birth_of) = (file_handle, birth);
        let known = [handle, birth_of].map(|f| f(node.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH).unwrap());
        let generation = node.generation();
        node.link(&dir, OsStr::new("file")).unwrap();
        let found = [handle, birth_of].map(|f| f(dir.as_fd(), OsStr::new("file"), AtFlags::empty()).unwrap());
        assert_eq!((found, dir.generation(OsStr::new("file"))), (known, generation));
    }
}
