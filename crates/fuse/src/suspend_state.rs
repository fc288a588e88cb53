//! The reason why a closed gate holds requests.

use std::time::Instant;

/// The event that held requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendState {
    /// Requests are not held.
    Not,
    /// The vault is locked; requests wait for the unlock.
    Locked,
    /// The vault is frozen; requests wait for the thaw, which happens at `until` at the latest.
    Frozen {
        /// When the vault thaws automatically.
        until: Instant,
        /// Number of the freeze, unique among all mounts.
        number: u64,
    },
}
