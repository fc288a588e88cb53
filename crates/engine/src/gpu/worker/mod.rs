//! The process that uses a GPU. Failures of the driver are confined to it, and the program that started it
//! continues. It knows nothing about keys, files or batches; it is told which memory to send through which
//! kernel.

mod lane;

use super::{
    channel::{Channel, ChannelError},
    driver::{self, Context, DriverError, Registered},
    kernels::Kernels,
    message::{Answer, Request},
    plan::Limits,
};
use crate::buffer::{Mapping, MemoryId};
use lane::Lane;
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
struct Opened {
    context: Arc<Context>,
    kernels: Arc<Kernels>,
    limits: Limits,
    lent: Table,
    lanes: Vec<thread::JoinHandle<()>>,
}

/// Memory of the program that the device can reach.
type Table = Arc<Mutex<HashMap<MemoryId, Arc<Registered>>>>;

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
            Request::Forget { memory } => {
                forget(&opened, memory);
                continue;
            }
            request => answer(&mut opened, request, handed, ready),
        };
        let answer = answer.unwrap_or_else(|refusal| Answer::Failed(refusal.to_string()));
        if control.send(&answer, None).is_err() {
            break;
        }
    }
    // The lanes' sockets are closed as well: each lane wipes its device memory and ends.
    for lane in opened.into_iter().flat_map(|opened| opened.lanes) {
        let _ = lane.join();
    }
}

fn forget(opened: &Option<Opened>, memory: MemoryId) {
    let forgotten = opened.as_ref().and_then(|opened| opened.lent.lock().remove(&memory));
    drop(forgotten); // Unlocks and unmaps the memory without holding the table's lock.
}

fn answer(
    opened: &mut Option<Opened>,
    request: Request,
    handed: Option<OwnedFd>,
    ready: fn(),
) -> Result<Answer, Refusal> {
    match (request, opened) {
        (Request::Count, _) => return Ok(Answer::Devices(driver::devices()?)),
        (Request::Open { number, limits }, opened @ None) => {
            let (context, description) = Context::open(number)?;
            let kernels = Arc::new(Kernels::load(&context, &description)?);
            *opened = Some(Opened { context, kernels, limits, lent: Arc::default(), lanes: Vec::new() });
            ready();
            return Ok(Answer::Opened(description));
        }
        (Request::Lend { memory, len }, Some(opened)) => opened.lend(memory, len, handed)?,
        (Request::Lane { desk }, Some(opened)) => opened.add_lane(desk, handed)?,
        _ => return Err(Refusal::Bad("out of order")),
    }
    Ok(Answer::Done)
}

impl Opened {
    fn lend(&self, memory: MemoryId, len: usize, file: Option<OwnedFd>) -> Result<(), Refusal> {
        let file = file.ok_or(Refusal::Bad("memory without a file"))?;
        let registered = Registered::new(&self.context, Mapping::of(&file, len)?)?;
        self.lent.lock().insert(memory, Arc::new(registered));
        Ok(())
    }

    fn add_lane(&mut self, desk: MemoryId, socket: Option<OwnedFd>) -> Result<(), Refusal> {
        let socket = socket.ok_or(Refusal::Bad("a lane without a socket"))?;
        let desk = self.lent.lock().get(&desk).cloned().filter(|desk| desk.len() >= self.limits.desk());
        let desk = desk.ok_or(Refusal::Bad("a lane without a desk"))?;
        let lane = Lane::new(&self.context, &self.kernels, &self.lent, desk, self.limits)?;
        let work = move || lane.work(&Channel::from(socket));
        let thread = thread::Builder::new().name("gpu-lane".to_owned()).spawn(work);
        self.lanes.push(thread.map_err(Refusal::Thread)?);
        Ok(())
    }
}
