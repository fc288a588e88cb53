//! Who judges by permission bits: the kernel, or nobody where they bind nobody.
//!
//! With its option `default_permissions` the kernel judges by the attributes that it holds. After each name that
//! is made or removed it holds none of the directory and asks for them, one more request for each name. On a
//! mount that only root may enter this is for nothing: permission bits do not bind root, and all else is
//! decided without that option too (who enters at all, the sticky bit, whether a program may be executed,
//! the flags of the mount). So such a mount goes without.
//!
//! For anybody else the kernel has to judge. It follows a name that it holds without asking here, so nothing
//! here could keep a process from passing through a directory that was closed since; and it does not say
//! which groups a process is in.

use super::errno::{self, Answer, CLOSED};
use crate::vault::{Kind, Result, Stat};
use fuser::AccessFlags;
use rustix::thread::{CapabilitySet, capabilities};

/// By this name the option is asked for and handed to the kernel.
pub const DEFAULT_PERMISSIONS: &str = "default_permissions";

/// The only user of a mount on which nobody judges.
const ROOT: u32 = 0;
/// What a process sees in `/proc/self/uid_map` whose users are the system's own.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
const EXECUTE: u32 = 0o111;

/// Who judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// The kernel, for whoever it lets in.
    Kernel,
    /// Nobody: only root is let in.
    Nobody,
}

impl Judge {
    /// Who judges on a mount by this process with these `flags`.
    pub fn on_mount(allow_other: bool, flags: &[String]) -> Judge {
        let asked = flags.iter().any(|flag| flag == DEFAULT_PERMISSIONS);
        if allow_other || asked || !is_unbound() { Judge::Kernel } else { Judge::Nobody }
    }

    /// Lets `user` reach nodes by their names. The kernel has compared all other ids of the process: what it
    /// does not compare is the one for files, which a server of files sets to that of its client.
    pub fn admit(self, user: u32) -> Answer<()> {
        if self == Judge::Nobody && user != ROOT { Err(CLOSED) } else { Ok(()) }
    }
}

/// What access(2) and chdir(2) tell root; asked only where nobody judges. What nobody may execute, root may
/// not execute either.
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
    fn the_kernel_judges_wherever_others_get_in_or_it_is_asked_to() {
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
