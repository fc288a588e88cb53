//! Waiting for what happens by itself.

use std::{
    thread,
    time::{Duration, Instant},
};

/// After this long, a test has failed.
pub const NEVER: Duration = Duration::from_secs(60);

/// Waits until the condition holds.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + NEVER;
    while !condition() {
        assert!(Instant::now() < end, "{what}: never");
        thread::sleep(Duration::from_millis(5));
    }
}
