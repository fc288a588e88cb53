//! The rights that the process behind a mount gives up before it reads anything of a vault: it holds the keys, and reads what
//! others may have written, for months. Every thread and process that it starts later inherits what is given up. Commands that
//! read a vault without a mount do the same.
//!
//! A mount's process mounts and unmounts through `mounter`, which keeps its rights, and so does what is started for a GPU.

mod calls;
mod files;

use self::calls::Caller;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use serde_json::{Value, json};
use std::{fs, io, os::fd::OwnedFd, sync::OnceLock};

/// The capabilities that a mount for several users needs, of those that it was started with.
const KEPT: CapabilitySet = CapabilitySet::CHOWN // Files belong to who made them.
    .union(CapabilitySet::DAC_OVERRIDE) // They are in the store as their owners keep them.
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID) // Set-group-ID on what belongs to another group.
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_ADMIN) // Attributes in `trusted.`.
    .union(CapabilitySet::SYS_RESOURCE) // Limits, quotas, and the blocks that a filesystem holds back.
    .union(CapabilitySet::IPC_LOCK) // Keys stay out of swap.
    .union(CapabilitySet::SYS_NICE); // Priority of threads that serve requests.

/// With `hidepid`, the groups of those who make requests are read with it.
const SEES_PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE;

static IN_FORCE: OnceLock<Confinement> = OnceLock::new();

/// The rights that a process has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// No program that it starts gets more rights than it has (`no_new_privs`).
    pub no_new_privileges: bool,
    /// The capabilities that it has left, by their names without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// The version of Landlock that keeps files and the network from it.
    pub landlock: Option<i32>,
    /// A filter refuses system calls that it does not need (seccomp).
    pub seccomp: bool,
}

/// Files that the process opens after it is confined, besides the kernel's own in /proc and /sys.
#[derive(Debug, Default)]
pub struct Reach {
    /// Directories below which it reads.
    pub seen: Vec<OwnedFd>,
    /// Directories below which it does anything but run programs.
    pub directories: Vec<OwnedFd>,
    /// Directories in which it makes files, and reads and writes those that are there.
    pub places: Vec<OwnedFd>,
    /// Directories in which it replaces or removes a file without reading it.
    pub replaced: Vec<OwnedFd>,
    /// Files that it reads and writes.
    pub files: Vec<OwnedFd>,
    /// It serves requests of other processes, whose groups it reads in /proc.
    pub serves: bool,
    /// It gives files capabilities, as `security.capability`.
    pub sets_capabilities: bool,
    /// It uses io_uring.
    pub rings: bool,
}

impl Confinement {
    /// As `stat` shows it.
    pub fn json(&self) -> Value {
        json!({
            "no_new_privileges": self.no_new_privileges,
            "capabilities": self.capabilities,
            "landlock": self.landlock,
            "seccomp": self.seccomp,
        })
    }
}

/// Of this process; `None` before [`confine`].
pub fn in_force() -> Option<&'static Confinement> {
    IN_FORCE.get()
}

/// Gives up rights, for the thread that calls and all that it starts from here on: all but `reach`. Returns what could not be given
/// up, as the rest of a sentence about the process.
#[must_use]
pub fn confine(reach: &Reach) -> Vec<String> {
    let mut left = Vec::new();
    let no_new_privileges = set_no_new_privs(true)
        .inspect_err(|e| left.push(format!("may start programs with more rights than it has: {e}")))
        .is_ok();
    // With `hidepid` /proc shows only processes that may be traced, and with Landlock no other one may.
    let hidden = reach.serves && hides_processes();
    if let Err(e) = drop_capabilities(kept(reach, hidden)) {
        left.push(format!("keeps capabilities that it does not need: {e}"));
    }
    let landlock = restrict_files(reach, hidden)
        .inspect_err(|e| left.push(format!("may open every file that its user may: {e}")))
        .ok();
    let seccomp = calls::restrict(Caller::Vault { rings: reach.rings })
        .inspect_err(|e| left.push(format!("may make every system call: {e}")))
        .is_ok();
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let capabilities = permitted.iter_names().map(|(name, _)| name).collect();
    let _ = IN_FORCE.set(Confinement { no_new_privileges, capabilities, landlock, seccomp }); // A process is confined once.
    left
}

/// Refuses to every thread of this process, which uses a GPU, the system calls that it does not need, and to get more rights. What
/// cannot be refused is logged.
pub fn refuse_calls() {
    if let Err(e) = calls::restrict(Caller::Gpu) {
        log::warn!("the process may make every system call: {e}");
    }
}

fn restrict_files(reach: &Reach, hidden: bool) -> Result<i32, String> {
    if hidden {
        return Err(
            "Landlock would hide those whose requests it serves: /proc is mounted with hidepid".to_owned()
        );
    }
    files::restrict(reach).map_err(|e| format!("Landlock, since Linux 5.19: {e}"))
}

fn kept(reach: &Reach, hidden: bool) -> CapabilitySet {
    let mut kept = KEPT;
    kept.set(SEES_PROCESSES, hidden);
    kept.set(CapabilitySet::SETFCAP, reach.sets_capabilities);
    kept
}

fn drop_capabilities(kept: CapabilitySet) -> io::Result<()> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Refused to ordinary users, who have none to begin with.
        let _ = remove_capability_from_bounding_set(capability);
    }
    // A kernel before 4.3 has no such set.
    let _ = clear_ambient_capability_set();
    let now = capabilities(None)?;
    let effective = now.effective.intersection(kept);
    let permitted = now.permitted.intersection(kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

/// Whether /proc shows a process only those that it may trace (`hidepid`). The groups of who makes a request are read there.
fn hides_processes() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(hides)
}

/// The same for a line of the mount table.
fn hides(line: &str) -> bool {
    let mut fields = line.split(' ').skip(1);
    let (target, kind, options) = (fields.next(), fields.next(), fields.next().unwrap_or_default());
    let hidden =
        |option: &str| option.strip_prefix("hidepid=").is_some_and(|how| !["0", "off"].contains(&how));
    (target, kind) == (Some("/proc"), Some("proc")) && options.split(',').any(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_that_hides_processes_is_told_by_its_options() {
        for (line, hidden) in [
            ("proc /proc proc rw,nosuid,hidepid=invisible 0 0", true),
            ("proc /proc proc rw,hidepid=2,gid=5 0 0", true),
            ("proc /proc proc rw,hidepid=off 0 0", false),
            ("proc /proc proc rw,relatime 0 0", false),
            ("x /mnt fuse rw,hidepid=2 0 0", false),
        ] {
            assert_eq!(hides(line), hidden, "{line}");
        }
    }
}
