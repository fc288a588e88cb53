//! A regular file of the store, behind a descriptor that can be replaced.

use super::Node;
use crate::BackingFile;
use metrics::{Activity, Counted};
use rustix::{
    fs::{
        Advice, FallocateFlags, FlockOperation, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT,
        XattrFlags,
    },
    io::{Errno, retry_on_intr},
};
use std::{
    ffi::{OsStr, OsString},
    io,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::Arc,
};

/// Maximum number of buffers per preadv(2) call.
const PIECES: usize = 1024;

/// A regular file of the store. Its descriptor can be replaced by a writable one.
pub struct DirFile {
    fd: parking_lot::RwLock<Arc<OwnedFd>>,
}

impl DirFile {
    /// Wraps an open descriptor.
    pub fn new(fd: OwnedFd) -> Self {
        DirFile { fd: parking_lot::RwLock::new(Arc::new(fd)) }
    }

    /// Wraps an open descriptor and sets `O_NOATIME` on it, so that reads do not update the access time.
    /// The kernel allows that only for files owned by this process's user, and to root.
    pub fn quiet(fd: OwnedFd) -> Self {
        hush(&fd);
        DirFile::new(fd)
    }

    /// Reads a byte so that the store updates the access time but not the change time, by which backups
    /// detect changed files.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn count_read(&self) -> io::Result<()> {
        let fd = self.fd();
        // A read of another thread meanwhile may update the access time, too.
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        let read = retry_on_intr(|| rustix::io::pread(&*fd, &mut [0], 0));
        hush(&fd);
        read?;
        Ok(())
    }

    /// The descriptor.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.fd.read().clone()
    }

    /// Takes over the descriptor of `other`, which is the same inode opened for writing. Does nothing if
    /// the current descriptor is already writable.
    pub fn take_over(&self, other: DirFile) {
        if !self.writable() {
            *self.fd.write() = other.fd.into_inner();
        }
    }

    /// Copies owner and permissions from `like`. EPERM on the owner is ignored; the permissions
    /// are still set.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn give_owner(&self, like: &Node) -> io::Result<()> {
        let (like, node) = (like.stat()?, Node::shared(self.fd()));
        match node.chown(Some(like.st_uid), Some(like.st_gid)) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => Err(e),
            _ => node.chmod(like.st_mode & 0o777),
        }
    }

    /// Whether the descriptor is open for writing.
    pub fn writable(&self) -> bool {
        rustix::fs::fcntl_getfl(&*self.fd()).is_ok_and(|flags| flags.contains(OFlags::RDWR))
    }
}

/// Keeps reads from updating the access time. Best effort: it may be refused.
fn hush(fd: &OwnedFd) {
    let _ = rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::NOATIME);
}

impl BackingFile for DirFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let _counted = Counted::start(Activity::StoreRead, buf.len());
        let fd = self.fd();
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pread(&*fd, &mut buf[done..], place(offset, done)?))?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    fn read_vectored_at(&self, pieces: &mut [io::IoSliceMut], offset: u64) -> io::Result<usize> {
        let _counted = Counted::start(Activity::StoreRead, pieces.iter().map(|piece| piece.len()).sum());
        let fd = self.fd();
        let mut done = 0;
        let mut rest = pieces;
        while !rest.is_empty() {
            let most = rest.len().min(PIECES);
            let n = retry_on_intr(|| rustix::io::preadv(&*fd, &mut rest[..most], place(offset, done)?))?;
            if n == 0 {
                break;
            }
            done += n;
            io::IoSliceMut::advance_slices(&mut rest, n);
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(feature = "testing")]
        super::power::call()?;
        let _counted = Counted::start(Activity::StoreWrite, buf.len());
        let fd = self.fd();
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pwrite(&*fd, &buf[done..], place(offset, done)?))?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += n;
        }
        Ok(())
    }

    fn write_vectored_at(&self, pieces: &[io::IoSlice], offset: u64) -> io::Result<()> {
        #[cfg(feature = "testing")]
        super::power::call()?;
        let fd = self.fd();
        let counted = Counted::start(Activity::StoreWrite, pieces.iter().map(|piece| piece.len()).sum());
        let written = retry_on_intr(|| rustix::io::pwritev(&*fd, pieces, offset))?;
        drop(counted);
        // Write the remainder of a short write buffer by buffer.
        let (mut at, mut skip) = (offset, written);
        for piece in pieces {
            let done = skip.min(piece.len());
            skip -= done;
            at += done as u64;
            if done < piece.len() {
                self.write_at(&piece[done..], at)?;
                at += (piece.len() - done) as u64;
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        #[cfg(feature = "testing")]
        super::power::call()?;
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&*self.fd(), len))?)
    }

    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&*self.fd())?;
        u64::try_from(stat.st_size).map_err(io::Error::other)
    }

    fn sync_data(&self) -> io::Result<()> {
        let _counted = Counted::start(Activity::StoreSync, 0);
        // EINTR is not retried: it is not known whether a second call would still report a failed write.
        #[cfg(feature = "testing")]
        super::power::call()?;
        rustix::fs::fdatasync(&*self.fd())?;
        #[cfg(feature = "testing")]
        super::power::synced(&*self.fd());
        Ok(())
    }

    fn sync_whole(&self) -> io::Result<()> {
        let _counted = Counted::start(Activity::StoreSync, 0);
        super::fsync(&*self.fd()) // See `sync_data` about EINTR.
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&*self.fd(), flags, offset, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&*self.fd(), SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Ok((offset < self.len()?).then_some(offset))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match retry_on_intr(|| rustix::fs::fallocate(&*self.fd(), FallocateFlags::KEEP_SIZE, offset, len)) {
            Err(Errno::NOSYS) => Err(Errno::OPNOTSUPP.into()),
            other => Ok(other?),
        }
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        let stat = rustix::fs::fstat(&*self.fd())?;
        Ok((stat.st_mtime, stat.st_mtime_nsec as u32))
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        };
        Ok(rustix::fs::futimens(&*self.fd(), &times)?)
    }

    fn attribute_names(&self) -> io::Result<Vec<OsString>> {
        Node::shared(self.fd()).list_xattr()
    }

    fn set_attribute(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        Node::shared(self.fd()).set_xattr(name, value, XattrFlags::empty())
    }

    fn remove_attribute(&self, name: &OsStr) -> io::Result<()> {
        Node::shared(self.fd()).remove_xattr(name).map(drop)
    }

    fn forbid(&self, rights: u32) -> io::Result<()> {
        let node = Node::shared(self.fd());
        let mode = node.stat_behind()?.st_mode & 0o7777;
        if mode & rights == 0 { Ok(()) } else { node.set_mode(mode & !rights) }
    }

    /// Uses flock(2): the lock belongs to the open file description and ends with it. FUSE would hold an
    /// fcntl(2) lock until the file is closed.
    fn try_lock(&self) -> io::Result<bool> {
        let operation = match self.writable() {
            true => FlockOperation::NonBlockingLockExclusive,
            // Over NFS, an exclusive lock requires a writable descriptor.
            false => FlockOperation::NonBlockingLockShared,
        };
        match retry_on_intr(|| rustix::fs::flock(&*self.fd(), operation)) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            locked => Ok(locked.map(|()| true)?),
        }
    }

    fn unlock(&self) {
        if let Err(e) = rustix::fs::flock(&*self.fd(), FlockOperation::Unlock) {
            log::warn!("a stored file stays locked until it is closed: {e}");
        }
    }

    fn drop_cached(&self, len: u64) {
        // Only a hint: if the kernel ignores it, cached pages are revalidated by the usual rules.
        let _ = rustix::fs::fadvise(&*self.fd(), 0, NonZeroU64::new(len), Advice::DontNeed);
    }
}

/// The offset `done` bytes after `offset`; EFBIG if it overflows.
fn place(offset: u64, done: usize) -> rustix::io::Result<u64> {
    offset.checked_add(done as u64).ok_or(Errno::FBIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn fresh() -> DirFile {
        DirFile::new(tempfile::tempfile().unwrap().into())
    }

    #[test]
    fn reads_end_at_the_end_and_gaps_read_as_zeros() {
        let file = fresh();
        file.write_at(b"tail", 5000).unwrap();
        let mut out = [7; 6000];
        assert_eq!(file.read_at(&mut out, 1).unwrap(), 5003);
        assert!(out[..4999].iter().all(|&b| b == 0));
        assert_eq!(&out[4999..5003], b"tail");
        assert_eq!(file.read_at(&mut out, 9000).unwrap(), 0);
        assert_eq!(file.len().unwrap(), 5004);
    }

    #[test]
    fn pieces_are_read_one_behind_the_other() {
        let file = fresh();
        let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        let mut out = vec![0xee; 3 * PIECES + 7];
        let mut pieces: Vec<_> = out.chunks_mut(3).map(io::IoSliceMut::new).collect();
        assert_eq!(file.read_vectored_at(&mut pieces, 10).unwrap(), 3 * PIECES + 7);
        assert_eq!(out, bytes[10..10 + out.len()]);
        let (mut a, mut b) = ([1; 4], [1; 4]);
        let mut pieces = [io::IoSliceMut::new(&mut a), io::IoSliceMut::new(&mut b)];
        assert_eq!(file.read_vectored_at(&mut pieces, 4994).unwrap(), 6);
        assert_eq!((&a[..], &b[..2]), (&bytes[4994..4998], &bytes[4998..]));
    }

    #[test]
    fn punched_ranges_read_as_zeros_and_keep_the_length() {
        let file = fresh();
        file.write_at(&[1; 3 * 4096], 0).unwrap();
        file.punch(4096, 4096).unwrap();
        let mut out = [9; 3 * 4096];
        assert_eq!(file.read_at(&mut out, 0).unwrap(), out.len());
        assert!(out[..4096].iter().all(|&b| b == 1) && out[8192..].iter().all(|&b| b == 1));
        assert!(out[4096..8192].iter().all(|&b| b == 0));
        file.reserve(1 << 20, 4096).unwrap();
        assert_eq!(file.len().unwrap(), 3 * 4096);
    }

    #[test]
    fn holes_are_skipped() {
        let file = fresh();
        file.write_at(&[1; 4096], 1 << 30).unwrap();
        file.set_len(1 << 40).unwrap();
        // A store without holes returns the offset itself.
        assert!(matches!(file.next_data(0).unwrap(), Some(0 | 0x4000_0000)));
        assert_eq!(file.next_data((1 << 30) + 5).unwrap(), Some((1 << 30) + 5));
        assert!(matches!(file.next_data(1 << 31).unwrap(), None | Some(0x8000_0000)));
        assert_eq!(file.next_data(1 << 41).unwrap(), None);
    }

    #[test]
    fn a_store_that_cannot_reserve_space_says_so() {
        // Files in procfs do not support fallocate(2).
        let file = File::options().read(true).write(true).open("/proc/self/comm").unwrap();
        let refused = DirFile::new(file.into()).reserve(0, 4096).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::OPNOTSUPP));
    }

    #[test]
    fn mtime_alone_is_set() {
        let file = fresh();
        let before = rustix::fs::fstat(&*file.fd()).unwrap();
        file.set_mtime(-5, 123_456_789).unwrap();
        let after = rustix::fs::fstat(&*file.fd()).unwrap();
        assert_eq!((after.st_mtime, after.st_mtime_nsec), (-5, 123_456_789));
        assert_eq!((after.st_atime, after.st_atime_nsec), (before.st_atime, before.st_atime_nsec));
    }

    #[test]
    fn a_writable_descriptor_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let file = DirFile::new(File::open(&path).unwrap().into());
        assert!(!file.writable());
        assert!(file.write_at(b"y", 0).is_err());
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        file.take_over(DirFile::new(writer.into()));
        assert!(file.writable());
        file.write_at(b"y", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"y");
    }

    #[test]
    fn a_lock_keeps_out_whoever_opened_the_file_by_himself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let open =
            || DirFile::new(File::options().create(true).read(true).append(true).open(&path).unwrap().into());
        let reader = || DirFile::new(File::open(&path).unwrap().into());
        let one = open();
        let (other, first, second) = (open(), reader(), reader());
        assert!(one.try_lock().unwrap() && one.try_lock().unwrap());
        assert!(!other.try_lock().unwrap() && !first.try_lock().unwrap());
        one.unlock();
        assert!(first.try_lock().unwrap() && second.try_lock().unwrap() && !one.try_lock().unwrap());
        drop((first, second));
        assert!(other.try_lock().unwrap());
        drop(other);
        assert!(one.try_lock().unwrap());
    }

    #[test]
    fn offsets_past_the_largest_are_errors() {
        let file = fresh();
        assert!(file.write_at(b"x", u64::MAX).is_err());
        assert!(file.read_at(&mut [0; 2], u64::MAX - 1).is_err());
        assert!(file.set_len(u64::MAX).is_err());
        assert!(file.punch(u64::MAX - 1, 2).is_err());
    }
}
