//! `gpu-worker`, the process that uses a GPU, and `gpu-starter`, which starts it for a process that may
//! not start programs itself. The standard input of both is a socket of the program that started them.

use super::{
    descriptors,
    exit::{Code, Failure, Outcome},
};
use rustix::fd::OwnedFd;

/// Runs `gpu-worker` until the other end of the socket is closed.
pub fn run() -> Outcome {
    engine::serve_gpu(socket(engine::GPU_COMMAND)?, fuse::refuse_calls);
    Ok(())
}

/// Runs `gpu-starter` until the other end of the socket is closed.
pub fn run_starter() -> Outcome {
    engine::serve_gpu_starter(socket(engine::GPU_STARTER_COMMAND)?);
    Ok(())
}

/// Takes the socket and closes all other inherited descriptors.
fn socket(command: &str) -> Outcome<OwnedFd> {
    let failed = |e: rustix::io::Errno| Failure::plain(Code::Failed, format!("starting: {e}"));
    descriptors::close_inherited();
    if rustix::net::sockopt::socket_type(rustix::stdio::stdin()) != Ok(rustix::net::SocketType::SEQPACKET) {
        return Err(Failure::new(
            Code::Usage,
            "no socket on standard input",
            format!("`{command}` is started by other commands, which use a GPU through it."),
        ));
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(failed)?;
    let null = descriptors::null().map_err(failed)?;
    // Leave this descriptor as the only reference to the socket.
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)?;
    Ok(socket)
}
