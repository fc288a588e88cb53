//! Measurements, kept in the user's cache directory for each device, driver, processor and program version.
//! Root may have another user's environment, as with sudo, so a directory owned by another user is not
//! used.

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
/// Write permission for the group or others.
const WRITABLE: u32 = 0o022;

/// Maximum number of profiles kept. Several machines may share a cache directory.
const KEPT: usize = 16;

/// The configuration that a profile is valid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordKey {
    program: String,
    engine: String,
    driver: i32,
    processor: String,
    threads: usize,
}

impl RecordKey {
    /// Key of the CPU, or of a GPU beside it.
    pub fn new(cpu: &CpuEngine, gpu: Option<&Description>) -> Self {
        RecordKey {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            engine: gpu.map_or("cpu", |gpu| &gpu.name).to_owned(),
            driver: gpu.map_or(0, |gpu| gpu.driver),
            processor: processor(),
            threads: cpu.threads(),
        }
    }

    /// The profile kept for this key, or an empty one.
    pub fn profile(&self) -> Profile {
        let found = read().into_iter().find(|kept| kept.key == *self);
        found.map_or_else(Profile::new, |kept| kept.profile)
    }

    /// Stores a curve beside those already kept. A failure is only logged, since this is a cache.
    pub fn keep(&self, function: Function, curve: Curve) {
        let mut all = read();
        let mut own = match all.iter().position(|kept| kept.key == *self) {
            Some(place) => all.remove(place),
            None => KeptRecord { key: self.clone(), profile: Profile::new() },
        };
        own.profile.put(function, curve);
        all.insert(0, own);
        all.truncate(KEPT);
        if let Err(e) = write(&all) {
            log::debug!("the measurement of the engines was not kept: {e}");
        }
    }
}

/// The processor's name as reported by the kernel, or an empty string.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}

/// An entry of the file.
#[derive(Debug, Serialize, Deserialize)]
struct KeptRecord {
    key: RecordKey,
    profile: Profile,
}

/// An existing directory, and the names below it that lead to the cache directory.
fn place() -> Option<(PathBuf, Vec<&'static str>)> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let given = absolute("XDG_CACHE_HOME").map(|cache| (cache, vec![DIR]));
    given.or_else(|| Some((absolute("HOME")?, vec![".cache", DIR])))
}

/// The program's directory in the cache, for measurements; created if it is missing and `make` is set. The
/// caller owns every directory on the way to it below the home directory, so they own its content too.
///
/// # Errors
/// `NotFound` if there is none; EACCES if another user owns it.
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

fn read() -> Vec<KeptRecord> {
    let kept = || serde_json::from_slice::<Vec<KeptRecord>>(&content(&open_dir(false).ok()?).ok()?).ok();
    kept().unwrap_or_default().into_iter().filter(|kept| kept.profile.is_sound()).collect()
}

fn content(dir: &OwnedFd) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut content = Vec::new();
    File::from(openat(dir, FILE, flags, Mode::empty())?).read_to_end(&mut content)?;
    Ok(content)
}

/// Replaces the file atomically, so that a reader never sees a partial one.
fn write(kept: &[KeptRecord]) -> io::Result<()> {
    let dir = open_dir(true)?;
    let temporary = format!("engines.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir, &temporary, flags, Mode::from_raw_mode(0o644))?);
    let written = file.write_all(&serde_json::to_vec(kept)?);
    written
        .and_then(|()| Ok(renameat(&dir, &temporary, &dir, FILE)?))
        .inspect_err(|_| _ = unlinkat(&dir, &temporary, AtFlags::empty()))
}

/// Deletes the stored measurements.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget() -> io::Result<()> {
    let removed = open_dir(false).and_then(|dir| Ok(unlinkat(&dir, FILE, AtFlags::empty())?));
    match removed {
        // Nothing is ever kept in another user's directory.
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
