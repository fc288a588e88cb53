//! `gpu-worker`: the process that uses a GPU. Its standard input is a socket of the program that started it.

use super::{
    descriptors,
    exit::{Code, Failure, Outcome},
};
use crate::{engine, fuse};

/// Runs `gpu-worker` until the other end of the socket is closed.
pub fn run() -> Outcome {
    let failed = |e: rustix::io::Errno| Failure::plain(Code::Failed, format!("starting: {e}"));
    descriptors::close_inherited();
    if rustix::net::sockopt::socket_type(rustix::stdio::stdin()) != Ok(rustix::net::SocketType::SEQPACKET) {
        return Err(Failure::new(
            Code::Usage,
            "no socket on standard input",
            "`gpu-worker` is started by other commands, which use a GPU through it.",
        ));
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(failed)?;
    let null = descriptors::null().map_err(failed)?;
    // Nothing but this one descriptor keeps the socket open.
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)?;
    engine::serve_gpu(socket, fuse::refuse_calls);
    Ok(())
}
