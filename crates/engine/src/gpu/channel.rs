//! Messages between two processes over a socket pair, each with an optional descriptor. The format of every
//! incoming message is checked. When a process ends its socket is closed, and the other side notices.

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::{BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    time::{Duration, Instant},
};

/// Maximum length of a message, in bytes.
const LONGEST: usize = 64 << 10;

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side is gone.
    #[error("its process ended")]
    Closed,
    /// No message arrived in time.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The received or outgoing message is malformed or too long.
    #[error("malformed answer from its process")]
    Garbled,
    /// The other side has not yet read earlier messages.
    #[error("its socket is full")]
    Full,
    /// Another system error.
    #[error("its socket: {0}")]
    System(#[from] Errno),
}

/// One end of a socket pair. Messages arrive whole and in order.
pub(super) struct Channel {
    socket: OwnedFd,
    /// Receive buffer, allocated once, because zeroing it takes longer than most messages.
    space: Mutex<Box<[u8]>>,
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Channel { socket, space: Mutex::new(vec![0; LONGEST].into()) }
    }
}

impl Channel {
    /// A socket pair: this end, and the one to hand over.
    ///
    /// # Errors
    /// The system's error.
    pub fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (mine, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((mine.into(), other))
    }

    /// Sends a message without waiting for room.
    ///
    /// # Errors
    /// If the other side is gone or has not read earlier messages.
    pub fn send(&self, message: &impl Serialize, handed: Option<BorrowedFd<'_>>) -> Result<(), ChannelError> {
        let bytes = serde_json::to_vec(message).map_err(|_| ChannelError::Garbled)?;
        if bytes.len() > LONGEST {
            return Err(ChannelError::Garbled);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(handed) = &handed {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(handed)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = retry(|| rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags));
        match sent {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ChannelError::Closed),
            Err(Errno::AGAIN) => Err(ChannelError::Full),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until there is room for a message or the other side is gone, but no longer than `limit`.
    /// Without a limit it may wait forever.
    ///
    /// # Errors
    /// If the limit is exceeded, or the system's error.
    pub fn await_room(&self, limit: Option<Duration>) -> Result<(), ChannelError> {
        self.await_event(PollFlags::OUT, limit)
    }

    /// Waits for the next message, but no longer than `limit`. Without a limit it may wait forever.
    ///
    /// # Errors
    /// See the variants of `ChannelError`.
    pub fn receive<T: DeserializeOwned>(
        &self,
        limit: Option<Duration>,
    ) -> Result<(T, Option<OwnedFd>), ChannelError> {
        if limit.is_some() {
            self.await_event(PollFlags::IN, limit)?;
        }
        let mut bytes = self.space.lock();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = retry(|| {
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        });
        let got = match got {
            Ok(got) if got.bytes > 0 => got,
            Ok(_) | Err(Errno::CONNRESET) => return Err(ChannelError::Closed),
            Err(error) => return Err(error.into()),
        };
        let handed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(ChannelError::Garbled);
        }
        let message = serde_json::from_slice(&bytes[..got.bytes]).map_err(|_| ChannelError::Garbled)?;
        Ok((message, handed))
    }

    /// Closes the connection. The other side sees it closed.
    pub fn close(&self) {
        // Fails only if it is closed already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Waits for one of the events, or for the other side to close.
    fn await_event(&self, events: PollFlags, limit: Option<Duration>) -> Result<(), ChannelError> {
        let start = Instant::now();
        loop {
            let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            if self.has_event(events, left)? {
                return Ok(());
            }
            if let Some(limit) = limit.filter(|limit| start.elapsed() >= *limit) {
                return Err(ChannelError::TimedOut(limit));
            }
        }
    }

    /// Polls once, for at most `time` or until a signal arrives. Returns whether an event occurred.
    fn has_event(&self, events: PollFlags, time: Option<Duration>) -> Result<bool, ChannelError> {
        let time = time
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        match rustix::event::poll(&mut [PollFd::new(&self.socket, events)], time.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    fn pair() -> (Channel, Channel) {
        let (a, b) = Channel::pair().expect("sockets");
        (a, b.into())
    }

    #[test]
    fn messages_and_descriptors_arrive_in_order() {
        let (a, b) = pair();
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 77).expect("longer");
        a.send(&(1, "one"), None).expect("sent");
        a.send(&(2, "two"), Some(file.as_fd())).expect("sent");
        let limit = Some(Duration::from_secs(20));
        let ((number, text), none): ((u32, String), _) = b.receive(limit).expect("a message");
        assert!((number, &text[..]) == (1, "one") && none.is_none());
        let ((number, _), handed): ((u32, String), _) = b.receive(limit).expect("a message");
        let handed = handed.expect("a descriptor");
        assert_eq!((number, rustix::fs::fstat(handed).expect("a file").st_size), (2, 77));
    }

    #[test]
    fn silence_nonsense_and_the_end_are_errors() {
        let (a, b) = pair();
        let nothing = b.receive::<u32>(Some(Duration::from_millis(1)));
        assert!(matches!(nothing, Err(ChannelError::TimedOut(_))));
        a.send(&"no number", None).expect("sent");
        assert!(matches!(b.receive::<u32>(None), Err(ChannelError::Garbled)));
        assert!(matches!(a.send(&vec![0_u8; LONGEST], None), Err(ChannelError::Garbled)));
        drop(a);
        assert!(matches!(b.receive::<u32>(None), Err(ChannelError::Closed)));
        assert!(matches!(b.send(&1, None), Err(ChannelError::Closed)));
    }
}
