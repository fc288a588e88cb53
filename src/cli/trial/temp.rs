//! A temporary directory that is removed on drop.

use crypto::random;
use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// A private directory below the system's temporary directory, removed on drop. Remains only if the
/// process is killed.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates one with a random name.
    pub fn new() -> io::Result<Self> {
        let mut random = [0; 8];
        random::fill(&mut random)?;
        let name = format!("warpcrypt-try-{:016x}", u64::from_le_bytes(random));
        let path = env::temp_dir().canonicalize()?.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(TempDir(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it now, and returns the error if that fails.
    pub fn remove(self) -> io::Result<()> {
        remove(&self.0)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path)?;
            fs::remove_dir_all(path)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Restores the owner's access to directories: copied ones may not be writable.
fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
