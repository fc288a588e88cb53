//! The content of the store: an attacker's view of a vault.

use std::{
    collections::HashMap,
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// All files in a directory and below it, in no particular order. Links are not followed.
pub fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(inner) = open.pop() {
        let entries = match fs::read_dir(&inner) {
            // A running program may have renamed it.
            Err(e) if e.kind() == ErrorKind::NotFound && inner != dir => continue,
            entries => entries.expect("list"),
        };
        for entry in entries.flatten() {
            match entry.file_type().expect("type").is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// The stored files by inode number. A mount shows the store's inode numbers.
pub fn by_inode(store: &Path) -> HashMap<u64, PathBuf> {
    walk(store).into_iter().map(|p| (inode(&p), p)).collect()
}

/// The inode number of a path.
pub fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("stat").ino()
}

/// Modifies the bytes of a stored file.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("read the store");
    change(&mut bytes);
    fs::write(path, bytes).expect("write the store");
}
