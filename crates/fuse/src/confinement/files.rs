//! Restricts the files that a confined process may open, and denies it the network: Landlock.

use super::{
    super::settings::{MOST_PAGES, READ_AHEADS, RINGS},
    Reach,
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use std::os::fd::AsFd;

/// Minimum ABI. The previous version denies every rename between directories.
const OLDEST: ABI = ABI::V2;
/// Maximum ABI. Rights introduced later are not restricted.
const NEWEST: ABI = ABI::V6;

const READING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

/// Kernel information about threads, mounts, memory and processors.
const READ: [&str; 3] = ["/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu"];
/// The settings that root's mounts raise.
const RAISED: [&str; 3] = [MOST_PAGES, RINGS, READ_AHEADS];
/// Each event loop reopens the first device; the second replaces the terminal.
const DEVICES: [&str; 2] = ["/dev/fuse", "/dev/null"];

/// Denies the calling thread, and all threads and processes it starts from here on, every file outside
/// `reach` and the kernel's files listed above. Returns the Landlock version in force.
///
/// # Errors
/// If the kernel does not support the minimum version.
pub fn restrict(reach: &Reach) -> Result<i32, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        // Signals are not restricted: a process that uses a GPU is outside this confinement, and is
        // killed by a signal.
        .scope(Scope::AbstractUnixSocket)?
        .create()?;
    for dir in &reach.seen {
        rules = rules.add_rule(PathBeneath::new(dir, READING))?;
    }
    for dir in &reach.directories {
        rules = rules.add_rule(PathBeneath::new(dir, AccessFs::from_all(NEWEST) & !AccessFs::Execute))?;
    }
    for file in &reach.files {
        rules = rules.add_rule(PathBeneath::new(file, write()))?;
    }
    for dir in &reach.places {
        rules = rules.add_rule(PathBeneath::new(dir, write() | AccessFs::ReadDir | AccessFs::MakeReg))?;
    }
    for dir in &reach.replaced {
        let replaces = make_bitflags!(AccessFs::{WriteFile | MakeReg | RemoveFile});
        rules = rules.add_rule(PathBeneath::new(dir, replaces))?;
    }
    rules = allow(rules, &READ, READING)?;
    rules = allow(rules, &RAISED, write())?;
    rules = allow(rules, &DEVICES, write() | AccessFs::IoctlDev)?;
    match rules.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as i32),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => Ok(0),
    }
}

/// Rights to read and write existing files.
fn write() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})
}

/// Grants `access` to each path that exists.
fn allow(
    rules: RulesetCreated,
    paths: &[&str],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let present = paths.iter().filter_map(|path| PathFd::new(path).ok());
    present.into_iter().try_fold(rules, |rules, path| rules.add_rule(PathBeneath::new(path.as_fd(), access)))
}
