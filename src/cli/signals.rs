//! Ctrl-C and its like, noticed at safe points instead of ending the process in the middle of something.

use super::exit::{Failure, Outcome};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// From here on a write past the limit of file sizes (`ulimit -f`) fails as one on a full disk does, and no
/// longer kills the process.
pub fn survive_size_limit() {
    // Where the system refuses, the limit kills as it does by default.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Set once a signal that ends a program has come.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on SIGINT, SIGTERM and SIGHUP only set the flag.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn watch() -> Outcome<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|e| Failure::io("signal handlers", &e))?;
        }
        Ok(Interrupt(flag))
    }

    /// The flag itself, for work that looks at it often.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Ends the work as a signal does.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if a signal has come.
    ///
    /// # Errors
    /// [`Failure::interrupted`].
    pub fn check(&self) -> Outcome {
        if self.0.load(Ordering::Relaxed) { Err(Failure::interrupted()) } else { Ok(()) }
    }
}
