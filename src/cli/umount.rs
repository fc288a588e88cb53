//! `umount`: unmounts and waits until everything is stored in the vault.

use super::{
    args::UmountArgs,
    exit::{Code, Failure, Outcome},
    locking::{self, not_mounted},
    locks::{has_locked, held, is_held},
    mounts::{self, Mount},
    progress::Spinner,
    quoting::shell_word,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// A mount may stay busy for a moment after a program that used it has ended.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Polling interval for the vault's lock.
const STORED_PAUSE: Duration = Duration::from_millis(5);
/// Interval between checks whether another mount namespace keeps the mount alive.
const SLOW: Duration = Duration::from_secs(2);
/// Time limit for another user's process to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `umount`.
pub fn run(args: &UmountArgs) -> Outcome {
    let mount = find(&args.place)?;
    let target = mount.target.clone();
    require_own(&mount)?;
    // No lock is visible if another user's vault hides it, or if the process behind the mount was
    // killed.
    let lock = held(&mount.source);
    // Another user's mount can claim to be any vault. It is genuine if its process has locked that
    // vault.
    let is_behind = |process| mount.is_own() || has_locked(process, &mount.source);
    let process = fuse::process(mount.device_number(), mount.owner.unwrap_or(0)).ok();
    let process = process.filter(|(process, _)| is_behind(*process)).map(|(_, end)| end);
    detach(&target)?;
    let _spinner = Spinner::start("storing the rest");
    // A read-only mount may have been remounted from a writable one.
    if mount.read_only || !mount.is_own() {
        let Some(process) = process else { return Ok(()) };
        wait_for_end(&mount, &process)?;
        return match lock {
            Ok(Some(lock)) if !is_held(&lock) => all_stored(&mount.source, &lock),
            Ok(_) | Err(_) => Ok(()),
        };
    }
    match (lock, process) {
        (Ok(Some(lock)), process) => wait_until_stored(&mount, &lock, process.as_ref()),
        // Mounts that share a vault hold no exclusive lock to wait for.
        (Ok(None), Some(process)) => wait_for_end(&mount, &process),
        (Err(e), _) if e.kind() != io::ErrorKind::PermissionDenied => Err(unseen(&mount.source, &e)),
        _ => Ok(()),
    }
}

/// The topmost mount at a place, or the only mount of the vault there.
fn find(place: &Path) -> Outcome<Mount> {
    let shown = place.display();
    let whole = mounts::resolve(place).map_err(|e| not_mounted(format!("{shown}: {e}")))?;
    match mounts::at(&whole).map_err(|e| Failure::io("the mount table", &e))? {
        Some(mount) if mount.fs_type == mounts::FS_TYPE => return Ok(mount),
        // A vault may be the root of a filesystem.
        Some(other) if mounts::of_vault(&whole).is_empty() => {
            return Err(not_mounted(format!(
                "{shown}: the filesystem mounted there is {}, not a vault",
                other.fs_type
            )));
        }
        Some(_) | None => {}
    }
    let mount = locking::find(place)?;
    let mut others =
        mounts::of_vault(&whole).into_iter().filter(|other| other.is_own() && !other.is_same(&mount));
    match others.next() {
        None => Ok(mount),
        Some(other) => Err(Failure::new(
            Code::Usage,
            format!("{shown} is mounted on {} and on {}", mount.target.display(), other.target.display()),
            "Name the mount point of the one to unmount.",
        )),
    }
}

/// Checks the requirements of fusermount3 for ordinary users.
fn require_own(mount: &Mount) -> Outcome {
    let user = rustix::process::geteuid();
    match mount.owner {
        Some(owner) if !user.is_root() && owner != user.as_raw() => Err(Failure::new(
            Code::Failed,
            format!("{} was mounted by another user (uid {owner})", mount.target.display()),
            "Only that user and root can unmount it.",
        )),
        _ => Ok(()),
    }
}

/// The failure if the vault cannot be read after unmounting: it was moved meanwhile, or its disk fails
/// and may not have stored everything.
fn unseen(vault: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::Failed,
        format!("unmounted, but the vault in {} cannot be read: {error}", vault.display()),
        "It is not known whether everything was stored. The mount's log lists what was not.",
    )
}

/// Waits until the process behind the mount has released the vault's lock, at which point everything is
/// stored. After that process has ended, the lock may be held by the next mount of the vault.
fn wait_until_stored(mount: &Mount, lock: &File, process: Option<&OwnedFd>) -> Outcome {
    let mut look_around = Instant::now() + SLOW;
    while is_held(lock) {
        let is_next = || process.is_some_and(|process| ends(process, Duration::ZERO)) && is_held(lock);
        if stands_elsewhere(mount) || is_next() {
            return Ok(());
        }
        if Instant::now() >= look_around {
            look_around = Instant::now() + SLOW;
            refuse_kept(mounts::kept_by(mount))?;
        }
        thread::sleep(STORED_PAUSE);
    }
    all_stored(&mount.source, lock)
}

/// Fails if the lock file shows that something could not be stored: a process that has stored everything
/// leaves it empty.
fn all_stored(vault: &Path, lock: &File) -> Outcome {
    match lock.metadata() {
        Ok(left) if left.is_file() && left.len() > 0 => Err(Failure::new(
            Code::Failed,
            format!("not everything could be stored in {}", vault.display()),
            "The mount's log says why. Data that was synced before is stored.",
        )),
        _ => Ok(()),
    }
}

/// Waits until the process behind the mount ends, which happens once it is unmounted everywhere. Another
/// user's process may never end, so that wait is limited.
fn wait_for_end(mount: &Mount, process: &OwnedFd) -> Outcome {
    let begun = Instant::now();
    while !stands_elsewhere(mount) && !ends(process, SLOW) {
        refuse_kept(mounts::kept_by(mount))?;
        if !mount.is_own() && begun.elapsed() >= PATIENCE {
            return Err(Failure::new(
                Code::Failed,
                format!(
                    "unmounted, but the process behind {}, which belongs to another user, is still running",
                    mount.target.display()
                ),
                "It may still store the rest.",
            ));
        }
    }
    Ok(())
}

fn stands_elsewhere(mount: &Mount) -> bool {
    mounts::ours().iter().any(|other| other.is_same(mount))
}

/// Waits for a process to end, up to `most` in whole seconds. Returns whether it has ended.
fn ends(process: &OwnedFd, most: Duration) -> bool {
    let most = Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&most)).is_ok_and(|ended| ended > 0)
}

/// Fails if a process in another mount namespace keeps the mount alive: it cannot be unmounted from
/// here.
fn refuse_kept(by: Option<String>) -> Outcome {
    let Some(process) = by else { return Ok(()) };
    Err(Failure::new(
        Code::MountPointBusy,
        format!("unmounted here, but process {process} keeps the mount alive in another mount namespace"),
        "End that process (a container, for example). Then the rest is stored.",
    ))
}

/// Unmounts. Retries for a moment if the mount is busy.
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
    if let Some(inner) = mounts::below(target).last() {
        return Failure::new(
            Code::MountPointBusy,
            format!("{} is in use: {} is mounted below it", target.display(), inner.target.display()),
            format!("Unmount that first (`umount {}`); the mount still stands.", shell_word(&inner.target)),
        );
    }
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
