//! What requests at a closed gate wait for.

use std::time::Instant;

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Not,
    /// Until the vault is unlocked.
    Locked,
    /// Until the vault is thawed, at this time by itself.
    Frozen {
        /// When.
        until: Instant,
        /// Which freeze it is, among those of all mounts.
        number: u64,
    },
}
