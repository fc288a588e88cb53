//! Handling of a vault's anchor that is common to all commands.

use super::{
    exit::{Code, Failure, Outcome},
    note,
    progress::Late,
};
use content::Error;
use std::path::Path;
use vault::{AnchorError, AnchorUse, Vault};

/// Selects the anchor `file`, if given, without accepting a vault that differs from it.
pub fn wanted(file: Option<&Path>) -> Option<AnchorUse> {
    file.map(|file| AnchorUse { file: file.to_owned(), accept: false })
}

/// Rejects an anchor file that is inside one of these directories.
///
/// # Errors
/// If it is inside one, or its location cannot be resolved.
pub fn refuse_inside(file: &Path, directories: &[&Path]) -> Outcome {
    directories.iter().try_for_each(|dir| vault::refuse_inside(file, dir).map_err(|e| explain(&e)))
}

/// The exit code and message for an anchor error.
pub fn explain(error: &AnchorError) -> Failure {
    let code = match error {
        AnchorError::Inside(..) => Code::Usage,
        AnchorError::InUse(_) => Code::AlreadyMounted,
        AnchorError::OldConfiguration { .. } | AnchorError::OtherRoot(_) => Code::Unreadable,
        AnchorError::File { .. } if error.is_disk_full() => Code::DiskFull,
        AnchorError::Missing(_)
        | AnchorError::NotAnAnchor(_)
        | AnchorError::OtherVault(_)
        | AnchorError::OtherKey(_)
        | AnchorError::File { .. } => Code::Failed,
    };
    Failure::plain(code, error)
}

/// Records the vault's current state if the vault was opened with a new anchor, and says so on standard
/// error.
///
/// # Errors
/// If the vault cannot be read or the anchor cannot be written.
pub fn take_if_new(vault: &Vault, wanted: Option<&AnchorUse>) -> Outcome {
    match wanted.filter(|_| vault.lacks_anchor()) {
        Some(wanted) => take(vault, &wanted.file),
        None => Ok(()),
    }
}

/// Accepts the vault's current state as the anchor's baseline, and says so on standard error.
///
/// # Errors
/// As for [`take_if_new`].
pub fn take(vault: &Vault, file: &Path) -> Outcome {
    note(format_args!(
        "the anchor {} now accepts the vault's current state: everything in it is trusted",
        file.display()
    ));
    let mut late = Late::start();
    let taken = vault.take_into_anchor(&mut || {
        late.file();
        true
    });
    taken.map_err(|e| match e {
        Error::Store(e) => Failure::plain(Code::Failed, format!("the anchor {}: {e}", file.display())),
        other => Failure::plain(Code::Failed, other),
    })
}
