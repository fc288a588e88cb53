//! Files named on the command line that a command writes. Their directories may belong to another user,
//! who must not be able to redirect root's writes with a planted link.

use super::mounts;
use crypto::random;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
};

/// Whether links in the path to a file are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Links are followed: for commands of ordinary users, and for root if any path is trusted.
    Followed,
    /// No link is followed, and a file with several names is refused.
    Refused,
}

impl Links {
    /// The policy for the user who runs the command.
    pub fn of_caller() -> Self {
        match geteuid().is_root() {
            true => Links::Refused,
            false => Links::Followed,
        }
    }
}

/// Opens a file for appending, or creates it with this mode.
///
/// # Errors
/// Those of open(2). If links are refused: ELOOP, and an error for a file that has several names or is
/// neither a regular file nor a character device. Only root can make character devices.
pub fn append(path: &Path, mode: Mode, links: Links) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    if links == Links::Followed {
        return Ok(openat(CWD, path, flags, mode)?.into());
    }
    // Opening must not block until another process opens the other end of a pipe.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS)?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => Err(io::Error::other("it has another name")),
        FileType::RegularFile | FileType::CharacterDevice => Ok(file.into()),
        _ => Err(io::Error::other("not a regular file")),
    }
}

/// Replaces a file atomically, with this mode: a reader sees either the old or the new content. If the
/// path is a link, the link is replaced, not followed.
///
/// # Errors
/// Those of the system calls.
pub fn replace(path: &Path, content: &[u8], mode: Mode) -> io::Result<()> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let dir = directory(path)?;
    let mut salt = [0; 8];
    random::fill(&mut salt)?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{:016x}", u64::from_le_bytes(salt)));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir, &beside, flags, mode)?);
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.and_then(|()| Ok(renameat(&dir, &beside, &dir, name)?)).inspect_err(|_| {
        // Keep the first error.
        let _ = unlinkat(&dir, &beside, AtFlags::empty());
    })
}

/// Reads a file, which must be regular and belong to the caller. A link as the last component is
/// refused.
///
/// # Errors
/// `NotFound`; if the file belongs to another user; those of the system calls.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory(path)?, name, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    if stat.st_uid != geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to uid {}", stat.st_uid)));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Opens a file's directory, so that later changes of the path have no effect.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, mounts::parent(path), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::{fs, os::unix::fs::symlink};

    const MODE: Mode = Mode::from_raw_mode(0o600);

    #[test]
    fn a_file_is_replaced_and_a_link_in_its_place_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let [file, other] = ["file", "other"].map(|name| place.path().join(name));
        fs::write(&other, "other").unwrap();
        symlink(&other, &file).unwrap();
        for content in ["first", "second"] {
            replace(&file, content.as_bytes(), MODE).unwrap();
            assert_eq!(read_own(&file).unwrap(), content.as_bytes());
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "something is left");
        assert!(replace(&place.path().join("none/file"), b"", MODE).is_err());
    }

    #[test]
    fn nothing_planted_is_appended_to_or_read() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("other"), "other").unwrap();
        fs::create_dir(at("dir")).unwrap();
        symlink(at("other"), at("link")).unwrap();
        symlink(at("dir"), at("way")).unwrap();
        fs::hard_link(at("other"), at("name")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, MODE, 0).unwrap();
        let refused = ["link", "way/file", "name", "pipe", "dir"];
        for name in refused {
            append(&at(name), MODE, Links::Refused).expect_err(name);
        }
        assert!(!at("dir/file").exists());
        for name in ["link", "pipe", "dir"] {
            read_own(&at(name)).expect_err(name);
        }
        append(&at("link"), MODE, Links::Followed).unwrap().write_all(b"!").unwrap();
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "other!");
        for _ in 0..2 {
            append(&at("new"), MODE, Links::Refused).unwrap().write_all(b"a").unwrap();
        }
        assert_eq!(fs::read_to_string(at("new")).unwrap(), "aa");
    }
}
