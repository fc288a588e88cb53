//! The process that starts GPU processes for a command that has given up the right to start any. It reads
//! nothing but empty orders, each with the socket for a process to start.

use super::{
    channel::{Channel, ChannelError},
    fault::Fault,
    process::{PROGRAM, start_gpu_process, start_gpus_through},
};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// Hidden command that starts this process.
pub const COMMAND: &str = "gpu-starter";

/// Starts this process and makes it start the GPU processes from now on. It ends after the calling process.
///
/// # Errors
/// The system's, or `NoProgram`.
pub fn start_gpus_apart() -> io::Result<()> {
    let program = PROGRAM.get().ok_or_else(|| io::Error::other(Fault::NoProgram))?;
    let (ours, its) = Channel::pair()?;
    let mut command = Command::new(program);
    // Keys such as Ctrl-C on the terminal must signal the calling process only.
    command.arg0("warpcrypt").arg(COMMAND).process_group(0);
    command.stdin(its).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let starter = Mutex::new(ours);
    start_gpus_through(move |socket| ask(&starter.lock(), &socket));
    Ok(())
}

fn ask(starter: &Channel, socket: &OwnedFd) -> io::Result<OwnedFd> {
    let answer = starter.send(&(), Some(socket.as_fd())).and_then(|()| starter.receive(None));
    let (refused, handle): (Option<String>, _) = answer.map_err(io::Error::other)?;
    match refused {
        Some(why) => Err(io::Error::other(why)),
        None => handle.ok_or_else(|| io::Error::other(ChannelError::Garbled)),
    }
}

/// Starts a process for each request, until the other end of the socket is closed.
pub fn serve(socket: OwnedFd) {
    let asker = Channel::from(socket);
    while let Ok(((), handed)) = asker.receive(None) {
        let started = handed.ok_or_else(|| io::ErrorKind::InvalidInput.into()).and_then(start_gpu_process);
        let refused = started.as_ref().err().map(ToString::to_string);
        if asker.send(&refused, started.as_ref().ok().map(AsFd::as_fd)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_refused_is_told_and_the_end_of_the_asker_ends_it() {
        let (ours, its) = Channel::pair().unwrap();
        let served = thread::spawn(|| serve(its));
        let (socket, _other) = rustix::pipe::pipe().unwrap();
        // Tests never configure a program for GPU processes.
        let error = ask(&ours, &socket).expect_err("no program");
        assert_eq!(error.to_string(), Fault::NoProgram.to_string());
        drop(ours);
        served.join().unwrap();
    }
}
