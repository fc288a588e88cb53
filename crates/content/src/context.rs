//! Resources and settings shared by all files of a vault.

use super::{
    ahead_memory::ReadAheadMemory, background::Background, bound::Bounds, budget::Budget, buffer::Buffered,
    keys::ContentKeys, rewrites::Rewrites, slot_memory::SlotMemory, space::Space,
};
use engine::Router;
use std::{sync::Arc, time::Duration};
use store::BackingFile;

/// Crashes that an overwrite survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Any crash, including a power cut.
    #[default]
    Strict,
    /// A kill. A power cut may damage chunks that were being overwritten.
    Relaxed,
}

/// Clears a stored file that has no record.
pub type Vacate = Box<dyn Fn(&dyn BackingFile) -> std::io::Result<()> + Send + Sync>;

/// Fails if this process may no longer write.
pub type Guard = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// Shared by all files of a vault.
pub struct Context {
    /// Derives the keys of files.
    pub keys: ContentKeys,
    /// Seals and opens chunks.
    pub router: Router,
    /// Crashes that an overwrite survives.
    pub durability: Durability,
    /// Nothing may be written; recovery stays in memory.
    pub read_only: bool,
    /// Set if other machines may write the files, too: how long to wait for a lease that one of them
    /// holds.
    pub sharing: Option<Duration>,
    /// Called before anything is written. Fails if another process holds the vault, or has held it
    /// meanwhile.
    pub guard: Guard,
    /// Whether the store overwrites data in place, so that an overwrite needs no new space.
    pub overwrites_in_place: bool,
    /// Tracks the store's free space.
    pub space: Space,
    /// Called before the first record is written to a stored file that was found without one. Copies the
    /// bytes behind the blank header elsewhere, and drops attributes, which are bound to the lost salt.
    pub vacate: Vacate,
    /// Rewrites files under another key; `None` if that never happens.
    pub rewrites: Option<Box<dyn Rewrites>>,
    /// Keeps track of durable records outside the store; `None` without such a keeper.
    pub bounds: Option<Arc<dyn Bounds>>,
    /// Counts the chunks of all files that are written but not yet stored.
    pub buffered: Arc<Buffered>,
    /// Memory for the read-ahead of all files.
    pub ahead: Arc<ReadAheadMemory>,
    /// Memory for leaves of slots.
    pub slots: SlotMemory,
    /// Memory limits for these.
    pub budget: Budget,
    /// Threads for read-ahead, sealing and storing.
    pub background: Background,
}
