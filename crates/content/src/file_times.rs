//! When a file's content changed, and when the application says so.

use super::{error::Result, file_core::FileCore, time::Time};
use std::time::{Duration, Instant};

/// The times of a file's changes.
#[derive(Clone, Copy)]
pub struct FileTimes<'a> {
    core: &'a FileCore,
}

impl<'a> FileTimes<'a> {
    pub(super) fn of(core: &'a FileCore) -> Self {
        FileTimes { core }
    }

    /// The application's modification time, if the store's may differ.
    pub fn mtime(&self) -> Option<Time> {
        self.core.state.read().times.mtime
    }

    /// When the application last changed the content since the file was opened.
    pub fn written_at(&self) -> Option<Time> {
        self.core.state.read().times.written_at
    }

    /// When the content last changed, either in memory or in the store.
    pub fn changed_at(&self) -> Instant {
        self.core.state.read().times.changed_at
    }

    /// Age of the oldest change that is not durable yet.
    pub fn uncommitted_for(&self) -> Duration {
        self.core.state.read().times.uncommitted_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Sets the modification time, which the stored file gets together with the last of its content.
    /// `set` applies a time to the stored file: `time`, or its present one while something is buffered.
    ///
    /// # Errors
    /// Those of `set`.
    pub fn set_mtime(&self, time: Time, set: impl FnOnce(Time) -> Result<()>) -> Result<()> {
        let mut st = self.core.state.write();
        let shown = if st.is_stored() {
            time
        } else {
            let (seconds, nanoseconds) = self.core.backing.store.mtime()?;
            Time { seconds, nanoseconds }
        };
        set(shown)?;
        // Without a lease, the store has the time, and another machine may change it.
        st.times.mtime = (!self.core.backing.lacks_lease()).then_some(time);
        Ok(())
    }
}
