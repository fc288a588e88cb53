//! The process that a GPU is used from: whatever the driver does, it happens here, and the program that started this
//! process goes on. Knows no keys, no files and no batches: it is told which memory to send through which kernel.

mod lane;

use super::{
    channel::{Channel, ChannelError},
    driver::{self, Context, DriverError, Registered},
    kernels::Kernels,
    message::{Answer, Request},
    plan::Limits,
};
use crate::engine::buffer::{Mapping, MemoryId};
use lane::Lane;
use parking_lot::Mutex;
use rustix::{fd::OwnedFd, process::Signal};
use std::{collections::HashMap, sync::Arc, thread};

/// Why something that was asked for was not done; told to the program that asked.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("sharing memory: {0}")]
    Memory(#[from] rustix::io::Errno),
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    /// The other side asks for what makes no sense.
    #[error("a bad request: {0}")]
    Bad(&'static str),
}

/// A device that was opened, and the memory that was lent.
struct Opened {
    context: Arc<Context>,
    kernels: Arc<Kernels>,
    limits: Limits,
    lent: Table,
    lanes: Vec<thread::JoinHandle<()>>,
}

/// Memory of the program that the device reaches.
type Table = Arc<Mutex<HashMap<MemoryId, Arc<Registered>>>>;

/// Serves the program at the other end of `socket` until that is gone. Calls `ready` once a device is open: the driver needs no
/// more rights from then on.
pub fn serve(socket: OwnedFd, ready: fn()) {
    // If the driver is stuck when the program ends, nothing else would end this process. The thread that started it
    // lives as long as it does.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let (control, mut opened) = (Channel::from(socket), None);
    loop {
        let (request, handed) = match control.receive(None) {
            Ok(received) => received,
            Err(ChannelError::Closed) => break,
            // The other side is this very program: something is badly wrong, and it sees that this process is gone.
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
    // The lanes' sockets are closed as well: each wipes what it has on the device, and ends.
    for lane in opened.into_iter().flat_map(|opened| opened.lanes) {
        let _ = lane.join();
    }
}

fn forget(opened: &Option<Opened>, memory: MemoryId) {
    let forgotten = opened.as_ref().and_then(|opened| opened.lent.lock().remove(&memory));
    drop(forgotten); // Unlocked and unmapped while nobody waits for the table.
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
