//! Holders of a vault's lock, according to the kernel.

use format::name::LOCK_FILE;
use rustix::{
    fs::{FlockOperation, OFlags, flock, fstat, major, minor},
    io::Errno,
    process::Pid,
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use store::StoreDir;

/// How many reads of the lock table must miss a line before it counts as absent.
const TABLE_READS: usize = 20;

/// The file that the process behind a mount has locked: the lock file, or the vault's directory if the
/// lock file was removed or replaced. `None` if nothing is locked.
///
/// # Errors
/// If the vault cannot be read.
pub fn held(vault: &Path) -> io::Result<Option<File>> {
    let store = StoreDir::open_path(vault)?;
    match lock_file(&store) {
        Ok(lock) if is_held(&lock) => return Ok(Some(lock)),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    directory(&store).map(|dir| Some(dir).filter(is_held))
}

/// Opens the lock file of a directory that a mount claims as its vault: another user may have put
/// anything there.
fn lock_file(store: &StoreDir) -> io::Result<File> {
    store.open_file(OsStr::new(LOCK_FILE), OFlags::RDONLY).map(File::from)
}

/// Opens the directory itself for locking.
fn directory(store: &StoreDir) -> io::Result<File> {
    Ok(store.readable()?.into())
}

/// Whether a process holds an exclusive lock on this file.
pub fn is_held(lock: &File) -> bool {
    is_refused(lock, FlockOperation::NonBlockingLockShared)
}

/// Whether taking this lock is refused. If it is granted, it is released at once.
fn is_refused(lock: &File, operation: FlockOperation) -> bool {
    match flock(lock, operation) {
        // Unlock explicitly: closing the file is not enough if another thread is starting a process,
        // which inherits the descriptor.
        Ok(()) => flock(lock, FlockOperation::Unlock).is_err(),
        Err(e) => e == Errno::WOULDBLOCK,
    }
}

/// Whether the vault is in use by mounts with `--shared`.
pub fn is_shared(vault: &Path) -> bool {
    let lock = StoreDir::open_path(vault).and_then(|store| lock_file(&store));
    lock.is_ok_and(|lock| is_refused(&lock, FlockOperation::NonBlockingLockExclusive))
}

/// The `/proc` directory of the process that holds an exclusive lock on this file, if it is visible from
/// here.
pub fn locked_by(lock: &File) -> Option<PathBuf> {
    let file = in_table(lock)?;
    find_in_table(|line| holder(line, &file, &["WRITE"]).map(|pid| Path::new("/proc").join(pid)))
}

/// Whether a process holds a lock on the vault, exclusive or shared.
pub fn has_locked(process: Pid, vault: &Path) -> bool {
    let Ok(store) = StoreDir::open_path(vault) else { return false };
    let files = [lock_file(&store), directory(&store)];
    let files: Vec<String> = files.iter().flatten().filter_map(in_table).collect();
    let process = process.to_string();
    let has = |line: &str| files.iter().any(|file| holder(line, file, &["WRITE", "READ"]) == Some(&process));
    find_in_table(|line| has(line).then_some(())).is_some()
}

/// The first result of `wanted` for a line of `/proc/locks`. The kernel returns that table in pieces,
/// and may skip a line between two pieces while other locks come and go. So the table is read again
/// before a line counts as absent.
fn find_in_table<T>(wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
    (0..TABLE_READS).find_map(|_| fs::read_to_string("/proc/locks").ok()?.lines().find_map(&wanted))
}

/// A file's identifier in `/proc/locks`.
fn in_table(file: &File) -> Option<String> {
    let stat = fstat(file).ok()?;
    Some(format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino))
}

/// The process id in a line of `/proc/locks`, if the line is a lock on `file` in one of these modes.
fn holder<'a>(line: &'a str, file: &str, modes: &[&str]) -> Option<&'a str> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, _, mode, pid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    (kind == "FLOCK" && modes.contains(&mode) && fields.next()? == file).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    #[test]
    fn only_an_exclusive_lock_of_the_file_has_its_holder() {
        let file = "fe:00:5496907";
        let holder = |line| holder(line, file, &["WRITE"]);
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 586 fe:00:5496907 0 EOF"), Some("586"));
        for line in [
            "1: FLOCK  ADVISORY  READ 586 fe:00:5496907 0 EOF",
            "1: POSIX  ADVISORY  WRITE 586 fe:00:5496907 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 586 fe:00:5496907 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 586 fe:00:549690 0 EOF",
            "1: FLOCK",
            "",
        ] {
            assert_eq!(holder(line), None, "{line}");
        }
    }

    #[test]
    fn the_holder_is_found_while_other_locks_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| File::create(dir.path().join(name)).unwrap();
        let held = make("held");
        held.lock().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..3 {
                let files: Vec<File> = (0..200).map(|n| make(&format!("{thread}-{n}"))).collect();
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        files.iter().for_each(|file| file.lock().unwrap());
                        files.iter().for_each(|file| file.unlock().unwrap());
                    }
                });
            }
            let missed = (0..1000).filter(|_| locked_by(&held).is_none()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn a_process_has_locked_the_vault_alone_or_with_others() {
        let vault = tempfile::tempdir().unwrap();
        let lock = File::create(vault.path().join(LOCK_FILE)).unwrap();
        let has = || has_locked(getpid(), vault.path());
        assert!(!has());
        lock.lock_shared().unwrap();
        assert!(has());
        lock.unlock().unwrap();
        lock.lock().unwrap();
        assert!(has());
    }
}
