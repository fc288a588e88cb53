//! What commands do about the anchor of a vault.

use super::{
    exit::{Code, Failure, Outcome},
    note,
    progress::Late,
};
use crate::vault::{self, AnchorError, AnchorUse, Error, Vault};
use std::path::Path;

/// The anchor of this name, to be kept as it is.
pub fn wanted(file: Option<&Path>) -> Option<AnchorUse> {
    file.map(|file| AnchorUse { file: file.to_owned(), accept: false })
}

/// Refuses an anchor that lies in one of these directories.
///
/// # Errors
/// If it does.
pub fn refuse_inside(file: &Path, directories: &[&Path]) -> Outcome {
    directories.iter().try_for_each(|dir| vault::refuse_inside(file, dir).map_err(|e| explain(&e)))
}

/// The exit code and message of an anchor that cannot be used.
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

/// If the vault was opened with an anchor that does not have it yet: that takes it as it is, and standard error says so.
///
/// # Errors
/// If the vault cannot be read, or the anchor not be written.
pub fn take_if_new(vault: &Vault, wanted: Option<&AnchorUse>) -> Outcome {
    match wanted.filter(|_| vault.lacks_anchor()) {
        Some(wanted) => take(vault, &wanted.file),
        None => Ok(()),
    }
}

/// Has the anchor take the vault as it is, and says so.
///
/// # Errors
/// As `take_if_new`.
pub fn take(vault: &Vault, file: &Path) -> Outcome {
    note(format_args!(
        "the anchor {} takes the vault as it is now: everything in it is trusted",
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
