//! Content behind a blank header is set aside before a new first version replaces it. A power cut may
//! have left it, and then nobody can read it; or somebody blanked the header and may restore it.

use super::names::random_name;
use format::name::ASIDE;
use std::{ffi::OsStr, io};
use store::{BackingFile, DirFile, StoreDir};

/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// Copies the content behind a file's blank header durably to a new file in the vault's root. Does
/// nothing if it is all zeros.
///
/// # Errors
/// The store's error; an incomplete copy may be left, which is harmless.
pub(super) fn set_headless_aside(root: &StoreDir, file: &dyn BackingFile) -> io::Result<()> {
    if file.is_empty()? {
        return Ok(());
    }
    let name = random_name(ASIDE)?;
    if set_aside(root, &name, file)? {
        log::warn!("{}: holds the data found after the blank header of a file", name.display());
    }
    Ok(())
}

/// Whether all of `file` is zeros.
///
/// # Errors
/// The store's.
pub(super) fn is_all_zeros(file: &dyn BackingFile) -> io::Result<bool> {
    Ok(next_piece(file, 0, &mut vec![0; PIECE])?.is_none())
}

/// Copies everything in `file` that is not zero durably to a new file in `dir`; returns false if it is
/// all zeros.
///
/// # Errors
/// The store's error; an incomplete copy may be left, which is harmless.
pub(super) fn set_aside(dir: &StoreDir, name: &OsStr, file: &dyn BackingFile) -> io::Result<bool> {
    let mut buffer = vec![0; PIECE];
    let mut copy: Option<DirFile> = None;
    let mut at = 0;
    while let Some((offset, read)) = next_piece(file, at, &mut buffer)? {
        let to = match &mut copy {
            Some(copy) => copy,
            None => copy.insert(DirFile::new(dir.create_file(name, 0o600)?)),
        };
        to.write_at(&buffer[..read], offset)?;
        at = offset + read as u64;
    }
    let Some(to) = copy else { return Ok(false) };
    to.set_len(file.len()?)?;
    to.sync_data()?;
    dir.sync()?;
    Ok(true)
}

/// Reads the next piece at or after `at` that is not all zeros; returns its offset and length.
fn next_piece(file: &dyn BackingFile, mut at: u64, buffer: &mut [u8]) -> io::Result<Option<(u64, usize)>> {
    while let Some(offset) = file.next_data(at)? {
        let read = file.read_at(buffer, offset)?;
        if read == 0 {
            break;
        }
        if buffer[..read].iter().any(|byte| *byte != 0) {
            return Ok(Some((offset, read)));
        }
        at = offset + read as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::FaultyFile;

    fn kept(dir: &tempfile::TempDir) -> Vec<Vec<u8>> {
        let files = std::fs::read_dir(dir.path()).unwrap();
        files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn what_is_not_zero_is_kept_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreDir::open_path(dir.path()).unwrap();
        let file = FaultyFile::new();
        file.set_len(3 << 20).unwrap();
        set_headless_aside(&store, &*file).unwrap();
        assert!(kept(&dir).is_empty());
        file.write_at(b"what is left", (2 << 20) + 5).unwrap();
        set_headless_aside(&store, &*file).unwrap();
        assert_eq!(kept(&dir), [file.bytes()]);
    }
}
