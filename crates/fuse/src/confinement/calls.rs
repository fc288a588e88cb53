//! System calls that a confined process may not make: a seccomp filter.
//!
//! It is a deny list, not an allow list: libraries make different calls with each version, and a mount
//! must not fail because of that.

use libc::{AF_UNIX, CLONE_THREAD, ENOSYS, EPERM, TIOCLINUX, TIOCSTI, c_int, c_long, c_ulong};
use rustix::thread::set_no_new_privs;
use seccompiler::{
    BpfProgram, Error, SeccompAction,
    SeccompCmpArgLen::Dword,
    SeccompCmpOp::{Eq, MaskedEq, Ne},
    SeccompCondition, SeccompFilter, SeccompRule, sock_filter,
};
use std::{collections::BTreeMap, env::consts::ARCH, io};

/// Calls that start programs, access other processes, change mounts or path resolution, load code into
/// the kernel, use frequently attacked kernel interfaces, change the machine's clock, names or swap, or
/// open a file without its path.
const REFUSED: [c_long; 48] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

/// First call number of x32, whose calls have numbers that the filter does not know. Other architectures
/// have no calls in that range.
const X32: u32 = 0x4000_0000;

/// The process that a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A process that reads a vault.
    Vault {
        /// Whether it uses io_uring, which can create sockets that no filter sees.
        rings: bool,
    },
    /// A process that uses a GPU, whose driver may connect to a service.
    Gpu,
}

/// Denies these calls with EPERM, and all sockets except local (Unix) ones, to all threads from here on.
/// A process that reads a vault also cannot start processes or connect a socket.
///
/// # Errors
/// If the kernel does not support such filters.
pub fn restrict(caller: Caller) -> io::Result<()> {
    install(&program(caller).map_err(io::Error::other)?, libc::SECCOMP_FILTER_FLAG_TSYNC)
}

/// Installs the filter. `scope` is the flag that applies it to all threads, or 0 for the calling one.
fn install(program: &BpfProgram, scope: c_ulong) -> io::Result<()> {
    // Without this flag, kernels before 5.16 disable speculation for filtered processes, which slows
    // ciphers down. That protects against foreign code in the same process, and there is none.
    let flags = scope | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    set_no_new_privs(true)?; // Otherwise only root may install a filter.
    let len = program.len().try_into().map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies `len` instructions, which have the layout it expects, and keeps no
    // address.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

fn program(caller: Caller) -> Result<BpfProgram, Error> {
    let when = |argument, op, value: c_int| {
        let condition = SeccompCondition::new(argument, Dword, op, u64::from(value.cast_unsigned()))?;
        SeccompRule::new(vec![condition])
    };
    let always = |calls: &[c_long]| calls.iter().map(|call| (*call, Vec::new())).collect::<Vec<_>>();
    let mut rules: BTreeMap<_, _> = always(&REFUSED).into_iter().collect();
    rules.insert(libc::SYS_socket, vec![when(0, Ne, AF_UNIX)?]);
    // These requests type into the terminal from which a foreground mount was started.
    let typing = [TIOCSTI, TIOCLINUX].map(|request| when(1, Eq, request as c_int));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    match caller {
        Caller::Gpu => rules.extend(always(&[libc::SYS_io_uring_setup])),
        Caller::Vault { rings } => {
            rules.insert(libc::SYS_clone, vec![when(0, MaskedEq(CLONE_THREAD as u64), 0)?]);
            rules.extend(always(&[libc::SYS_connect]));
            #[cfg(target_arch = "x86_64")]
            rules.extend(always(&[libc::SYS_fork, libc::SYS_vfork]));
            if !rings {
                rules.extend(always(&[libc::SYS_io_uring_setup]));
            }
        }
    }
    let refused = SeccompAction::Errno(EPERM.cast_unsigned());
    let filter: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.try_into()?)?.try_into()?;
    Ok([first(caller), filter].concat())
}

/// Checks that precede the rules. clone3(2) fails with ENOSYS, because its arguments are in memory, where
/// no filter can see them. Libraries then use clone(2) for their threads.
fn first(caller: Caller) -> BpfProgram {
    /// `BPF_LD | BPF_W | BPF_ABS`: loads a field of the call; the call number is the first.
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JGE | BPF_K` and `BPF_JMP | BPF_JEQ | BPF_K`: skip `jf` instructions if the
    /// comparison is false.
    const AT_LEAST: u16 = 0x35;
    const EQUAL: u16 = 0x15;
    /// `BPF_RET | BPF_K`: returns an action.
    const RETURN: u16 = 0x06;
    let step = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let skip_unless = |code, k| sock_filter { code, jt: 0, jf: 1, k };
    let errno = |number: c_int| step(RETURN, libc::SECCOMP_RET_ERRNO | number.cast_unsigned());
    let mut steps = vec![step(LOAD, 0), skip_unless(AT_LEAST, X32), errno(EPERM)];
    if caller != Caller::Gpu {
        steps.extend([skip_unless(EQUAL, libc::SYS_clone3 as u32), errno(ENOSYS)]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        net::{AddressFamily, SocketType},
        stdio::stdin,
    };
    use std::{os::fd::AsRawFd, thread};

    /// The error of a call with all arguments zero. Every such call is refused or fails.
    fn error_of(call: c_long) -> Option<c_int> {
        // SAFETY: with zero arguments, none of the calls below accesses memory.
        let result = unsafe { libc::syscall(call, 0, 0, 0, 0, 0, 0) };
        (result == -1).then(|| io::Error::last_os_error().raw_os_error()).flatten()
    }

    /// Runs `test` on a thread, and confines only that thread.
    fn confined(caller: Caller, test: impl FnOnce() + Send) {
        thread::scope(|scope| {
            scope.spawn(|| {
                install(&program(caller).unwrap(), 0).unwrap();
                test();
            });
        });
    }

    #[test]
    fn what_reads_a_vault_is_refused_processes_and_connections_and_keeps_threads() {
        confined(Caller::Vault { rings: false }, || {
            for call in [libc::SYS_execve, libc::SYS_connect, libc::SYS_ptrace, libc::SYS_io_uring_setup] {
                assert_eq!(error_of(call), Some(EPERM), "{call}");
            }
            assert_eq!(error_of(libc::SYS_clone3), Some(ENOSYS));
            assert_eq!(thread::spawn(|| error_of(libc::SYS_execve)).join().unwrap(), Some(EPERM));
            // Without the flags of a thread.
            assert_eq!(error_of(libc::SYS_clone), Some(EPERM));
            #[cfg(target_arch = "x86_64")]
            assert_eq!(error_of(libc::SYS_fork), Some(EPERM));
        });
    }

    #[test]
    fn both_are_refused_the_calls_of_x32_other_networks_and_typing() {
        for caller in [Caller::Vault { rings: true }, Caller::Gpu] {
            confined(caller, || {
                if cfg!(target_arch = "x86_64") {
                    // Unfiltered, a kernel without x32 would return ENOSYS.
                    assert_eq!(error_of(c_long::from(X32) | libc::SYS_getpid), Some(EPERM));
                }
                let socket = |family| rustix::net::socket(family, SocketType::DGRAM, None).map(drop);
                assert_eq!(socket(AddressFamily::INET), Err(rustix::io::Errno::PERM));
                assert_eq!(socket(AddressFamily::NETLINK), Err(rustix::io::Errno::PERM));
                assert_eq!(socket(AddressFamily::UNIX), Ok(()));
                let typed = |request| {
                    // SAFETY: the kernel reads one byte.
                    let result = unsafe { libc::ioctl(stdin().as_raw_fd(), request, &c"x") };
                    (result == -1).then(|| io::Error::last_os_error().raw_os_error()).flatten()
                };
                assert_eq!(typed(TIOCSTI), Some(EPERM));
            });
        }
    }

    #[test]
    fn a_process_of_a_gpu_may_connect_and_has_no_io_uring() {
        confined(Caller::Gpu, || {
            assert_ne!(error_of(libc::SYS_connect), Some(EPERM));
            assert_eq!(error_of(libc::SYS_io_uring_setup), Some(EPERM));
        });
    }
}
