//! Selects the judge of permission bits: the kernel, or none if they have no effect.
//!
//! With its option `default_permissions` the kernel checks the attributes that it has cached. Whenever a
//! name is created or removed, it drops those of the directory and requests them again, which costs one
//! more request per name. On a mount that only root may access this has no benefit. Permission bits do
//! not bind root, and the kernel decides everything else without that option, too (access to the mount,
//! the sticky bit, whether a program may be executed, mount flags). So such a mount does without the
//! option.
//!
//! For other users the kernel must check. It follows cached names without a request, so the mount could
//! not keep a process out of a directory whose permissions were revoked since. It also does not tell
//! which groups a process belongs to.

use super::errno::{self, Answer, CLOSED};
use content::Result;
use fuser::AccessFlags;
use rustix::thread::{CapabilitySet, capabilities};
use vault::{Kind, Stat};

/// The option's name, for users and for the kernel.
pub const DEFAULT_PERMISSIONS: &str = "default_permissions";

/// The only user admitted to a mount without permission checks.
const ROOT: u32 = 0;
/// `/proc/self/uid_map` in the initial user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
const EXECUTE: u32 = 0o111;

/// The judge of permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionPolicy {
    /// The kernel checks every user that it admits.
    Kernel,
    /// No checks: only root is admitted.
    Nobody,
}

impl PermissionPolicy {
    /// Chooses the judge for a mount by this process with these `flags`.
    pub fn on_mount(allow_other: bool, flags: &[String]) -> PermissionPolicy {
        let asked = flags.iter().any(|flag| flag == DEFAULT_PERMISSIONS);
        if allow_other || asked || !is_unbound() {
            PermissionPolicy::Kernel
        } else {
            PermissionPolicy::Nobody
        }
    }

    /// Decides whether `user` may reach nodes by name. The kernel has checked all other user IDs of the
    /// process, but not its filesystem user ID, which a file server sets to that of its client.
    pub fn admit(self, user: u32) -> Answer<()> {
        if self == PermissionPolicy::Nobody && user != ROOT { Err(CLOSED) } else { Ok(()) }
    }
}

/// Answers access(2) and chdir(2) for root on a mount without permission checks. Root may not execute a
/// file that has no execute bit.
///
/// # Errors
/// EACCES.
pub fn root_may(node: &Stat, wanted: AccessFlags) -> Result<()> {
    let executes = wanted.contains(AccessFlags::X_OK) && node.kind != Kind::Dir;
    if executes && node.mode & EXECUTE == 0 { Err(errno::no_access()) } else { Ok(()) }
}

/// Whether permission bits do not bind this process. True for root in the initial user namespace with the
/// capability to override them.
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
        assert_eq!(PermissionPolicy::on_mount(true, &[]), PermissionPolicy::Kernel);
        assert_eq!(PermissionPolicy::on_mount(false, &flags), PermissionPolicy::Kernel);
        assert_eq!(PermissionPolicy::Kernel.admit(1000), Ok(()));
        assert_eq!(PermissionPolicy::Nobody.admit(1000), Err(CLOSED));
        assert_eq!(PermissionPolicy::Nobody.admit(ROOT), Ok(()));
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
