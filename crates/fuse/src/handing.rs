//! Socket messages that can carry a descriptor.

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Sends a message, optionally with a descriptor.
///
/// # Errors
/// Errors of the system call; EPIPE if the other end is closed.
pub fn send(socket: impl AsFd, bytes: &[u8], device: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let devices = device.map(|device| [device]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(devices) = &devices
        && !control.push(SendAncillaryMessage::ScmRights(devices))
    {
        return Err(Errno::MSGSIZE.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message, and the descriptor sent with it. An empty message means that the other end has
/// closed.
///
/// # Errors
/// Errors of the system call.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((length, device))
}
