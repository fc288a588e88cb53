//! `lock` and `unlock`: commands to a mount's process, sent outside the filesystem interface.

use super::{
    args::{LockArgs, UnlockMountArgs},
    exit::{Code, Failure, Outcome},
    mounts::{self, Mount},
    note,
    patience::patiently,
    progress::Spinner,
    unheard::unheard,
    unlocking, vaults,
};
use format::printable::printable;
use fuse::{ControlCommand, ControlStatus, Patience};
use std::{io, panic::resume_unwind, path::Path, thread, time::Duration};
use vault::Vault;
use zeroize::Zeroizing;

/// Time limit for each mount during `lock --all`, and for ending a mount by force. Any user's filesystem
/// can claim to listen and then do nothing.
const MOST: Duration = Duration::from_secs(60);

/// Runs `lock`.
pub fn lock(args: &LockArgs) -> Outcome {
    let _spinner = Spinner::start("storing everything");
    match &args.place {
        Some(place) => lock_one(&find(place)?, args.end, None),
        None => lock_all(args.end),
    }
}

/// Locks every vault that the user may lock, in parallel, so that one unresponsive process delays no
/// other; it is given up after a time limit. Continues after a failure, and returns the last one.
fn lock_all(end: bool) -> Outcome {
    let user = rustix::process::geteuid();
    let mut mounts = mounts::ours();
    mounts.retain(|mount| user.is_root() || mount.owner == Some(user.as_raw()));
    // The same filesystem may be mounted in several places.
    mounts.sort_by_key(|mount| mount.device);
    mounts.dedup_by_key(|mount| mount.device);
    let lock = |mount: &Mount| lock_one(mount, end, Some(MOST));
    let failures: Vec<Failure> = thread::scope(|scope| {
        let locks: Vec<_> = mounts.iter().map(|mount| scope.spawn(move || lock(mount))).collect();
        locks
            .into_iter()
            .filter_map(|lock| lock.join().unwrap_or_else(|panic| resume_unwind(panic)).err())
            .collect()
    });
    let mut last = Ok(());
    for failure in failures {
        if let Err(before) = std::mem::replace(&mut last, Err(failure)) {
            note(before.message);
        }
    }
    last
}

/// Locks or ends a mount. With a time limit, probes the mount first: if it does not answer, it must not
/// be sent a command that it might execute later.
fn lock_one(mount: &Mount, end: bool, most: Option<Duration>) -> Outcome {
    require_own(mount, false)?;
    let owner = mount.owner.unwrap_or(0);
    let reached = match most {
        Some(_) => fuse::hears(mount.device_number(), owner),
        None if end => fuse::process(mount.device_number(), owner).map(drop),
        None => Ok(()),
    };
    match reached {
        Err(e) if end => return Err(end_unheard(mount, &e)),
        Err(e) => return Err(unheard(mount, &ControlCommand::Metrics, &e)),
        Ok(()) => {}
    }
    let command = if end { ControlCommand::LockAndEnd } else { ControlCommand::Lock };
    tell_within(mount, &command, &Patience { most, stop: None }).map(drop)
}

/// Ends a mount whose process cannot be reached. The failure says so, because it is not known what the
/// process has stored, or whether it still has the keys.
fn end_unheard(mount: &Mount, error: &io::Error) -> Failure {
    let (target, device) = (mount.target.clone(), mount.device_number());
    let end = move || fuse::end(&target, device);
    let ended = patiently(&Patience { most: Some(MOST), stop: None }, end);
    let what = unheard(mount, &ControlCommand::Metrics, error).message;
    let what = what.lines().next().unwrap_or_default();
    match ended {
        Ok(()) => Failure::new(
            Code::Failed,
            format!("{what}; unmounted by force"),
            "What programs had not synced may be lost. If its process still runs, it may still have the keys.",
        ),
        Err(e) => Failure::new(
            Code::Failed,
            format!("{what}, and the mount could not be ended: {e}"),
            "Its process may still have the keys.",
        ),
    }
}

/// Fails if a mount's process does not answer at all. Such a process must not be sent a command that it
/// might execute later.
///
/// # Errors
/// Says what is known about a mount that does not answer.
pub fn require_hearing(mount: &Mount) -> Outcome {
    require_own(mount, false)?;
    let heard = fuse::hears(mount.device_number(), mount.owner.unwrap_or(0));
    heard.map_err(|e| unheard(mount, &ControlCommand::Metrics, &e))
}

/// Runs `unlock`.
pub fn unlock(args: &UnlockMountArgs) -> Outcome {
    let mount = find_for_key(&args.place)?;
    if state(&mount)? != fuse::LOCKED {
        note(format_args!("{} is not locked", mount.target.display()));
        return Ok(());
    }
    let unlock = unlocking::present(&mount.source, &args.unlock)?;
    let _spinner = Spinner::start("unlocking");
    let (_, _, master) = Vault::unlock_config(&mount.source, &unlock).map_err(vaults::explain)?;
    tell(&mount, &ControlCommand::Unlock(Zeroizing::new(*master.expose()))).map(drop)
}

/// Why programs are blocked on a mount: [`fuse::LOCKED`], [`fuse::FROZEN`], or empty if they are not.
///
/// # Errors
/// If the mount's process cannot be asked.
pub fn state(mount: &Mount) -> Outcome<String> {
    tell(mount, &ControlCommand::State)
}

/// As [`find`], for a mount that will receive the master key.
///
/// # Errors
/// Those of [`find`]; also if another user mounted it.
pub fn find_for_key(place: &Path) -> Outcome<Mount> {
    let mount = find(place)?;
    require_own(&mount, true)?;
    Ok(mount)
}

/// Finds the mount of a vault by its mount point or the vault's directory. Another user's mount is found
/// only by its mount point: it can claim to be any vault.
///
/// # Errors
/// If there is none.
pub fn find(place: &Path) -> Outcome<Mount> {
    let shown = place.display();
    let whole = mounts::resolve(place).map_err(|e| not_mounted(format!("{shown}: {e}")))?;
    let mut ours = mounts::ours();
    if let Some(at) = ours.iter().rposition(|mount| mount.target == whole) {
        return Ok(ours.swap_remove(at));
    }
    // Prefer a writable mount to read-only ones.
    let (own, others): (Vec<_>, Vec<_>) = mounts::of_vault(&whole).into_iter().partition(Mount::is_own);
    let found = own.into_iter().min_by_key(|mount| mount.read_only);
    found.ok_or_else(|| match others.first() {
        Some(other) => Failure::new(
            Code::NotMounted,
            format!("{shown}: mounted only by {}, on {}", another_user(other), other.target.display()),
            "Any user can claim to have mounted any vault, so name such a mount by its mount point.",
        ),
        None => not_mounted(format!("{shown}: no vault is mounted there, nor is it one that is mounted")),
    })
}

/// The failure of a command that finds no mount.
pub fn not_mounted(what: String) -> Failure {
    Failure::new(Code::NotMounted, what, "`findmnt -t fuse.warpcrypt` lists the mounted vaults.")
}

fn another_user(mount: &Mount) -> String {
    let owner = mount.owner.map_or_else(|| "unknown".to_owned(), |owner| format!("uid {owner}"));
    format!("another user ({owner})")
}

/// Fails for another user's mount. Root may send it commands, but nobody may send it a secret.
fn require_own(mount: &Mount, secret: bool) -> Outcome {
    if mount.is_own() || !secret && rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let advice = match secret {
        true => {
            "The master key is sent only to mounts of root and of the calling user. Unlock it as that user."
        }
        false => "Only root and that user can lock, freeze and thaw it.",
    };
    let what = format!("{} was mounted by {}", mount.target.display(), another_user(mount));
    Err(Failure::new(Code::Failed, what, advice))
}

/// Sends a command to the process behind a mount; returns its answer.
///
/// # Errors
/// If it does not answer or refuses, or the error that it reports.
pub fn tell(mount: &Mount, command: &ControlCommand) -> Outcome<String> {
    tell_within(mount, command, &Patience::default())
}

/// As [`tell`], with a limit on the wait.
///
/// # Errors
/// Those of [`tell`]; also if there was no answer in time.
pub fn tell_within(mount: &Mount, command: &ControlCommand, patience: &Patience) -> Outcome<String> {
    require_own(mount, command.is_secret())?;
    let shown = mount.target.display();
    let (status, text) = fuse::tell(mount.device_number(), mount.owner.unwrap_or(0), command, patience)
        .map_err(|e| unheard(mount, command, &e))?;
    // Any user's filesystem can pretend to be a vault. It must not control the terminal.
    let text = printable(&text);
    match status {
        ControlStatus::Done => Ok(text),
        ControlStatus::Failed => Err(Failure::plain(Code::Failed, format!("{shown}: {text}"))),
        ControlStatus::WrongKey => Err(Failure::plain(Code::WrongKey, format!("{shown}: {text}"))),
        ControlStatus::Old => Err(Failure::plain(Code::Unreadable, format!("{shown}: {text}"))),
        ControlStatus::Full => Err(Failure::plain(Code::DiskFull, format!("{shown}: {text}"))),
        ControlStatus::Unknown => Err(Failure::new(
            Code::Failed,
            format!("{shown}: the mount does not support that command"),
            "It was mounted by another version of the program. Unmount it, and mount it again.",
        )),
    }
}
