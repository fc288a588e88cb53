//! What to say of a mount whose process could not be told something.

use super::{
    exit::{Code, Failure},
    mounts::Mount,
};
use rustix::io::Errno;
use std::io;

/// Why a mount's process could not be told something.
pub fn unheard(mount: &Mount, error: &io::Error) -> Failure {
    let shown = mount.target.display();
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::NOENT) => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not listen"),
            "It was killed, is of an older version, or runs in another network namespace. Unmounting it locks it, too.",
        ),
        _ if error.kind() == io::ErrorKind::PermissionDenied => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not obey"),
            "Only root and the user who mounted it can lock, unlock, freeze and thaw it.",
        ),
        _ if error.kind() == io::ErrorKind::TimedOut => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not answer, and was not told"),
            "It is stopped, or busy with another command.",
        ),
        _ => Failure::plain(Code::Failed, format!("{shown}: the mount's process: {error}")),
    }
}
