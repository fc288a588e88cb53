//! Process-wide settings for an open vault: resource limits, core dumps, the allocator, and wiping of
//! stacks.

use crypto::traces;
use parking_lot::Mutex;
use rustix::{
    fd::AsFd,
    io::fcntl_dupfd_cloexec,
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
};
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The kernel's descriptor table is enlarged to this many entries at the start, which takes 128 KiB. The
/// table doubles when it is full, and a process with several threads then waits for an RCU grace period:
/// 10 to 30 ms, and 100 ms while a GPU is being opened. No file can be opened or created meanwhile.
const DESCRIPTORS: i32 = 16 << 10;

/// Raises the number of descriptors as far as possible, because every open file and directory holds one:
/// to the hard limit, or to the system's limit if this process may exceed the hard one. Raises the limit
/// on file sizes as well, because the kernel applies the limit of the program that writes. Keeps keys
/// and plaintext out of core dumps, and makes the allocator return freed memory to the system. `open` is
/// any descriptor.
pub(super) fn prepare(open: impl AsFd) {
    raise_most_descriptors();
    let (files, sizes) = (getrlimit(Resource::Nofile), getrlimit(Resource::Fsize));
    let wishes = [
        (Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }),
        (Resource::Fsize, Rlimit { current: sizes.maximum, maximum: sizes.maximum }),
        (Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }),
    ];
    for (resource, limit) in wishes {
        if let Err(e) = setrlimit(resource, limit) {
            log::warn!("cannot change the limit {resource:?}: {e}");
        }
    }
    // A lower limit refuses this descriptor number. The table then grows as needed.
    drop(fcntl_dupfd_cloexec(open, DESCRIPTORS - 1));
    keep_little();
    if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("debuggers of the same user can still attach to the process: {e}");
    }
}

/// Raises the hard limit of descriptors to the system's maximum for a process. Only root may do so.
fn raise_most_descriptors() {
    let system =
        std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let limit = getrlimit(Resource::Nofile);
    if let (Some(system), Some(most)) = (system, limit.maximum)
        && system > most
    {
        // Fails without privilege.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.current, maximum: Some(system) });
    }
}

/// Limits that a mount must not inherit from the shell that starts it. Each would end the mount or make
/// it fail in the middle of other programs' work. The kernel applies each program's own limits to that
/// program.
const INHERITED: [(Resource, &str); 5] = [
    (Resource::Cpu, "CPU time"),
    (Resource::Fsize, "size of files"),
    (Resource::Data, "data"),
    (Resource::As, "memory"),
    (Resource::Nproc, "processes"),
];

/// Lifts the limits that a mount inherited, as far as this process may. Limits that remain are logged.
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
            log::warn!("cannot raise the limit of {name}: {e}");
        }
    }
}

/// Maximum number of descriptors of the process.
pub fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// Allocations of at least this many bytes are returned to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;
/// Number of heaps of the allocator. Each heap keeps the most that it ever held.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 4;

/// Makes the allocator keep little freed memory. By default it keeps several times the peak use, in as
/// many heaps as there are threads.
fn keep_little() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_ARENA_MAX, HEAPS)] {
        // SAFETY: sets a parameter of the allocator, which is allowed at any time.
        if unsafe { libc::mallopt(what, value) } == 0 {
            log::warn!("cannot change allocator setting {what}");
        }
    }
}

/// Returns freed memory to the system.
pub(super) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the allocator only releases unused pages.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Maximum depth in bytes that a stack is assumed to have been used to.
const STACK: usize = 256 << 10;
/// Time limit for all threads to wipe their stacks.
const WIPE_LIMIT: Duration = Duration::from_secs(2);
/// Number of threads that have wiped their stacks.
static WIPED: AtomicUsize = AtomicUsize::new(0);

/// Makes every thread wipe the unused part of its stack, where calls that have returned left keys and
/// content. Each thread does so in a signal handler, so it does not matter what the thread waits for.
/// For the handler the kernel stores the thread's vector registers, which code that used keys has
/// already cleared.
pub(super) fn wipe_stacks() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    traces::wipe();
    traces::wipe_stack::<STACK>();
    let signal = libc::SIGRTMIN() + 1;
    if let Err(e) = on_signal(signal) {
        return log::warn!("cannot wipe thread stacks: {e}");
    }
    WIPED.store(0, Ordering::SeqCst);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse::<libc::pid_t>().ok());
    let own = rustix::thread::gettid().as_raw_pid();
    let told = numbers.filter(|number| *number != own && tell_thread(*number, signal)).count();
    let end = Instant::now() + WIPE_LIMIT;
    while WIPED.load(Ordering::SeqCst) < told {
        if Instant::now() > end {
            return log::warn!("some threads did not wipe their stacks");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs on the thread's signal stack, which every thread of the standard library has. On the thread's
/// own stack the kernel would store the registers in the area to be wiped. It would also leave gaps
/// unwritten for vector registers that the processor lacks, 1600 bytes on many processors.
extern "C" fn wipe_on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let own = 0_u8;
    // SAFETY: the kernel passes the handler the state of the thread that it interrupted.
    let interrupted = unsafe { stack_pointer(context) };
    match interrupted.map(|pointer| (pointer.wrapping_byte_sub(STACK), pointer)) {
        Some((lowest, pointer)) if !(lowest..pointer).contains(&(&raw const own).cast_mut()) => {
            // SAFETY: this range is below the part of the stack that is in use. A stack is longer than
            // that, or grows. This handler runs on another stack.
            unsafe { lowest.wrapping_byte_sub(RED_ZONE).write_bytes(0, STACK) };
        }
        Some(_) | None => traces::wipe_stack::<STACK>(),
    }
    WIPED.fetch_add(1, Ordering::SeqCst);
}

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: usize = 128;

/// Stack pointer of the thread when it was interrupted. Known on x86-64 only.
///
/// # Safety
/// `context` must be what the kernel passed to a signal handler.
unsafe fn stack_pointer(context: *mut libc::c_void) -> Option<*mut u8> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: guaranteed by the caller.
        let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        Some(std::ptr::with_exposed_provenance_mut(registers[libc::REG_RSP as usize] as usize))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        None
    }
}

fn on_signal(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is valid. The handler touches nothing but unused parts of stacks
    // and a counter, and interrupted calls are restarted.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wipe_on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_SIGINFO;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends the signal to a thread of this process. Returns false if that failed.
fn tell_thread(number: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: passes numbers only. A thread that is gone gives an error.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id() as libc::pid_t, number, signal) == 0 }
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
