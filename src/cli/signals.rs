//! Handles signals such as Ctrl-C at safe points instead of letting them kill the process anywhere.

use super::exit::{Failure, Outcome};
use fuse::Patience;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Makes a write past the file size limit (`ulimit -f`) fail like one on a full disk, instead of killing the
/// process.
pub fn survive_size_limit() {
    // If the handler cannot be installed, the limit still kills the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// A flag that is set when a terminating signal arrives.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Makes SIGINT, SIGTERM and SIGHUP only set the flag from now on.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn watch() -> Outcome<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|e| Failure::io("signal handlers", &e))?;
        }
        Ok(Interrupt(flag))
    }

    /// The flag itself, for work that checks it often.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Limits the wait for a mount's answer: until the flag is set.
    pub fn patience(&self) -> Patience<'_> {
        Patience { most: None, stop: Some(&self.0) }
    }

    /// Sets the flag, as a signal does.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if the flag is set.
    ///
    /// # Errors
    /// [`Failure::interrupted`].
    pub fn check(&self) -> Outcome {
        if self.0.load(Ordering::Relaxed) { Err(Failure::interrupted()) } else { Ok(()) }
    }
}
