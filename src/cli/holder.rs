//! Who has a vault open for writing: a mount that stands, or one that has ended and still stores the rest.

use super::{
    exit::{Code, Failure, Outcome},
    mounts::{self, Mount},
    note,
    quoting::shell_word,
    umount,
};
use rustix::fs::{fstat, major, minor};
use std::{fs, fs::File, path::Path, thread, time::Duration};

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
    while let Ok(Some(lock)) = umount::held(vault) {
        let process = locked_by(&lock);
        let place = standing(vault);
        unknown += u32::from(process.is_none());
        let ending = place.is_none() && mounts::seen_by(vault).is_none();
        if !ending || unknown > UNKNOWN {
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
/// remounted read-only.
fn standing(vault: &Path) -> Option<Mount> {
    mounts::of_vault(vault).into_iter().min_by_key(|mount| mount.read_only)
}

/// The process that has locked this file, as "PID (name)", if it can be seen from here.
fn locked_by(lock: &File) -> Option<String> {
    let stat = fstat(lock).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
    let table = fs::read_to_string("/proc/locks").ok()?;
    let pid = table.lines().find_map(|line| holder(line, &file))?;
    Some(mounts::describe(&Path::new("/proc").join(pid)))
}

/// The process of a line of `/proc/locks`, if that is an exclusive lock of `file`.
fn holder<'a>(line: &'a str, file: &str) -> Option<&'a str> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, _, mode, pid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    (kind == "FLOCK" && mode == "WRITE" && fields.next()? == file).then_some(pid)
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

    #[test]
    fn only_an_exclusive_lock_of_the_file_has_its_holder() {
        let file = "fe:00:5496907";
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 586 fe:00:5496907 0 EOF", file), Some("586"));
        for line in [
            "1: FLOCK  ADVISORY  READ 586 fe:00:5496907 0 EOF",
            "1: POSIX  ADVISORY  WRITE 586 fe:00:5496907 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 586 fe:00:5496907 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 586 fe:00:549690 0 EOF",
            "1: FLOCK",
            "",
        ] {
            assert_eq!(holder(line, file), None, "{line}");
        }
    }
}
