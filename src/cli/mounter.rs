//! `mounter`: the process that mounts and unmounts. Its standard input is a socket connected to the
//! process behind the mount, and its standard output is the mount point.

use super::{
    args::MounterArgs,
    descriptors,
    exit::{Code, Failure, Outcome},
};
use fuse::{MounterTask, serve_mounter};
use rustix::{
    fs::{FileType, fstat},
    io::fcntl_dupfd_cloexec,
    net::{SocketType, sockopt::socket_type},
    stdio::{dup2_stdin, dup2_stdout, stdin, stdout},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::{Arc, atomic::AtomicBool};

/// Runs `mounter` until the other end of the socket is closed.
pub fn run(args: MounterArgs) -> Outcome {
    let failed = |e: std::io::Error| Failure::plain(Code::Failed, format!("starting: {e}"));
    descriptors::close_inherited();
    let is_dir =
        fstat(stdout()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    if socket_type(stdin()) != Ok(SocketType::SEQPACKET) || !is_dir {
        return Err(Failure::new(
            Code::Usage,
            "no socket on standard input",
            "`mounter` is started by `mount`, which mounts and unmounts through it.",
        ));
    }
    // A signal that ends the mount reaches the whole process group. This process must survive it in
    // order to unmount.
    for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(failed)?;
    }
    let socket = fcntl_dupfd_cloexec(stdin(), 3).map_err(|e| failed(e.into()))?;
    let place = fcntl_dupfd_cloexec(stdout(), 3).map_err(|e| failed(e.into()))?;
    let null = descriptors::null().map_err(|e| failed(e.into()))?;
    // Leave these descriptors as the only references.
    dup2_stdin(&null).map_err(|e| failed(e.into()))?;
    dup2_stdout(&null).map_err(|e| failed(e.into()))?;
    rustix::process::chdir("/").map_err(|e| failed(e.into()))?;
    let MounterArgs { allow_other, flags, source, target } = args;
    let task = MounterTask { target, source, allow_other, flags };
    serve_mounter(socket, place, &task, engine::start_gpu_process).map_err(failed)
}
