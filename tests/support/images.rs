//! Stored files as byte strings: taken from a vault, modified, put back and read through a mount.

use super::{
    mounted::Vault,
    store::{by_inode, inode},
};
use rustix::{fs::OFlags, io::Errno};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// Options for opening a file without blocking: a former file may have become a pipe, and opening a pipe
/// blocks.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// The results an application gets when it reads a file chunk by chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Chunks up to the end of the file, with an error in place of a chunk that cannot be read.
    pub chunks: Vec<Result<Vec<u8>, Errno>>,
}

impl Reading {
    /// Reads `path`, expecting at least `expected` bytes.
    pub fn of(path: &Path, expected: usize) -> Reading {
        let failed = |e: std::io::Error| Err(Errno::from_io_error(&e).unwrap_or(Errno::NOSYS));
        let file = match options().read(true).open(path) {
            Ok(file) => file,
            Err(e) => return Reading { chunks: vec![failed(e)] },
        };
        let mut chunks = Vec::new();
        loop {
            let mut chunk = vec![0; 4096];
            match file.read_at(&mut chunk, chunks.len() as u64 * 4096) {
                Ok(0) => break,
                Ok(n) => {
                    chunk.truncate(n);
                    chunks.push(Ok(chunk));
                }
                Err(e) if chunks.len() * 4096 < expected.max(1) => chunks.push(failed(e)),
                Err(_) => break,
            }
            assert!(chunks.len() * 4096 < 2 * expected + (4 << 20), "{} does not end", path.display());
        }
        Reading { chunks }
    }

    /// Whether everything can be read and equals `content`.
    pub fn is(&self, content: &[u8]) -> bool {
        let whole: Option<Vec<&[u8]>> = self.chunks.iter().map(|c| c.as_deref().ok()).collect();
        whole.is_some_and(|c| c.concat() == content)
    }

    /// Whether chunk `index` fails with EIO, alone or along with the whole file.
    pub fn fails_at(&self, index: usize) -> bool {
        self.refused() || self.chunks.get(index) == Some(&Err(Errno::IO))
    }

    /// Whether nothing can be read at all.
    pub fn refused(&self) -> bool {
        self.chunks.iter().all(|c| *c == Err(Errno::IO)) && !self.chunks.is_empty()
    }

    /// Whether no byte is wrong: everything that can be read equals `content`, and everything missing is an
    /// EIO.
    pub fn is_honest(&self, content: &[u8]) -> bool {
        let right = |(i, chunk): (usize, &Result<Vec<u8>, Errno>)| match chunk {
            Ok(bytes) => content.chunks(4096).nth(i) == Some(bytes),
            Err(e) => *e == Errno::IO,
        };
        let full = self.chunks.len() >= content.len().div_ceil(4096);
        let failed = self.chunks.iter().any(Result::is_err);
        self.chunks.iter().enumerate().all(right) && (full || failed)
    }
}

/// The stored bytes of the files with these names in the mount.
pub fn take<const N: usize>(vault: &Vault, names: [&str; N]) -> [Vec<u8>; N] {
    let mount = vault.mount_with(&["--read-only"]);
    let inodes = names.map(|n| inode(&mount.join(n)));
    mount.unmount();
    let paths = by_inode(&vault.store);
    inodes.map(|n| fs::read(&paths[&n]).expect("read the store"))
}

/// Writes each image over a new stored file and reads them all through one mount. Calls `after` for every
/// path once it has been read. Asserts that another file keeps working.
pub fn read_all(
    vault: &Vault,
    images: &[Vec<u8>],
    expected: usize,
    after: impl Fn(&Path),
    options: &[&str],
) -> Vec<Reading> {
    let mount = vault.mount();
    let dir = mount.join("images");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("directory");
    let paths: Vec<_> = (0..images.len()).map(|i| dir.join(format!("{i}"))).collect();
    let witness = dir.join("witness");
    fs::write(&witness, b"untouched").expect("file");
    let make = |path| {
        fs::write(path, b"").expect("file");
        inode(path)
    };
    let inodes: Vec<u64> = paths.iter().map(|p| make(p)).collect();
    mount.unmount();
    let stored = by_inode(&vault.store);
    for (number, image) in inodes.iter().zip(images) {
        fs::write(&stored[number], image).expect("write the store");
    }
    let mount = vault.mount_with(options);
    let read = |path: &std::path::PathBuf| {
        let reading = Reading::of(path, expected);
        after(path);
        reading
    };
    let readings = paths.iter().map(read).collect();
    assert!(mount.alive(), "the mount died: {}", vault.log_text());
    assert_eq!(fs::read(&witness).expect("another file"), b"untouched");
    mount.unmount();
    readings
}
