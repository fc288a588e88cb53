//! The part of an open file that background threads share with it.

use super::{backing::Backing, context::Context, lock::StateLock, state::State};
use std::sync::Arc;
use store::BackingFile;

/// A stored file, and its state behind the lock.
pub(super) struct FileCore {
    pub(super) backing: Backing,
    pub(super) state: StateLock,
}

impl FileCore {
    /// A file that was never committed.
    pub(super) fn new(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Arc<Self> {
        let state = StateLock::new(State::never_committed(&context));
        Arc::new(FileCore { backing: Backing::new(store, context), state })
    }
}

impl Drop for FileCore {
    /// Closing the descriptor is not enough: a forked child shares the open file until it executes its
    /// program.
    fn drop(&mut self) {
        self.backing.lease.unlock(&*self.backing.store);
    }
}
