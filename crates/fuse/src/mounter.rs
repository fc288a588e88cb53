//! The process that mounts and unmounts on behalf of a mount's process, which has dropped the rights to
//! do so.
//!
//! It reads only its arguments and orders of a few bytes, holds no key, and ends when the mount's process
//! does. It mounts once, on the directory that it was started with, and unmounts only that mount. The
//! processes that use GPUs are also its children, because the driver needs more rights than the mount
//! has.

use super::{
    device::{self, FuseDevice},
    handing::{receive, send},
    permission_policy::PermissionPolicy,
    place::MountPoint,
};
use parking_lot::Mutex;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::setsid,
};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Stdio},
};

/// The hidden command that starts this process.
pub const COMMAND: &str = "mounter";
/// Maximum length of an answer in bytes: a number and a text.
const ANSWER_MAX: usize = 4096;
/// Length of the number that precedes the text, in bytes.
const NUMBER: usize = size_of::<i32>();
/// An error without an errno.
const OTHER: i32 = -1;
/// fusermount3, the helper for users other than root, is not installed.
const NOT_FOUND: i32 = -2;

/// Everything that the process is told at its start.
#[derive(Debug, Clone)]
pub struct MounterTask {
    /// The mount point, an absolute path without links.
    pub target: PathBuf,
    /// Source name in the kernel's mount table.
    pub source: OsString,
    /// Whether other users may access the mount.
    pub allow_other: bool,
    /// Flags by their names in mount(8).
    pub flags: Vec<String>,
}

/// A request to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MounterOrder {
    /// Mount, optionally read-only.
    Mount { read_only: bool },
    /// Unmount, unless the mount is in use.
    Unmount,
    /// Detach the mount.
    Detach,
    /// Unmount even if the mount is in use.
    Force,
    /// Make the kernel abort the detached mount with this device number.
    Abort(u64),
    /// Start a process that uses a GPU; the socket sent with the order becomes its standard input.
    Gpu,
}

impl MounterOrder {
    fn encode(self) -> [u8; 9] {
        let (code, number) = match self {
            MounterOrder::Mount { read_only } => (1, u64::from(read_only)),
            MounterOrder::Unmount => (2, 0),
            MounterOrder::Detach => (3, 0),
            MounterOrder::Force => (4, 0),
            MounterOrder::Abort(device) => (5, device),
            MounterOrder::Gpu => (6, 0),
        };
        let mut bytes = [code; 9];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (code, number) = bytes.split_first()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        match code {
            1 => Some(MounterOrder::Mount { read_only: number != 0 }),
            2 => Some(MounterOrder::Unmount),
            3 => Some(MounterOrder::Detach),
            4 => Some(MounterOrder::Force),
            5 => Some(MounterOrder::Abort(number)),
            6 => Some(MounterOrder::Gpu),
            _ => None,
        }
    }
}

/// Handle of such a process, held by the mount's process. The process ends when this is dropped.
#[derive(Debug)]
pub struct Mounter {
    socket: Mutex<OwnedFd>,
}

impl Mounter {
    /// Starts the process, from this program's executable, for a mount on `place`.
    ///
    /// # Errors
    /// Errors of the system calls.
    pub fn start(place: &MountPoint, task: &MounterTask) -> io::Result<Self> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("warpcrypt").arg(COMMAND);
        if task.allow_other {
            command.arg("--allow-other");
        }
        for flag in &task.flags {
            command.args(["-o", flag]);
        }
        command.arg("--").arg(&task.source).arg(&task.target);
        command.stdin(its).stdout(place.as_fd().try_clone_to_owned()?).stderr(Stdio::null());
        // No wait: it ends after this process, or is killed.
        command.spawn()?;
        Ok(Mounter { socket: Mutex::new(ours) })
    }

    /// Starts a process that uses a GPU, with `socket` as its end of the connection. Returns a handle of
    /// the new process.
    ///
    /// # Errors
    /// Errors of the system calls, or of the process.
    pub fn start_gpu(&self, socket: OwnedFd) -> io::Result<OwnedFd> {
        self.ask_with(MounterOrder::Gpu, Some(socket.as_fd()))?.ok_or_else(gone)
    }

    /// Mounts, and returns the descriptor that delivers the kernel's requests.
    pub(super) fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        self.ask(MounterOrder::Mount { read_only })?.ok_or_else(gone)
    }

    /// Sends an order that returns no descriptor.
    pub(super) fn order(&self, order: MounterOrder) -> io::Result<()> {
        self.ask(order).map(drop)
    }

    fn ask(&self, order: MounterOrder) -> io::Result<Option<OwnedFd>> {
        self.ask_with(order, None)
    }

    fn ask_with(&self, order: MounterOrder, handed: Option<BorrowedFd<'_>>) -> io::Result<Option<OwnedFd>> {
        let socket = self.socket.lock();
        send(&*socket, &order.encode(), handed).map_err(|_| gone())?;
        let mut bytes = [0; ANSWER_MAX];
        let (length, device) = receive(&*socket, &mut bytes)?;
        let (number, text) = bytes[..length].split_at_checked(NUMBER).ok_or_else(gone)?;
        match i32::from_le_bytes(number.try_into().map_err(|_| gone())?) {
            0 => Ok(device),
            OTHER => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            NOT_FOUND => {
                Err(io::Error::new(io::ErrorKind::NotFound, String::from_utf8_lossy(text).into_owned()))
            }
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the process that mounts and unmounts for this one is gone")
}

/// Carries out orders from the other end of `socket` until it is closed. `place` is the directory to
/// mount on. `start_gpu` starts a process that uses a GPU with the given end of a socket, and returns a
/// handle of it.
///
/// # Errors
/// If the socket fails.
pub fn serve_mounter(
    socket: impl AsFd,
    place: impl AsFd,
    task: &MounterTask,
    start_gpu: impl Fn(OwnedFd) -> io::Result<OwnedFd>,
) -> io::Result<()> {
    let mut place = Some(place);
    let judge = PermissionPolicy::on_mount(task.allow_other, &task.flags);
    loop {
        let mut bytes = [0; 16];
        let (length, handed) = match receive(&socket, &mut bytes)? {
            (0, _) => return Ok(()),
            received => received,
        };
        let done = match MounterOrder::decode(&bytes[..length]) {
            // There is only one mount: the first order consumes the directory.
            Some(MounterOrder::Mount { read_only }) => match place.take() {
                Some(place) => {
                    let (target, source, flags) = (&task.target, &task.source, &task.flags);
                    let allow_other = task.allow_other;
                    let device = FuseDevice {
                        dir: place.as_fd(),
                        target,
                        source,
                        read_only,
                        allow_other,
                        judge,
                        flags,
                    }
                    .mount();
                    // Only after mounting: at an autofs mount point, only the automounter's process group
                    // may mount. In a separate session, the process receives no signals from a
                    // terminal; its mount may continue in the background.
                    device.inspect(|_| _ = setsid()).map(Some)
                }
                None => Err(Errno::BUSY.into()),
            },
            Some(MounterOrder::Unmount) => device::unmount(&task.target, false).map(|()| None),
            Some(MounterOrder::Detach) => device::unmount(&task.target, true).map(|()| None),
            Some(MounterOrder::Force) => device::force_unmount(&task.target).map(|()| None),
            Some(MounterOrder::Abort(device)) => device::abort(device).map(|()| None),
            Some(MounterOrder::Gpu) => {
                handed.ok_or_else(|| Errno::INVAL.into()).and_then(&start_gpu).map(Some)
            }
            None => Err(Errno::INVAL.into()),
        };
        let answered = match done {
            Ok(device) => send(&socket, &0i32.to_le_bytes(), device.as_ref().map(AsFd::as_fd)),
            Err(e) => match e.raw_os_error() {
                Some(number) => send(&socket, &number.to_le_bytes(), None),
                None => {
                    let number = if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { OTHER };
                    let mut answer = [&number.to_le_bytes(), e.to_string().as_bytes()].concat();
                    answer.truncate(ANSWER_MAX);
                    send(&socket, &answer, None)
                }
            },
        };
        // If the other end is gone, the next receive ends the loop.
        let _ = answered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, thread};

    #[test]
    fn orders_pass_through_the_socket() {
        for order in [
            MounterOrder::Mount { read_only: true },
            MounterOrder::Mount { read_only: false },
            MounterOrder::Unmount,
            MounterOrder::Detach,
            MounterOrder::Force,
            MounterOrder::Abort(u64::MAX),
            MounterOrder::Gpu,
        ] {
            assert_eq!(MounterOrder::decode(&order.encode()), Some(order));
        }
        for bad in [&[][..], &[1], &[0; 9], &[7; 9], &[2; 10]] {
            assert_eq!(MounterOrder::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn errors_come_back_as_the_system_numbers_them_and_the_end_of_the_asker_ends_it() {
        let (ours, its) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let task = MounterTask {
            target: "/proc/no such mount".into(),
            source: "vault".into(),
            allow_other: false,
            flags: vec!["no such flag".into()],
        };
        let served = thread::spawn(move || {
            let place = std::fs::File::open(Path::new("/proc")).unwrap();
            serve_mounter(its, place, &task, Ok)
        });
        let mounter = Mounter { socket: Mutex::new(ours) };
        let error = mounter.mount(false).expect_err("an unknown flag");
        assert!(error.to_string().contains("no such flag"), "{error}");
        let again = mounter.mount(false).expect_err("it mounts once");
        assert_eq!(again.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
        assert!(mounter.order(MounterOrder::Force).expect_err("nothing is there").raw_os_error().is_some());
        let (one, _other) = rustix::pipe::pipe().unwrap();
        mounter.start_gpu(one).expect("what the process that uses a GPU is started with comes back here");
        drop(mounter);
        served.join().unwrap().unwrap();
    }
}
