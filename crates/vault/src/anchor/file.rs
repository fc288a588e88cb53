//! The file of an anchor: its permitted location, and its lock.

use super::error::AnchorError;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};
use store::{BackingFile, DirFile, Flock};

/// Opens an anchor for writing under an exclusive lock. Creates an empty file if there is none.
pub(super) fn to_write(path: &Path) -> Result<(Arc<dyn BackingFile>, Flock), AnchorError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let (file, lock) = locked(&options, path, FlockOperation::NonBlockingLockExclusive)?;
    let at = |e| AnchorError::at(path, e);
    if file.metadata().map_err(at)?.len() == 0 {
        File::open(above(path)).and_then(|above| above.sync_all()).map_err(at)?;
    }
    Ok((Arc::new(DirFile::new(file.into())), lock))
}

/// Copies an anchor into memory. A read-only user must not change the file, but a database left by a
/// crash has to be repaired on opening.
pub(super) fn to_read(path: &Path) -> Result<Arc<dyn BackingFile>, AnchorError> {
    let mut content = Vec::new();
    let (mut file, _lock) =
        locked(OpenOptions::new().read(true), path, FlockOperation::NonBlockingLockShared)?;
    file.read_to_end(&mut content).map_err(|e| AnchorError::at(path, e))?;
    Ok(Arc::new(AnchorCopy(Mutex::new(content))))
}

/// Refuses an anchor inside of `directory`, whose path is canonical.
///
/// # Errors
/// If the anchor is inside, or if the anchor's own directory does not exist.
pub fn refuse_inside(path: &Path, directory: &Path) -> Result<(), AnchorError> {
    let above = above(path).canonicalize().map_err(|e| AnchorError::at(above(path), e))?;
    // A symbolic link counts as its target.
    let file = path.canonicalize().unwrap_or_else(|_| above.join(path.file_name().unwrap_or_default()));
    if file.starts_with(directory) {
        return Err(AnchorError::Inside(path.to_owned(), directory.to_owned()));
    }
    Ok(())
}

/// The directory of a file.
fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) | None => Path::new("."),
    }
}

/// Opens the file and locks it.
fn locked(
    options: &OpenOptions,
    path: &Path,
    operation: FlockOperation,
) -> Result<(File, Flock), AnchorError> {
    let file = options.open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => AnchorError::Missing(path.to_owned()),
        _ => AnchorError::at(path, e),
    })?;
    let lock = file.try_clone().and_then(|same| Flock::take(same.into(), operation));
    match lock {
        Ok(lock) => Ok((file, lock)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(AnchorError::InUse(path.to_owned())),
        Err(e) => Err(AnchorError::at(path, e)),
    }
}

/// An anchor's content in memory.
struct AnchorCopy(Mutex<Vec<u8>>);

impl BackingFile for AnchorCopy {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.0.lock();
        let rest = content.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let end = offset as usize + buf.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn reserve(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        Ok((0, 0))
    }

    fn set_mtime(&self, _: i64, _: u32) -> io::Result<()> {
        Ok(())
    }
}
