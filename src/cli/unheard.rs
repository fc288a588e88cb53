//! Failures of sending a command to a mount's process.

use super::{
    exit::{Code, Failure},
    mounts::Mount,
};
use fuse::ControlCommand;
use rustix::io::Errno;
use std::io;

/// Explains why a command could not be sent to a mount's process, or what is known if it has not
/// answered.
pub fn unheard(mount: &Mount, command: &ControlCommand, error: &io::Error) -> Failure {
    let shown = mount.target.display();
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::NOENT) => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not listen"),
            "It was killed, or its socket was removed or is in another mount namespace. Unmounting it locks it, too.",
        ),
        _ if error.kind() == io::ErrorKind::PermissionDenied => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process refused the command"),
            "Only root and the user who mounted it can lock, unlock, freeze and thaw it.",
        ),
        _ if error.kind() == io::ErrorKind::Interrupted => Failure::plain(
            Code::Interrupted,
            format!("interrupted; {shown}: the mount's process has not answered"),
        ),
        _ if error.kind() == io::ErrorKind::TimedOut && !command.is_question() => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not answer, though it was told"),
            "It may do so yet, if it has much to store. `warpcrypt stat` tells whether the vault is locked.",
        ),
        _ if error.kind() == io::ErrorKind::TimedOut => Failure::new(
            Code::Failed,
            format!("{shown}: the mount's process does not answer, and was not told"),
            "It is stopped, or busy with another command.",
        ),
        _ => Failure::plain(Code::Failed, format!("{shown}: the mount's process: {error}")),
    }
}
