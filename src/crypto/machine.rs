//! How much memory this process may use, for refusing a password hash that would take too much of it.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// Argon2id gets at most this part of the memory.
const PART: u64 = 2;

/// Whether the user said that more is all right.
static ANY: AtomicBool = AtomicBool::new(false);

/// A key slot asks for more memory than this machine can spare. A hostile configuration may, before anything authenticates it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a key slot asks for {} MiB of memory, more than half of the {} MiB that this machine or its cgroup has: if you made it so, use --any-kdf-memory", .needed >> 10, .total >> 10
)]
pub struct TooMuchMemory {
    /// In KiB.
    needed: u64,
    /// In KiB.
    total: u64,
}

/// Lets Argon2id take any memory, for the rest of this process.
pub fn allow_any_memory() {
    ANY.store(true, Ordering::Relaxed);
}

/// Whether Argon2id may take any memory.
pub fn any_memory_is_allowed() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Refuses what is more than a part of the machine's memory. If that is unknown, nothing is.
///
/// # Errors
/// `TooMuchMemory`.
pub fn check_memory(kib: u32) -> Result<(), TooMuchMemory> {
    match memory().filter(|_| !any_memory_is_allowed()) {
        Some(total) => check(kib.into(), total),
        None => Ok(()),
    }
}

fn check(needed: u64, total: u64) -> Result<(), TooMuchMemory> {
    if needed <= total / PART { Ok(()) } else { Err(TooMuchMemory { needed, total }) }
}

/// In KiB: what the machine has, or what its cgroup and those above it leave.
fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total);
    let group = fs::read_to_string("/proc/self/cgroup").ok().as_deref().and_then(unified).map(str::to_owned);
    let groups = group.iter().flat_map(|group| Path::new(group).ancestors());
    let limits = groups.filter_map(|group| {
        let dir = Path::new("/sys/fs/cgroup").join(group.strip_prefix("/").unwrap_or(group));
        limit(&fs::read_to_string(dir.join("memory.max")).ok()?)
    });
    limits.chain(machine).min()
}

/// `MemTotal` of /proc/meminfo, in KiB.
fn total(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok())
}

/// The path of the unified hierarchy in /proc/self/cgroup.
fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// A limit of `memory.max`, in KiB; `None` if there is none.
fn limit(text: &str) -> Option<u64> {
    Some(text.trim().parse::<u64>().ok()? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_the_memory_is_refused() {
        assert_eq!(check(512, 1024), Ok(()));
        assert_eq!(check(513, 1024), Err(TooMuchMemory { needed: 513, total: 1024 }));
        assert!(check(4 << 20, 4 << 20).is_err(), "4 GiB of 4 GiB");
    }

    #[test]
    fn the_kernels_files_are_understood() {
        assert_eq!(total("MemTotal:       24683520 kB\nMemFree: 1 kB\n"), Some(24_683_520));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(unified("4:memory:/a\n0::/user.slice/b\n"), Some("/user.slice/b"));
        assert_eq!([limit("max\n"), limit("1073741824\n")], [None, Some(1 << 20)]);
        assert!(memory().is_some_and(|kib| kib > 1 << 10));
    }
}
