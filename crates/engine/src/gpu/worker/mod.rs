//! The process that uses a GPU. Failures of the driver are confined to it, and the program that started it
//! continues. It knows nothing about keys, files or batches; it is told which memory to send through which
//! kernel.

mod gpu_queue;

use super::{
    channel::{Channel, ChannelError},
    driver::{self, CudaContext, DriverError, Registered},
    kernels::Kernels,
    message::{WorkerAnswer, WorkerRequest},
    plan::Limits,
};
use crate::buffer::{Mapping, MemoryId};
use gpu_queue::GpuQueue;
use parking_lot::Mutex;
use rustix::{fd::OwnedFd, process::Signal};
use std::{collections::HashMap, sync::Arc, thread};

/// Why a request was refused; reported to the requesting program.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("sharing memory: {0}")]
    Memory(#[from] rustix::io::Errno),
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    /// The request is invalid.
    #[error("a bad request: {0}")]
    Bad(&'static str),
}

/// An opened device, and the memory lent to it.
struct OpenedDevice {
    context: Arc<CudaContext>,
    kernels: Arc<Kernels>,
    limits: Limits,
    lent: MemoryTable,
    queues: Vec<thread::JoinHandle<()>>,
}

/// Memory of the program that the device can reach.
type MemoryTable = Arc<Mutex<HashMap<MemoryId, Arc<Registered>>>>;

/// Serves the program at the other end of `socket` until it is gone. Calls `ready` once a device is open:
/// from then on the driver needs no further rights.
pub fn serve(socket: OwnedFd, ready: fn()) {
    // If the driver is stuck when the program ends, nothing else would end this process. The thread that
    // started it lives as long as this process does.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let (control, mut opened) = (Channel::from(socket), None);
    loop {
        let (request, handed) = match control.receive(None) {
            Ok(received) => received,
            Err(ChannelError::Closed) => break,
            // The other side is this same program, so something is badly wrong. It notices that this
            // process is gone.
            Err(_) => return,
        };
        let answer = match request {
            WorkerRequest::Forget { memory } => {
                forget(&opened, memory);
                continue;
            }
            request => answer(&mut opened, request, handed, ready),
        };
        let answer = answer.unwrap_or_else(|refusal| WorkerAnswer::Failed(refusal.to_string()));
        if control.send(&answer, None).is_err() {
            break;
        }
    }
    // The queues' sockets are closed as well: each queue wipes its device memory and ends.
    for queue in opened.into_iter().flat_map(|opened| opened.queues) {
        let _ = queue.join();
    }
}

fn forget(opened: &Option<OpenedDevice>, memory: MemoryId) {
    let forgotten = opened.as_ref().and_then(|opened| opened.lent.lock().remove(&memory));
    drop(forgotten); // Unlocks and unmaps the memory without holding the table's lock.
}

fn answer(
    opened: &mut Option<OpenedDevice>,
    request: WorkerRequest,
    handed: Option<OwnedFd>,
    ready: fn(),
) -> Result<WorkerAnswer, Refusal> {
    match (request, opened) {
        (WorkerRequest::Count, _) => return Ok(WorkerAnswer::Devices(driver::devices()?)),
        (WorkerRequest::Open { number, limits }, opened @ None) => {
            let (context, description) = CudaContext::open(number)?;
            let kernels = Arc::new(Kernels::load(&context, &description)?);
            *opened =
                Some(OpenedDevice { context, kernels, limits, lent: Arc::default(), queues: Vec::new() });
            ready();
            return Ok(WorkerAnswer::Opened(description));
        }
        (WorkerRequest::Lend { memory, len }, Some(opened)) => opened.lend(memory, len, handed)?,
        (WorkerRequest::Queue { control_block }, Some(opened)) => opened.add_queue(control_block, handed)?,
        _ => return Err(Refusal::Bad("out of order")),
    }
    Ok(WorkerAnswer::Done)
}

impl OpenedDevice {
    fn lend(&self, memory: MemoryId, len: usize, file: Option<OwnedFd>) -> Result<(), Refusal> {
        let file = file.ok_or(Refusal::Bad("memory without a file"))?;
        let registered = Registered::new(&self.context, Mapping::of(&file, len)?)?;
        self.lent.lock().insert(memory, Arc::new(registered));
        Ok(())
    }

    fn add_queue(&mut self, control_block: MemoryId, socket: Option<OwnedFd>) -> Result<(), Refusal> {
        let socket = socket.ok_or(Refusal::Bad("a queue without a socket"))?;
        let control_block = self
            .lent
            .lock()
            .get(&control_block)
            .cloned()
            .filter(|control_block| control_block.len() >= self.limits.control_block());
        let control_block = control_block.ok_or(Refusal::Bad("a queue without a control block"))?;
        let queue = GpuQueue::new(&self.context, &self.kernels, &self.lent, control_block, self.limits)?;
        let work = move || queue.work(&Channel::from(socket));
        let thread = thread::Builder::new().name("gpu-queue".to_owned()).spawn(work);
        self.queues.push(thread.map_err(Refusal::Thread)?);
        Ok(())
    }
}
