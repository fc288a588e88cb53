//! `umount`: lets go of a mount and waits until all of it is in the vault.

use super::{
    args::UmountArgs,
    exit::{Code, Failure, Outcome},
    mounts,
    progress::Spinner,
};
use crate::{format::name::LOCK_FILE, fuse};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// A program that has just ended may hold a mount for another moment.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How often the vault's lock is looked at.
const STORED_PAUSE: Duration = Duration::from_millis(5);
/// After so long it is worth a look whether something else keeps the mount alive.
const SLOW: Duration = Duration::from_secs(2);

/// Runs `umount`.
pub fn run(args: &UmountArgs) -> Outcome {
    let shown = args.mount.display();
    let target = mounts::resolve(&args.mount).map_err(|e| not_mounted(format!("{shown}: {e}")))?;
    let table = mounts::at(&target).map_err(|e| Failure::io("the mount table", &e))?;
    let mount = match table {
        Some(mount) if mount.fs_type == mounts::FS_TYPE => mount,
        Some(other) => {
            return Err(not_mounted(format!(
                "{shown}: what is mounted there is {}, no vault",
                other.fs_type
            )));
        }
        None => return Err(not_mounted(format!("{shown}: nothing is mounted there"))),
    };
    // Where the lock cannot be seen because the vault is somebody else's, there is no waiting; nor where nobody
    // holds it: the process behind the mount was killed.
    let lock = held(&mount.source);
    detach(&target)?;
    if mount.read_only {
        return Ok(());
    }
    match lock {
        Ok(Some(lock)) => {
            let _spinner = Spinner::start("storing what is left");
            wait_until_stored(&mount.source, &lock)
        }
        Err(e) if e.kind() != io::ErrorKind::PermissionDenied => Err(unseen(&mount.source, &e)),
        _ => Ok(()),
    }
}

/// The vault was moved meanwhile, or its disk fails and will hardly have taken all that was written.
fn unseen(vault: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::Failed,
        format!("unmounted, but the vault in {} cannot be read: {error}", vault.display()),
        "Whether all that was written is stored is not known; the mount's log says what is not.",
    )
}

/// What the process behind the mount has locked: the lock file, or only the vault's directory if that file was
/// removed or replaced.
fn held(vault: &Path) -> io::Result<Option<File>> {
    match File::open(vault.join(LOCK_FILE)) {
        Ok(lock) if is_held(&lock) => return Ok(Some(lock)),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    File::open(vault).map(|dir| Some(dir).filter(is_held))
}

fn is_held(lock: &File) -> bool {
    flock(lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// Waits until the process behind the mount has let go of the vault's lock: then all is stored. A lock
/// taken by the next mount of the vault is not waited for.
fn wait_until_stored(vault: &Path, lock: &File) -> Outcome {
    let mut look_around = Instant::now() + SLOW;
    while is_held(lock) {
        if mounts::writable_of(vault) {
            return Ok(());
        }
        if Instant::now() >= look_around {
            look_around = Instant::now() + SLOW;
            still_seen(vault)?;
        }
        thread::sleep(STORED_PAUSE);
    }
    // A process that came to the end of its work leaves the file empty.
    match lock.metadata() {
        Ok(left) if left.is_file() && left.len() > 0 => Err(Failure::new(
            Code::Failed,
            format!("not all that was written could be stored in {}", vault.display()),
            "The mount's log says why. What was synced before is there.",
        )),
        _ => Ok(()),
    }
}

/// Fails if the mount lives on in another mount namespace, where it cannot be unmounted from here.
fn still_seen(vault: &Path) -> Outcome {
    let Some(process) = mounts::seen_by(vault) else { return Ok(()) };
    Err(Failure::new(
        Code::MountPointBusy,
        format!("unmounted here, but process {process} still has the mount in a mount namespace of its own"),
        "End that process (a container, for example): then the rest is stored.",
    ))
}

fn not_mounted(what: String) -> Failure {
    Failure::new(Code::NotMounted, what, "`findmnt -t fuse.warpcrypt` lists the mounted vaults.")
}

/// Unmounts, with some patience for a mount that is busy but used by nobody.
fn detach(target: &Path) -> Outcome {
    for _ in 0..BUSY_TRIES {
        match detach_once(target) {
            Err(failure) if failure.code == Code::MountPointBusy => thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    detach_once(target)
}

fn detach_once(target: &Path) -> Outcome {
    let Err(error) = fuse::unmount(target, false) else { return Ok(()) };
    let what = || format!("unmounting {}: {error}", target.display());
    Err(match error.kind() {
        io::ErrorKind::ResourceBusy => busy(target),
        io::ErrorKind::NotFound => Failure::plain(Code::FuseUnavailable, what()),
        _ => Failure::plain(Code::Failed, what()),
    })
}

fn busy(target: &Path) -> Failure {
    let users = mounts::users_of(target, 5);
    let who = if users.is_empty() {
        "Something has a file or a directory of it open".to_owned()
    } else {
        format!("Used by process {}", users.join(", "))
    };
    Failure::new(
        Code::MountPointBusy,
        format!("{} is in use", target.display()),
        format!("{who}. End it (or leave the directory) and try again; the mount still stands."),
    )
}
