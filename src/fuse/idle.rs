//! What a mount does that nobody uses: it is locked, or it ends.

use super::server::Server;
use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// How often it is looked whether programs still use the mount.
const LOOK: Duration = Duration::from_secs(1);

/// Locks the vault when no program has made a request for so long, until the mount ends or is to end.
pub fn lock_when_idle(server: &Weak<Server>, idle: Duration) {
    let is_locked = |server: &Server| server.gate.is_closed();
    when_idle(server, idle, is_locked, |server| {
        if !server.ends_if_detached()
            && let Err(e) = server.lock(false)
        {
            log::error!("not locked: {e}");
        }
    });
}

/// Ends the mount by `unmount` when no program has made a request for so long. One that has something open, or is in a directory,
/// keeps it (EBUSY): then it is tried again after as long. A locked vault ends, too, but not a frozen one.
pub fn unmount_when_idle(server: &Weak<Server>, idle: Duration, unmount: impl Fn() -> io::Result<()>) {
    let is_frozen = |server: &Server| server.frozen.load(Ordering::Relaxed);
    when_idle(server, idle, is_frozen, |_| match unmount() {
        Ok(()) => log::info!("unmounted after {} s without a request", idle.as_secs()),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {}
        Err(e) => log::warn!("not unmounted, though no program made a request: {e}"),
    });
}

/// Does `act` whenever no program has made a request for so long, not counting the time that `rests`, until the mount ends or is to
/// end. What the kernel answers by itself is no request, nor is that a file is closed or forgotten.
fn when_idle(
    server: &Weak<Server>,
    idle: Duration,
    rests: impl Fn(&Server) -> bool,
    act: impl Fn(&Arc<Server>),
) {
    let (mut seen, mut since) = (0, Instant::now());
    while let Some(server) = server.upgrade().filter(|server| !server.gate.is_ending()) {
        let came = server.gate.came();
        if came != std::mem::replace(&mut seen, came) || rests(&server) {
            since = Instant::now();
        }
        if since.elapsed() >= idle {
            since = Instant::now();
            act(&server);
        }
        drop(server);
        thread::sleep(LOOK.min(idle));
    }
}
