//! Who checks permission bits: the kernel, or nobody if they bind nobody.
//!
//! With its option `default_permissions` the kernel checks the attributes that it holds. Whenever a name is made or
//! removed it drops those of the directory and asks for them again: one more request for each name. On a mount that
//! only root may enter this is of no use. Permission bits do not bind root, and the kernel decides the rest without
//! that option, too (who enters at all, the sticky bit, whether a program may be executed, the flags of the mount). So
//! such a mount does without the option.
//!
//! For other users the kernel has to check. It follows a name that it holds without asking, so the mount could not
//! keep a process out of a directory that was closed since; and it does not say which groups a process is in.

use super::errno::{self, Answer, CLOSED};
use crate::vault::{Kind, Result, Stat};
use fuser::AccessFlags;
use rustix::thread::{CapabilitySet, capabilities};

/// The option's name, for users and for the kernel.
pub const DEFAULT_PERMISSIONS: &str = "default_permissions";

/// The only user of a mount on which nobody checks.
const ROOT: u32 = 0;
/// `/proc/self/uid_map` in the system's own user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
const EXECUTE: u32 = 0o111;

/// Who checks permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// The kernel, for every user that it lets in.
    Kernel,
    /// Nobody: only root is let in.
    Nobody,
}

impl Judge {
    /// Who checks on a mount by this process with these `flags`.
    pub fn on_mount(allow_other: bool, flags: &[String]) -> Judge {
        let asked = flags.iter().any(|flag| flag == DEFAULT_PERMISSIONS);
        if allow_other || asked || !is_unbound() { Judge::Kernel } else { Judge::Nobody }
    }

    /// Lets `user` reach nodes by their names, or refuses. The kernel has checked all other ids of the process, but not
    /// its filesystem user id, which a file server sets to that of its client.
    pub fn admit(self, user: u32) -> Answer<()> {
        if self == Judge::Nobody && user != ROOT { Err(CLOSED) } else { Ok(()) }
    }
}

/// Answers access(2) and chdir(2) for root, on a mount where nobody checks. Root may not execute what nobody may
/// execute.
///
/// # Errors
/// EACCES.
pub fn root_may(node: &Stat, wanted: AccessFlags) -> Result<()> {
    let executes = wanted.contains(AccessFlags::X_OK) && node.kind != Kind::Dir;
    if executes && node.mode & EXECUTE == 0 { Err(errno::no_access()) } else { Ok(()) }
}

/// Whether permission bits do not bind this process: root's in the system's own user namespace, with root's
/// rights over files.
fn is_unbound() -> bool {
    let root = rustix::process::geteuid().as_raw() == ROOT;
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let rights = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    root && users.split_whitespace().eq(ALL_USERS) && rights.contains(CapabilitySet::DAC_OVERRIDE)
}

#[cfg(test)]
mod tests {
    use super::super::attr;
    use super::*;

    #[test]
    fn the_kernel_checks_if_others_get_in_or_it_is_asked_to() {
        let flags = [DEFAULT_PERMISSIONS.to_owned()];
        assert_eq!(Judge::on_mount(true, &[]), Judge::Kernel);
        assert_eq!(Judge::on_mount(false, &flags), Judge::Kernel);
        assert_eq!(Judge::Kernel.admit(1000), Ok(()));
        assert_eq!(Judge::Nobody.admit(1000), Err(CLOSED));
        assert_eq!(Judge::Nobody.admit(ROOT), Ok(()));
    }

    #[test]
    fn root_may_do_all_but_execute_what_nobody_may() {
        let node = |kind, mode| Stat { mode, ..attr::unknown(kind, 2) };
        let all = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
        for (kind, mode, may) in [
            (Kind::File, 0o666, false),
            (Kind::File, 0o001, true),
            (Kind::Fifo, 0o666, false),
            (Kind::Dir, 0o000, true),
        ] {
            assert_eq!(root_may(&node(kind, mode), all).is_ok(), may, "{kind:?} {mode:o}");
            assert!(root_may(&node(kind, mode), all - AccessFlags::X_OK).is_ok());
        }
    }
}
