//! Times of files.

use format::change_times::Moment;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Time {
    /// The current time of the system clock.
    pub fn now() -> Self {
        // Treat a clock before 1970 as unset.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
    }

    /// Converts to the form used in `format`.
    pub fn moment(self) -> Moment {
        (self.seconds, self.nanoseconds)
    }

    /// Converts from the form used in `format`.
    pub fn from_moment((seconds, nanoseconds): Moment) -> Self {
        Time { seconds, nanoseconds }
    }

    /// Converts the fields of a `stat` structure.
    pub fn from_store(seconds: i64, nanoseconds: u64) -> Self {
        Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
    }
}
