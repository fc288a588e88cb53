//! How long a device may take for what it is asked: the only place that says so.

use std::time::Duration;

const MIB: u128 = 1 << 20;

/// The time after which a device counts as hanging. It grows with the bytes that the device has to do, those that it was
/// given before among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For anything.
    pub base: Duration,
    /// More for each MiB.
    pub per_mib: Duration,
}

/// Bytes at 8 MiB a second: a device that is slower is of no use, because a single core is faster.
impl Default for Patience {
    fn default() -> Self {
        Patience { base: Duration::from_secs(10), per_mib: Duration::from_millis(125) }
    }
}

impl Patience {
    /// For so many bytes.
    pub fn limit(self, bytes: usize) -> Duration {
        self.base.saturating_add(self.time(bytes))
    }

    /// What they add.
    pub(super) fn time(self, bytes: usize) -> Duration {
        let nanos = self.per_mib.as_nanos().saturating_mul(bytes as u128) / MIB;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_the_bytes() {
        let patience = Patience { base: Duration::from_secs(3), per_mib: Duration::from_secs(2) };
        for (bytes, millis) in [(0, 3000), (1 << 19, 4000), (1 << 20, 5000), (12 << 20, 27_000)] {
            assert_eq!(patience.limit(bytes), Duration::from_millis(millis));
        }
        assert!(patience.limit(usize::MAX) > Duration::from_secs(1 << 30));
        // A full ring of the largest pieces.
        assert_eq!(Patience::default().limit(12 * (16 << 20)), Duration::from_secs(34));
    }
}
