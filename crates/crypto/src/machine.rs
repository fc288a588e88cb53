//! Available memory, to refuse a password hash that would need too much of it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// Argon2id may use this fraction of the memory: 1 / `PART`.
const PART: u64 = 2;

/// Name of the memory controller in cgroup v1.
const MEMORY: &str = "memory";

/// Whether the user has lifted the limit.
static ANY: AtomicBool = AtomicBool::new(false);

/// A key slot requests more memory than this machine can spare. A hostile configuration can do that,
/// because it is not authenticated yet.
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

/// Lifts the limit on Argon2id's memory for the rest of this process.
pub fn allow_any_memory() {
    ANY.store(true, Ordering::Relaxed);
}

/// Whether the limit on Argon2id's memory was lifted.
pub fn any_memory_is_allowed() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Refuses a request for more than the allowed fraction of memory. Accepts any if the size of memory is
/// unknown or the limit was lifted.
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

/// Available memory in KiB: the lowest of the machine's total and the limits of this process's cgroups and
/// their parents.
fn memory() -> Option<u64> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let limits = limits(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    let limits = limits.into_iter().filter_map(|file| limit(&fs::read_to_string(file).ok()?));
    limits.chain(total(&read("/proc/meminfo"))).min()
}

/// `MemTotal` of /proc/meminfo, in KiB.
fn total(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok())
}

/// The files with memory limits, according to /proc/self/cgroup and /proc/self/mountinfo: those of cgroup
/// v2, and those of the memory controller of v1.
fn limits(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let of_group = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (kind, controller, file) = match controllers {
            "" => ("cgroup2", None, "memory.max"),
            list if list.split(',').any(|one| one == MEMORY) => {
                ("cgroup", Some(MEMORY), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let (root, top) = mounts.lines().find_map(|line| mounted(line, kind, controller))?;
        // A group outside the mounted part, as in a container, is visible as the root of the mount.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        Some(below.ancestors().map(|dir| Path::new(top).join(dir).join(file)).collect::<Vec<_>>())
    };
    groups.lines().filter_map(of_group).flatten().collect()
}

/// The part of a cgroup hierarchy that a line of the mount table mounts, and its mount point. `None` if the
/// line is for another filesystem, or lacks the controller.
fn mounted<'a>(line: &'a str, kind: &str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let (mut mount, mut filesystem) = (mount.split(' ').skip(3), filesystem.split(' '));
    let is_kind = filesystem.next() == Some(kind);
    let options = filesystem.nth(1)?;
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    let place = (mount.next()?, mount.next()?);
    (is_kind && controller.is_none_or(has)).then_some(place)
}

/// Converts a limit from bytes to KiB; `None` if it is not a number ("max").
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
        assert_eq!([limit("max\n"), limit("1073741824\n")], [None, Some(1 << 20)]);
        assert!(memory().is_some_and(|kib| kib > 1 << 10));
    }

    #[test]
    fn limits_are_those_of_both_versions_of_cgroups() {
        let v2 = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let v1 = "30 23 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct
            31 23 0:28 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
            .replace("            ", "");
        let found = |groups, mounts: &str| -> Vec<String> {
            limits(groups, mounts).iter().map(|file| file.display().to_string()).collect()
        };
        let [top, above] = ["", "user.slice/"].map(|dir| format!("/sys/fs/cgroup/{dir}memory.max"));
        let own = "/sys/fs/cgroup/user.slice/b/memory.max".to_owned();
        assert_eq!(found("0::/user.slice/b\n", v2), [own, above, top]);
        let [top, own] = ["", "b/"].map(|dir| format!("/sys/fs/cgroup/memory/{dir}memory.limit_in_bytes"));
        assert_eq!(found("5:cpu,cpuacct:/\n4:memory:/docker/a/b\n", &v1), [own, top.clone()]);
        assert_eq!(found("4:hugetlb,memory:/other\n0::/\n", &v1), [top]);
        assert_eq!(found("4:memory:/a\n", v2), [""; 0]);
    }
}
