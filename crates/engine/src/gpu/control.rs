//! Requests and notices to a GPU's process as a whole. A request waits for its answer. A notice does not
//! wait and is never lost: those that the socket has no room for are sent before anything else.

use super::{
    channel::{Channel, ChannelError},
    message::{WorkerAnswer, WorkerRequest},
    timeouts::Timeouts,
};
use crate::buffer::MemoryId;
use parking_lot::Mutex;
use rustix::fd::BorrowedFd;
use std::{
    collections::VecDeque,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// This side of the socket.
pub(super) struct GpuControl {
    channel: Channel,
    /// Held from a request to its answer, so that an answer always belongs to the last request.
    asking: Mutex<()>,
    /// Held only for as long as sending without waiting takes.
    notices: Mutex<Notices>,
}

#[derive(Default)]
struct Notices {
    /// Oldest first.
    unsent: VecDeque<MemoryId>,
    /// Total bytes of the notices not yet known to be processed. An answer confirms all notices sent before
    /// its request.
    bytes: usize,
    /// A thread is waiting for room to send them.
    is_awaited: bool,
}

impl From<Channel> for GpuControl {
    fn from(channel: Channel) -> Self {
        GpuControl { channel, asking: Mutex::default(), notices: Mutex::default() }
    }
}

impl GpuControl {
    /// Sends a request after all earlier notices, and waits for its answer. Waits for at most `limit` plus
    /// the time that those notices may take.
    ///
    /// # Errors
    /// See the variants of `ChannelError`.
    pub fn ask(
        &self,
        request: &WorkerRequest,
        handed: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> Result<WorkerAnswer, ChannelError> {
        let _asking = self.asking.lock();
        let (start, before) = (Instant::now(), self.notices.lock().bytes);
        let limit = limit.saturating_add(Timeouts::default().time(before));
        let left = || Some(limit.saturating_sub(start.elapsed()));
        let answer = loop {
            let sent =
                self.notices.lock().send(&self.channel).and_then(|()| self.channel.send(request, handed));
            match sent {
                Ok(()) => break self.channel.receive(left()),
                Err(ChannelError::Full) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = self.channel.await_room(left()) {
                break Err(error);
            }
        };
        match answer {
            Ok((answer, _)) => {
                self.notices.lock().bytes -= before;
                Ok(answer)
            }
            Err(ChannelError::TimedOut(_)) => Err(ChannelError::TimedOut(limit)),
            Err(error) => Err(error),
        }
    }

    /// Tells the process, without waiting, to release memory of `len` bytes. A process that is gone has
    /// released it.
    pub fn forget(self: &Arc<Self>, memory: MemoryId, len: usize) {
        let mut notices = self.notices.lock();
        notices.unsent.push_back(memory);
        notices.bytes += len;
        let is_full = matches!(notices.send(&self.channel), Err(ChannelError::Full));
        if !is_full || notices.is_awaited {
            return;
        }
        let this = self.clone();
        let waiting = thread::Builder::new().name("gpu-notices".to_owned()).spawn(move || this.send_late());
        // Without a thread, they wait for the next notice or request.
        notices.is_awaited = waiting.is_ok();
    }

    /// Sends the pending notices as room appears, until all are sent or the process is gone.
    fn send_late(&self) {
        loop {
            let waited = self.channel.await_room(None);
            let mut notices = self.notices.lock();
            if waited.is_err() || !matches!(notices.send(&self.channel), Err(ChannelError::Full)) {
                notices.is_awaited = false;
                return;
            }
        }
    }

    /// Closes the connection. The process sees it closed and ends.
    pub fn close(&self) {
        self.channel.close();
    }
}

impl Notices {
    /// Sends the pending notices without waiting for room.
    fn send(&mut self, channel: &Channel) -> Result<(), ChannelError> {
        while let Some(memory) = self.unsent.front() {
            channel.send(&WorkerRequest::Forget { memory: *memory }, None)?;
            self.unsent.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More notices than any socket buffers.
    const MANY: u64 = 20_000;
    const LIMIT: Duration = Duration::from_secs(60);

    fn pair() -> (Arc<GpuControl>, Channel) {
        let (mine, other) = Channel::pair().expect("sockets");
        (Arc::new(mine.into()), other.into())
    }

    fn assert_forgets(other: &Channel, memory: u64) {
        let (request, _) = other.receive(Some(LIMIT)).expect("a message");
        assert!(
            matches!(request, WorkerRequest::Forget { memory: found } if found == memory),
            "{memory}: {request:?}"
        );
    }

    #[test]
    fn notices_wait_for_room_and_nobody_waits_for_them() {
        let (control, other) = pair();
        (0..MANY).for_each(|memory| control.forget(memory, 1));
        assert!(control.notices.lock().unsent.len() > 1, "the socket took them all");
        // Nothing else is sent here, so the thread must send the rest.
        (0..MANY).for_each(|memory| assert_forgets(&other, memory));
    }

    #[test]
    fn a_request_comes_after_the_notices_before_it() {
        let (control, other) = pair();
        (0..MANY).for_each(|memory| control.forget(memory, 1));
        thread::scope(|scope| {
            let asking = scope.spawn(|| control.ask(&WorkerRequest::Count, None, LIMIT));
            (0..MANY).for_each(|memory| assert_forgets(&other, memory));
            let (request, _) = other.receive(Some(LIMIT)).expect("a message");
            assert!(matches!(request, WorkerRequest::Count), "{request:?}");
            other.send(&WorkerAnswer::Devices(3), None).expect("sent");
            assert!(matches!(asking.join().expect("no panic"), Ok(WorkerAnswer::Devices(3))));
            assert_eq!(control.notices.lock().bytes, 0);
        });
    }

    #[test]
    fn a_request_waits_no_longer_than_it_may_and_ends_with_the_other_side() {
        let (control, other) = pair();
        (0..MANY).for_each(|memory| control.forget(memory, 1));
        let limit = Duration::from_millis(20);
        let late = control.ask(&WorkerRequest::Count, None, limit);
        assert!(matches!(late, Err(ChannelError::TimedOut(found)) if found > limit));
        drop(other);
        assert!(matches!(control.ask(&WorkerRequest::Count, None, LIMIT), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_request_under_way_ends_with_the_conversation() {
        let (control, other) = pair();
        thread::scope(|scope| {
            let asking = scope.spawn(|| control.ask(&WorkerRequest::Count, None, LIMIT));
            other.receive::<WorkerRequest>(Some(LIMIT)).expect("a message");
            control.close();
            assert!(matches!(asking.join().expect("no panic"), Err(ChannelError::Closed)));
        });
    }
}
