//! What an open vault asks of its process.

use rustix::{
    fd::AsFd,
    io::fcntl_dupfd_cloexec,
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
};

/// The kernel's table of descriptors is made this large at the start: 128 KiB. It doubles when it is full, for which
/// a process with several threads waits until each processor has been out of the kernel once (RCU): 10 to 30 ms, and
/// 100 while a GPU is being opened. Nobody opens or makes a file meanwhile.
const DESCRIPTORS: i32 = 16 << 10;

/// Raises the number of descriptors as far as it goes (every open file and directory holds one), and the size
/// of files (the kernel holds who writes to the limit of theirs); keeps keys and plaintext out of core dumps,
/// and freed memory out of the process. `open` is any descriptor.
pub(super) fn prepare(open: impl AsFd) {
    let (files, sizes) = (getrlimit(Resource::Nofile), getrlimit(Resource::Fsize));
    let wishes = [
        (Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }),
        (Resource::Fsize, Rlimit { current: sizes.maximum, maximum: sizes.maximum }),
        (Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }),
    ];
    for (resource, limit) in wishes {
        if let Err(e) = setrlimit(resource, limit) {
            log::warn!("limit {resource:?} stays as it is: {e}");
        }
    }
    // A lower limit refuses the number: then the table grows as it is needed.
    drop(fcntl_dupfd_cloexec(open, DESCRIPTORS - 1));
    keep_little();
    if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("the process stays open to debuggers of its own user: {e}");
    }
}

/// Limits that a mount is not to inherit from the shell that starts it: each would end it, or make it fail, in the midst of
/// other programs' work. The kernel holds those to their own limits.
const INHERITED: [(Resource, &str); 5] = [
    (Resource::Cpu, "CPU time"),
    (Resource::Fsize, "size of files"),
    (Resource::Data, "data"),
    (Resource::As, "memory"),
    (Resource::Nproc, "processes"),
];

/// Lifts the limits that a mount inherited, as far as this process may. The log names what stays.
pub fn lift_limits() {
    for (resource, name) in INHERITED {
        let inherited = getrlimit(resource);
        if inherited.current.is_none() {
            continue;
        }
        let unlimited = Rlimit { current: None, maximum: None };
        let most = Rlimit { current: inherited.maximum, maximum: inherited.maximum };
        let lifted = setrlimit(resource, unlimited).or_else(|_| setrlimit(resource, most));
        if let Some(left) = getrlimit(resource).current.filter(|_| resource != Resource::Nproc) {
            log::warn!("the mount is limited in {name} to {left} (ulimit -H); only root may lift that");
        }
        if let Err(e) = lifted {
            log::warn!("the limit of {name} stays as it is: {e}");
        }
    }
}

/// How many descriptors the process may have.
pub fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// Allocations of so many bytes are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;
/// Heaps of the allocator: each keeps the most that it ever held.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 4;

/// Has the allocator keep little of what is freed. By itself it keeps several times the most that was ever in
/// use, in as many heaps as there are threads.
fn keep_little() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_ARENA_MAX, HEAPS)] {
        // SAFETY: sets a number of the allocator, which may be done at any time.
        if unsafe { libc::mallopt(what, value) } == 0 {
            log::warn!("the allocator keeps its setting {what}");
        }
    }
}

/// Gives memory that was freed back to the system.
pub(super) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the allocator releases pages that hold nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_is_large_from_the_start() {
        prepare(std::io::stderr());
        let status = std::fs::read_to_string("/proc/self/status").expect("a process");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse::<i32>().ok());
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(size >= Some(DESCRIPTORS) || most < DESCRIPTORS as u64, "{size:?} of {most}");
    }
}
