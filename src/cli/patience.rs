//! Calls on a mount that may hang: the kernel blocks them until its process answers, regardless of
//! signals.

use fuse::Patience;
use std::{
    io, panic,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

/// Polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// Runs `work` on a separate thread. After a timeout or interruption the thread is left running, and
/// ends with this process.
///
/// # Errors
/// Those of `work`; `TimedOut`; `Interrupted`.
pub fn patiently<T: Send + 'static>(
    patience: &Patience,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (since, thread) = (Instant::now(), thread::spawn(work));
    while !thread.is_finished() {
        if patience.stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if patience.most.is_some_and(|most| since.elapsed() >= most) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(LOOK);
    }
    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{atomic::AtomicBool, mpsc::channel};

    #[test]
    fn what_is_not_done_is_left_behind() {
        assert_eq!(patiently(&Patience::default(), || Ok(7)).unwrap(), 7);
        let stop = AtomicBool::new(true);
        let (at_once, stopped) = (Some(Duration::ZERO), Some(&stop));
        for (most, stop, expected) in
            [(at_once, None, io::ErrorKind::TimedOut), (None, stopped, io::ErrorKind::Interrupted)]
        {
            let (go_on, wait) = channel::<()>();
            let error = patiently(&Patience { most, stop }, move || Ok(wait.recv())).unwrap_err();
            assert_eq!(error.kind(), expected);
            drop(go_on);
        }
    }
}
