//! Requests over io_uring: an answer and the next request take one system call, and a program is served
//! on its own processor.
//!
//! The kernel has one queue per processor, and uses rings once every queue has entries. Forgets and
//! interrupts still arrive through `/dev/fuse`. Kernel documentation:
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`.
//!
//! - `thread` serves queues, `entry` is the memory of one request, and `mail` carries messages to a thread.
//! - `parse` and `encode` convert the bytes; `dispatch` and `reply` interpret them.

mod dispatch;
mod encode;
mod entry;
mod mail;
mod parse;
mod reply;
mod thread;

pub use parse::{ARGUMENTS, HEADER, Operation, ParseFault, RequestHeader, header, operation};

use super::{affinity, requests::Requests};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use mail::Mail;
use std::{
    fs, io,
    os::fd::OwnedFd,
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
};
use thread::{Ring, RingQueue, RingWork};

/// The processors that the machine may ever have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Entries in the queue of a processor that this process may run on.
const DEPTH: usize = 32;
/// Entries in the other queues.
const SHALLOW: usize = 4;
/// Maximum time to wait for a thread that empties its entries.
const PATIENCE: Duration = Duration::from_secs(2);

/// Rings that were created but do not serve a mount yet.
pub struct Prepared(Vec<BegunThread>);

struct BegunThread {
    thread: JoinHandle<()>,
    mail: Arc<Mail>,
    to: Sender<(RingWork, Sender<io::Result<()>>)>,
}

/// Rings that serve a mount.
pub struct Rings {
    threads: Vec<JoinHandle<()>>,
    mails: Vec<Arc<Mail>>,
}

/// Sends messages to all threads of a mount's rings.
#[derive(Clone)]
pub struct RingWord(Vec<Arc<Mail>>);

impl Prepared {
    /// Creates a ring for each processor, and one for all processors that this process may not run on.
    ///
    /// # Errors
    /// If the system has no io_uring or does not permit it.
    pub fn new() -> io::Result<Prepared> {
        let possible = possible(&fs::read_to_string(POSSIBLE)?).ok_or(io::ErrorKind::InvalidData)?;
        let processors = affinity::processors();
        let (own, others): (Vec<u16>, Vec<u16>) =
            (0..possible).partition(|&number| processors.is_set(number.into()));
        let mut all = Prepared(Vec::new());
        for number in own {
            all.0.push(BegunThread::start(Some(number), vec![RingQueue::new(number, DEPTH)])?);
        }
        if !others.is_empty() {
            let queues = others.into_iter().map(|number| RingQueue::new(number, SHALLOW)).collect();
            all.0.push(BegunThread::start(None, queues)?);
        }
        Ok(all)
    }

    /// Starts to serve requests of at most `largest` bytes from `device`. Idle entries that served large
    /// requests keep about `memory` bytes in total.
    ///
    /// # Errors
    /// The kernel's error. The kernel then continues to use the device.
    pub fn serve(
        self,
        device: OwnedFd,
        requests: &Requests,
        largest: usize,
        memory: usize,
    ) -> io::Result<Rings> {
        let device = Arc::new(device);
        let kept = (memory / largest / self.0.len()).max(1);
        let (told, tell) = unbounded();
        let mut rings = Rings { threads: Vec::new(), mails: Vec::new() };
        for BegunThread { thread, mail, to } in self.0 {
            let work = RingWork { device: device.clone(), requests: requests.clone(), largest, kept };
            // If the thread has ended, its sender is dropped, too.
            let _ = to.send((work, told.clone()));
            rings.threads.push(thread);
            rings.mails.push(mail);
        }
        drop(told);
        let registered: io::Result<Vec<()>> = tell.iter().collect();
        match registered {
            Ok(all) if all.len() == rings.threads.len() => Ok(rings),
            Ok(_) => {
                rings.end();
                Err(io::Error::other("a thread ended"))
            }
            Err(e) => {
                rings.end();
                Err(e)
            }
        }
    }
}

impl BegunThread {
    fn start(processor: Option<u16>, queues: Vec<RingQueue>) -> io::Result<BegunThread> {
        let mail = Arc::new(Mail::new()?);
        let (to, from) = bounded(1);
        let (made, is_made) = bounded(1);
        let name = processor.map_or("ring".to_owned(), |number| format!("ring-{number}"));
        let own = mail.clone();
        let thread = Builder::new().name(name).spawn(move || {
            if let Some(processor) = processor {
                affinity::bind(processor.into());
            }
            run(&made, &from, queues, own);
        })?;
        is_made.recv().unwrap_or_else(|_| Err(io::Error::other("a thread ended")))?;
        Ok(BegunThread { thread, mail, to })
    }
}

/// Body of a thread: creates its ring, waits until there is a mount to serve, and serves it.
fn run(
    made: &Sender<io::Result<()>>,
    from: &Receiver<(RingWork, Sender<io::Result<()>>)>,
    queues: Vec<RingQueue>,
    mail: Arc<Mail>,
) {
    let uring = match thread::uring() {
        Ok(uring) => uring,
        Err(e) => return drop(made.send(Err(e))),
    };
    let _ = made.send(Ok(())); // The creator waits for this message.
    let Ok((work, registered)) = from.recv() else { return };
    let mut ring = Ring::new(uring, work, queues, mail);
    let result = ring.register();
    let failed = result.is_err();
    let _ = registered.send(result);
    drop(registered);
    if failed {
        return;
    }
    if let Err(e) = ring.run() {
        log::error!("an io_uring thread failed: {e}");
    }
}

impl Rings {
    /// Returns a handle for messages to the threads.
    pub fn word(&self) -> RingWord {
        RingWord(self.mails.clone())
    }

    /// Ends the threads, once the mount has ended.
    pub fn end(self) {
        self.mails.iter().for_each(|mail| mail.end());
        for thread in self.threads {
            // A panic was caught, or has been printed.
            let _ = thread.join();
        }
    }
}

impl RingWord {
    /// Empties all entries that hold no request, and waits until that is done.
    pub fn empty(&self) {
        let (told, tell) = unbounded();
        self.0.iter().for_each(|mail| mail.empty(told.clone()));
        drop(told);
        let all = self.0.iter().all(|_| tell.recv_timeout(PATIENCE).is_ok());
        if !all {
            log::warn!("request buffers could not be wiped in time");
        }
    }
}

/// The number of processors in a list such as `0-3,5`.
fn possible(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0_u16, |all, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        all.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        for (list, count) in
            [("0-1\n", Some(2)), ("0", Some(1)), ("0-3,5,8-9", Some(7)), ("", None), ("3-1", None)]
        {
            assert_eq!(possible(list), count, "{list}");
        }
    }
}
