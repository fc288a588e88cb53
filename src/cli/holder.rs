//! Who has a vault open for writing: a mount that stands, or one that has ended and still stores the rest.

use super::{
    exit::{Code, Failure, Outcome},
    locks::{held, locked_by},
    mounts::{self, Mount},
    note,
    quoting::shell_word,
};
use std::{fs, path::Path, thread, time::Duration};

/// How often an ending mount is looked at.
const PAUSE: Duration = Duration::from_millis(20);
/// So often a holder may be unknown before it counts as one: the end of its process takes a moment.
const UNKNOWN: u32 = 100;

/// Waits for a mount of `vault` that has ended and still stores the rest.
///
/// # Errors
/// `AlreadyMounted` if a mount that stands has the vault, or a process that cannot be found.
pub fn wait_until_free(vault: &Path) -> Outcome {
    let (mut told, mut unknown) = (false, 0);
    // A vault that cannot be read is not held: opening it says what is wrong.
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

/// The mount of `vault` that stands here, one for writing before others: a mount for writing may have been
/// remounted read-only. What was mounted by another user than `user`, whose process has the vault, can say to be any.
fn standing(vault: &Path, user: Option<u32>) -> Option<Mount> {
    let found = mounts::of_vault(vault).into_iter().filter(|mount| mount.is_own_or_of(user));
    found.min_by_key(|mount| mount.read_only)
}

/// The user of the process in this folder. The folder itself may belong to root.
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
