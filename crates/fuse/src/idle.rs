//! Actions on an unused mount: locking the vault, or unmounting it.

use super::server::Server;
use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// How often to check whether programs still use the mount.
const LOOK: Duration = Duration::from_secs(1);

/// Locks the vault whenever no program has made a request for `idle`. Returns when the mount has ended or
/// is ending.
pub fn lock_when_idle(server: &Weak<Server>, idle: Duration) {
    let is_locked = |server: &Server| server.gate.is_closed();
    when_idle(server, idle, is_locked, |server| {
        if !server.ends_if_detached()
            && let Err(e) = server.lock(false)
        {
            log::error!("locking the idle vault failed: {e}");
        }
    });
}

/// Calls `unmount` when no program has made a request for `idle`. An open file or a working directory
/// keeps the mount (EBUSY); the next attempt follows after the same time. A locked vault is unmounted
/// too, a frozen one is not.
pub fn unmount_when_idle(server: &Weak<Server>, idle: Duration, unmount: impl Fn() -> io::Result<()>) {
    let is_frozen = |server: &Server| server.frozen.load(Ordering::Relaxed);
    when_idle(server, idle, is_frozen, |_| match unmount() {
        Ok(()) => log::info!("unmounted after {} s without a request", idle.as_secs()),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {}
        Err(e) => log::warn!("unmounting the idle vault failed: {e}"),
    });
}

/// Calls `act` whenever no program has made a request for `idle`, not counting time during which `rests`
/// is true. Returns when the mount has ended or is ending. Requests that the kernel answers by itself do
/// not count, nor do closing and forgetting a file.
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
