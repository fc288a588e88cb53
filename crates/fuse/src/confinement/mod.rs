//! Confinement: rights that a mount's process drops before it reads anything of a vault. That process holds
//! the keys, and for months it reads data that others may have written. Every thread and process that it
//! starts later inherits the restrictions. Commands that read a vault without a mount are confined in the
//! same way.
//!
//! A mount's process mounts and unmounts through `mounter`, which keeps its rights, as do the processes
//! started for a GPU.

mod calls;
mod files;

use self::calls::Caller;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use serde_json::{Value, json};
use std::{fs, io, os::fd::OwnedFd, sync::OnceLock};

/// Capabilities that a mount for several users needs. The process keeps those that it was started with.
const KEPT: CapabilitySet = CapabilitySet::CHOWN // New files belong to their creators.
    .union(CapabilitySet::DAC_OVERRIDE) // In the store, files have their owners' permissions.
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID) // Set-group-ID on files of other groups.
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_ADMIN) // Attributes in `trusted.`.
    .union(CapabilitySet::SYS_RESOURCE) // Limits, quotas, and the reserved blocks of a filesystem.
    .union(CapabilitySet::IPC_LOCK) // Locks keys in memory, so that they are not swapped out.
    .union(CapabilitySet::SYS_NICE); // Priority of threads that serve requests.

/// Needed under `hidepid` to read the groups of calling processes.
const SEES_PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE;

static IN_FORCE: OnceLock<Confinement> = OnceLock::new();

/// The rights that a process has dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// No program that it starts gets more rights than it has (`no_new_privs`).
    pub no_new_privileges: bool,
    /// The remaining capabilities, by name without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// The Landlock version that restricts files and the network.
    pub landlock: Option<i32>,
    /// Whether a filter denies system calls that it does not need (seccomp).
    pub seccomp: bool,
}

/// Files that the process opens after it is confined, besides the kernel's own in /proc and /sys.
#[derive(Debug, Default)]
pub struct Reach {
    /// Directories below which it reads.
    pub seen: Vec<OwnedFd>,
    /// Directories below which it may do anything but run programs.
    pub directories: Vec<OwnedFd>,
    /// Directories in which it creates files, and reads and writes existing ones.
    pub places: Vec<OwnedFd>,
    /// Directories in which it replaces or removes a file without reading it.
    pub replaced: Vec<OwnedFd>,
    /// Files that it reads and writes.
    pub files: Vec<OwnedFd>,
    /// Whether it serves requests of other processes, whose groups it reads in /proc.
    pub serves: bool,
    /// Whether it sets file capabilities (`security.capability`).
    pub sets_capabilities: bool,
    /// Whether it uses io_uring.
    pub rings: bool,
}

impl Confinement {
    /// JSON form, as `stat` shows it.
    pub fn json(&self) -> Value {
        json!({
            "no_new_privileges": self.no_new_privileges,
            "capabilities": self.capabilities,
            "landlock": self.landlock,
            "seccomp": self.seccomp,
        })
    }
}

/// The confinement of this process; `None` before [`confine`].
pub fn in_force() -> Option<&'static Confinement> {
    IN_FORCE.get()
}

/// Drops all rights outside `reach`, for the calling thread and everything it starts from here on.
/// Returns the rights that could not be dropped, each as the rest of a sentence about the process.
#[must_use]
pub fn confine(reach: &Reach) -> Vec<String> {
    let mut left = Vec::new();
    let no_new_privileges = set_no_new_privs(true)
        .inspect_err(|e| left.push(format!("can start programs with more privileges than its own: {e}")))
        .is_ok();
    // With `hidepid`, /proc shows only processes that may be traced, and Landlock forbids tracing any
    // process outside it.
    let hidden = reach.serves && hides_processes();
    if let Err(e) = drop_capabilities(kept(reach, hidden)) {
        left.push(format!("retains capabilities that it does not need: {e}"));
    }
    let landlock = restrict_files(reach, hidden)
        .inspect_err(|e| left.push(format!("can open every file that its user can: {e}")))
        .ok();
    let seccomp = calls::restrict(Caller::Vault { rings: reach.rings })
        .inspect_err(|e| left.push(format!("can make any system call: {e}")))
        .is_ok();
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let capabilities = permitted.iter_names().map(|(name, _)| name).collect();
    // A process is confined once.
    let _ = IN_FORCE.set(Confinement { no_new_privileges, capabilities, landlock, seccomp });
    left
}

/// Denies every thread of this process, which uses a GPU, the system calls that it does not need and any
/// additional rights. A failure is logged.
pub fn refuse_calls() {
    if let Err(e) = calls::restrict(Caller::Gpu) {
        log::warn!("the process is not restricted in its system calls: {e}");
    }
}

fn restrict_files(reach: &Reach, hidden: bool) -> Result<i32, String> {
    if hidden {
        return Err(
            "Landlock would hide the processes that make requests, because /proc is mounted with hidepid"
                .to_owned(),
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
        // Refused to ordinary users, who have no capabilities to begin with.
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

/// Whether /proc shows a process only those processes that it may trace (`hidepid`). The groups of
/// calling processes are read there.
fn hides_processes() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(hides)
}

/// Whether a line of the mount table mounts /proc with `hidepid`.
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
