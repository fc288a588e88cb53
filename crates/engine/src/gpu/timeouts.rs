//! Time limits for a device's work; the only place that defines them.

use std::time::Duration;

const MIB: u128 = 1 << 20;

/// Time after which a device counts as hanging. It grows with the bytes that the device has to process,
/// including earlier work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Allowance for any request.
    pub base: Duration,
    /// Additional allowance per MiB.
    pub per_mib: Duration,
}

/// Assumes 8 MiB per second: a slower device is useless, because a single core is faster.
impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { base: Duration::from_secs(10), per_mib: Duration::from_millis(125) }
    }
}

impl Timeouts {
    /// Limit for `bytes` bytes.
    pub fn limit(self, bytes: usize) -> Duration {
        self.base.saturating_add(self.time(bytes))
    }

    /// The part of the limit that depends on the bytes.
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
        let timeouts = Timeouts { base: Duration::from_secs(3), per_mib: Duration::from_secs(2) };
        for (bytes, millis) in [(0, 3000), (1 << 19, 4000), (1 << 20, 5000), (12 << 20, 27_000)] {
            assert_eq!(timeouts.limit(bytes), Duration::from_millis(millis));
        }
        assert!(timeouts.limit(usize::MAX) > Duration::from_secs(1 << 30));
        // A full ring of the largest pieces.
        assert_eq!(Timeouts::default().limit(12 * (16 << 20)), Duration::from_secs(34));
    }
}
