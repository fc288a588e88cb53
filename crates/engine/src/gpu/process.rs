//! A GPU's process as seen by the program that starts it: queried over a socket, and killed once it has
//! failed.

use super::{
    channel::{Channel, ChannelError},
    control::GpuControl,
    driver::Description,
    fault::Fault,
    message::{WorkerAnswer, WorkerRequest},
    plan::Limits,
    timeouts::Timeouts,
};
use crate::buffer::{Borrower, Lending, LentMemory, MemoryId, SharedMemory};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Pid, PidfdFlags, Signal},
};
use std::{
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Hidden command that starts such a process.
pub const COMMAND: &str = "gpu-worker";

/// Time limit for opening a device. A device that takes longer is not used.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Time that a process has to wipe the device once it is no longer needed.
const END_LIMIT: Duration = Duration::from_secs(3);

pub(super) static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static STARTER: OnceLock<Starter> = OnceLock::new();

/// Starts a process with this socket as its standard input, and returns a pidfd for it.
type Starter = Box<dyn Fn(OwnedFd) -> io::Result<OwnedFd> + Send + Sync>;

/// Sets the program to start for a GPU: one that calls `serve_gpu` with its standard input when its only
/// argument is `gpu-worker`. Without it no GPU is used, because a program that does not expect this must
/// not be started again. Only the first call counts.
pub fn start_gpus_with(program: impl Into<PathBuf>) {
    let _ = PROGRAM.set(program.into());
}

/// Makes another process, one with the right to do so, start the GPU processes with `start_gpu_process`.
/// Only the first call counts.
pub fn start_gpus_through(starter: impl Fn(OwnedFd) -> io::Result<OwnedFd> + Send + Sync + 'static) {
    let _ = STARTER.set(Box::new(starter));
}

/// Starts a GPU process with this socket as its standard input, and returns a pidfd for it.
///
/// # Errors
/// The system's, or `NoProgram`.
pub fn start_gpu_process(socket: OwnedFd) -> io::Result<OwnedFd> {
    let program = PROGRAM.get().ok_or_else(|| io::Error::other(Fault::NoProgram))?;
    let mut command = Command::new(program);
    command.arg0("warpcrypt").arg(COMMAND).process_group(0);
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
    let (started, start) = bounded(1);
    // On a thread that outlives the process: the kernel kills the process when the thread that started it
    // ends.
    thread::Builder::new().name("gpu-process".to_owned()).spawn(move || keep(command, &started))?;
    start.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Such a process, with at most one device. It ends when its last owner is dropped.
pub(super) struct Process {
    control: Arc<GpuControl>,
    handle: OwnedFd,
    /// Disconnected once the process is gone.
    ended: Receiver<()>,
    /// Shared with the memory that was lent to the process.
    lending: Arc<Lending>,
    lent: AtomicU64,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// The system's, or `NoProgram`.
    pub fn start() -> Result<Arc<Self>, Fault> {
        if PROGRAM.get().is_none() {
            return Err(Fault::NoProgram);
        }
        let (control, other) = Channel::pair().map_err(ChannelError::from)?;
        let handle = match STARTER.get() {
            Some(starter) => starter(other),
            None => start_gpu_process(other),
        }
        .map_err(Fault::Start)?;
        let (end, ended) = bounded(0);
        let lending = Arc::<Lending>::default();
        let (known, watched) = (lending.clone(), handle.try_clone().map_err(Fault::Start)?);
        let watch = move || watch(&watched, end, &known);
        thread::Builder::new().name("gpu-watch".to_owned()).spawn(watch).map_err(Fault::Thread)?;
        Ok(Arc::new(Process {
            control: Arc::new(control.into()),
            handle,
            ended,
            lending,
            lent: AtomicU64::new(0),
        }))
    }

    /// Number of devices that the driver reports; at least one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn count(&self) -> Result<usize, Fault> {
        match self.ask(&WorkerRequest::Count, None, OPEN_LIMIT)? {
            WorkerAnswer::Devices(count) => Ok(count),
            _ => Err(ChannelError::Garbled.into()),
        }
    }

    /// Opens a device for pieces within `limits`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(&self, number: usize, limits: Limits) -> Result<Description, Fault> {
        match self.ask(&WorkerRequest::Open { number, limits }, None, OPEN_LIMIT)? {
            WorkerAnswer::Opened(description) => Ok(description),
            _ => Err(ChannelError::Garbled.into()),
        }
    }

    /// A socket that takes orders for pieces, which are described on this control block.
    ///
    /// # Errors
    /// The driver's or the system's error.
    pub fn queue(&self, control_block: &LentMemory) -> Result<Channel, Fault> {
        let (mine, other) = Channel::pair().map_err(ChannelError::from)?;
        self.ask(
            &WorkerRequest::Queue { control_block: control_block.id() },
            Some(other.as_fd()),
            Timeouts::default().limit(control_block.len()),
        )?;
        Ok(mine)
    }

    /// Zeroed memory that the device can reach.
    ///
    /// # Errors
    /// The driver's or the system's error, such as out of memory.
    pub fn lend(self: &Arc<Self>, len: usize) -> Result<LentMemory, Fault> {
        let (memory, file) = SharedMemory::new(len).map_err(ChannelError::from)?;
        let id = self.lent.fetch_add(1, Ordering::Relaxed);
        let request = WorkerRequest::Lend { memory: id, len: memory.len() };
        self.ask(&request, Some(file.as_fd()), Timeouts::default().limit(memory.len()))?;
        Ok(LentMemory::new(memory, id, self, self.lending.clone()))
    }

    fn ask(
        &self,
        request: &WorkerRequest,
        handed: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> Result<WorkerAnswer, Fault> {
        match self.control.ask(request, handed, limit) {
            Ok(WorkerAnswer::Failed(why)) => Err(Fault::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(error) => {
                // A late answer would be taken for the answer to another request.
                self.kill();
                Err(error.into())
            }
        }
    }

    /// Kills the process, whatever it is doing. It may take a while to disappear, and even longer until the
    /// device stops.
    pub fn kill(&self) {
        if self.lending.end() {
            self.send_kill();
            // Callers that wait for an answer get an error now, however long the driver holds the process.
            self.control.close();
        }
    }

    fn send_kill(&self) {
        // Fails only if the process is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// Whether the process is completely gone. A killed one may remain while a driver holds it.
    pub fn is_gone(&self) -> bool {
        self.ended.try_recv() == Err(TryRecvError::Disconnected)
    }
}

impl Borrower for Process {
    fn forget(&self, memory: MemoryId, len: usize) {
        self.control.forget(memory, len);
    }
}

impl Drop for Process {
    /// Gives the process time to wipe the device.
    fn drop(&mut self) {
        self.control.close();
        let is_alive = self.lending.end();
        if is_alive && self.ended.recv_timeout(END_LIMIT).is_err_and(|e| e.is_timeout()) {
            self.send_kill();
        }
    }
}

/// Waits until the process is gone.
fn watch(process: &OwnedFd, _end: Sender<()>, lending: &Lending) {
    while poll(&mut [PollFd::new(process, PollFlags::IN)], None).is_err() {}
    lending.finish();
}

/// Starts the process and reaps it.
fn keep(mut command: Command, started: &Sender<io::Result<OwnedFd>>) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    drop(command); // It holds the other end of the socket.
    let handle = handle_of(&child).inspect_err(|_| _ = child.kill());
    let _ = started.send(handle);
    let _ = child.wait();
}

fn handle_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}
