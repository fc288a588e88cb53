//! Mounting a reverse view.

use super::{
    gate::Gate,
    mounter::Mounter,
    permission_policy::PermissionPolicy,
    place::MountPoint,
    reverse::Reversed,
    session::{MountOptions, Session, Unmounter, usual_loops},
};
use fuser::{Config, SessionACL};
use reverse::View;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Mounts a reverse view read-only on `target`, for which `mounter` was started, and returns once it
/// answers. Only the mount-related options are used; the others concern vaults.
///
/// # Errors
/// The error of the kernel or fusermount3.
pub fn mount_reverse(
    view: View,
    target: &MountPoint,
    mounter: Arc<Mounter>,
    options: &MountOptions,
) -> io::Result<Session> {
    let count = options.loops.unwrap_or_else(usual_loops).max(1);
    let judge = PermissionPolicy::on_mount(options.allow_other, &options.flags);
    let fd = mounter.mount(true)?;
    let ended = Arc::new(AtomicBool::new(false));
    let unmounter = Unmounter {
        target: target.path().into(),
        ended: ended.clone(),
        one_at_a_time: Arc::default(),
        gate: Gate::new(),
        mounter,
        device: Arc::default(),
    };
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(count);
    config.clone_fd = count > 1;
    let session = fuser::Session::from_fd(Reversed::new(view, judge, options.owners), fd, config.acl, config);
    let session = session.inspect_err(|_| unmounter.give_up())?;
    let last_resort = unmounter.clone();
    let serve = move || {
        let served = session.run();
        if served.is_err() {
            last_resort.give_up();
        }
        ended.store(true, Ordering::Release);
        served
    };
    if let Some(device) = target.device_number() {
        let _ = unmounter.device.set(device);
    }
    let thread =
        thread::Builder::new().name("mount".into()).spawn(serve).inspect_err(|_| unmounter.give_up())?;
    Ok(Session { unmounter, thread: Some(thread) })
}
