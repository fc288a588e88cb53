//! The holder of a vault's write lock: a live mount, or an ended one that is still flushing.

use super::{
    exit::{Code, Failure, Outcome},
    locks::{held, locked_by},
    mounts::{self, Mount},
    note,
    quoting::shell_word,
};
use std::{fs, path::Path, thread, time::Duration};

/// Polling interval while a mount is ending.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of polls that may fail to identify the holder before the vault counts as in use: a process
/// takes a moment to end.
const UNKNOWN: u32 = 100;

/// Waits for an ended mount of `vault` that is still flushing.
///
/// # Errors
/// `AlreadyMounted` if the vault is held by a live mount, or by a process that cannot be identified.
pub fn wait_until_free(vault: &Path) -> Outcome {
    let (mut told, mut unknown) = (false, 0);
    // If the vault cannot be read, treat it as free: opening it reports the error.
    while let Ok(Some(lock)) = held(vault) {
        let process = locked_by(&lock);
        let user = process.as_deref().and_then(user_of);
        let place = standing(vault, user);
        unknown += u32::from(process.is_none());
        let ending = place.is_none() && mounts::seen_by(vault, user).is_none();
        if !ending || unknown > UNKNOWN {
            let process = process.as_deref().map(mounts::describe);
            return Err(in_use(place.as_ref(), process.as_deref()));
        }
        if !told {
            note(format_args!("waiting for the previous mount of {} to store everything", vault.display()));
            told = true;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The live mount of `vault` that is visible here. Writable mounts are preferred. Read-only ones count
/// too, because a mount for writing may have been remounted read-only. Mounts are trusted only if they
/// belong to root, the caller, or `user`, whose process holds the vault: any other user's mount can
/// claim to be any vault.
fn standing(vault: &Path, user: Option<u32>) -> Option<Mount> {
    let found = mounts::of_vault(vault).into_iter().filter(|mount| mount.is_own_or_of(user));
    found.min_by_key(|mount| mount.read_only)
}

/// The user who runs the process with this `/proc` directory. The directory itself may belong to root.
fn user_of(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

fn in_use(place: Option<&Mount>, process: Option<&str>) -> Failure {
    let by = process.map(|process| format!(" by process {process}")).unwrap_or_default();
    let (place, advice) = match place.map(|mount| &mount.target) {
        Some(target) => (
            format!(" on {}", target.display()),
            format!("Unmount it first (`warpcrypt umount {}`)", shell_word(target)),
        ),
        None => (" elsewhere".into(), "Unmount it there first".into()),
    };
    Failure::new(
        Code::AlreadyMounted,
        format!("the vault is already mounted for writing{place}{by}"),
        format!("{advice}, or mount it with --read-only."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;

    #[test]
    fn the_user_of_a_process_is_known() {
        let own = Path::new("/proc").join(std::process::id().to_string());
        assert_eq!(user_of(&own), Some(geteuid().as_raw()));
    }
}
