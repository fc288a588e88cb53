//! What was measured, kept in the user's cache directory for each device, driver, processor and version of the
//! program. Root may have the environment of another user, as with sudo: a directory of somebody else is not used.

use super::{
    CpuEngine, Description,
    profile::{Curve, Function, Profile},
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};
use std::{
    env, fs,
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

const DIR: &str = "warpcrypt";
const FILE: &str = "engines.json";
/// The group or others may write.
const WRITABLE: u32 = 0o022;

/// Profiles that are kept at most: a cache directory may be shared by several machines.
const KEPT: usize = 16;

/// What a profile holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    program: String,
    engine: String,
    driver: i32,
    processor: String,
    threads: usize,
}

impl Key {
    /// That of the CPU, or of a GPU beside it.
    pub fn new(cpu: &CpuEngine, gpu: Option<&Description>) -> Self {
        Key {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            engine: gpu.map_or("cpu", |gpu| &gpu.name).to_owned(),
            driver: gpu.map_or(0, |gpu| gpu.driver),
            processor: processor(),
            threads: cpu.threads(),
        }
    }

    /// What is kept for it; an empty profile if nothing is.
    pub fn profile(&self) -> Profile {
        let found = read().into_iter().find(|kept| kept.key == *self);
        found.map_or_else(Profile::new, |kept| kept.profile)
    }

    /// Keeps a curve beside those that are kept already. That it cannot is logged: it is a cache.
    pub fn keep(&self, function: Function, curve: Curve) {
        let mut all = read();
        let mut own = match all.iter().position(|kept| kept.key == *self) {
            Some(place) => all.remove(place),
            None => Kept { key: self.clone(), profile: Profile::new() },
        };
        own.profile.put(function, curve);
        all.insert(0, own);
        all.truncate(KEPT);
        if let Err(e) = write(&all) {
            log::debug!("the measurement of the engines was not kept: {e}");
        }
    }
}

/// The processor's name as the kernel has it, or nothing.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}

/// An entry of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    profile: Profile,
}

/// The cache directory's path from a directory that is there, and its names below that.
fn place() -> Option<(PathBuf, Vec<&'static str>)> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let given = absolute("XDG_CACHE_HOME").map(|cache| (cache, vec![DIR]));
    given.or_else(|| Some((absolute("HOME")?, vec![".cache", DIR])))
}

/// The program's directory in the cache, for what was measured; made if need be and `make` says so. Everything on the way to it
/// below the home directory belongs to the user who calls, so what is in it is theirs.
///
/// # Errors
/// `NotFound` if there is none; EACCES if it is another user's.
pub fn open_dir(make: bool) -> io::Result<OwnedFd> {
    let (start, names) = place().ok_or(io::ErrorKind::NotFound)?;
    open_own(&start, &names, make)
}

fn open_own(start: &Path, names: &[&str], make: bool) -> io::Result<OwnedFd> {
    let open = |dir: &OwnedFd, name: &str| {
        openat(dir, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let mut dir = openat(CWD, start, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    require_own(&dir)?;
    for name in names {
        dir = match open(&dir, name) {
            Err(Errno::NOENT) if make => {
                mkdirat(&dir, *name, Mode::RWXU)?;
                open(&dir, name)?
            }
            other => other?,
        };
        require_own(&dir)?;
    }
    Ok(dir)
}

fn require_own(dir: &OwnedFd) -> io::Result<()> {
    let stat = fstat(dir)?;
    let own = stat.st_uid == geteuid().as_raw() && stat.st_mode & WRITABLE == 0;
    if own { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

fn read() -> Vec<Kept> {
    let kept = || serde_json::from_slice::<Vec<Kept>>(&content(&open_dir(false).ok()?).ok()?).ok();
    kept().unwrap_or_default().into_iter().filter(|kept| kept.profile.is_sound()).collect()
}

fn content(dir: &OwnedFd) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut content = Vec::new();
    File::from(openat(dir, FILE, flags, Mode::empty())?).read_to_end(&mut content)?;
    Ok(content)
}

/// Replaces the file at once, so that a reader never sees half of it.
fn write(kept: &[Kept]) -> io::Result<()> {
    let dir = open_dir(true)?;
    let temporary = format!("engines.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir, &temporary, flags, Mode::from_raw_mode(0o644))?);
    let written = file.write_all(&serde_json::to_vec(kept)?);
    written
        .and_then(|()| Ok(renameat(&dir, &temporary, &dir, FILE)?))
        .inspect_err(|_| _ = unlinkat(&dir, &temporary, AtFlags::empty()))
}

/// Forgets what was measured.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget() -> io::Result<()> {
    let removed = open_dir(false).and_then(|dir| Ok(unlinkat(&dir, FILE, AtFlags::empty())?));
    match removed {
        // In a directory of another user nothing is kept.
        Err(e) if e.kind() != io::ErrorKind::NotFound && e.kind() != io::ErrorKind::PermissionDenied => {
            Err(e)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn only_a_cache_of_the_user_who_calls_is_used() {
        let home = tempfile::tempdir().unwrap();
        let open = |make| open_own(home.path(), &[".cache", DIR], make).map(drop).map_err(|e| e.kind());
        assert_eq!(open(false), Err(io::ErrorKind::NotFound));
        open(true).unwrap();
        open(false).unwrap();
        let dir = home.path().join(".cache").join(DIR);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(open(true), Err(io::ErrorKind::PermissionDenied));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            for theirs in [dir, home.path().to_owned()] {
                chown(&theirs, Some(65_534), Some(65_534)).unwrap();
                assert_eq!(open(true), Err(io::ErrorKind::PermissionDenied));
                chown(&theirs, Some(0), Some(0)).unwrap();
            }
        }
    }
}
