//! Which way a piece goes on a device, by how many chunks that has: where each way is the fastest depends on the
//! device, its bus and its driver, and is measured.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a piece is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By kernels with a warp for each chunk, which read and write the host's memory.
    Direct,
    /// Copied to the device, a warp for each chunk: soonest done.
    Wide,
    /// Copied to the device, a thread for each tag: most done in a time.
    Narrow,
}

/// The chunks on a device up to which a piece goes which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// While the device has no more chunks than this, nothing is copied to it: the kernels read and write the host's
    /// memory, so that transfers and work overlap within a piece. Means something up to `wide` only.
    pub direct: usize,
    /// While it has no more than this, a chunk is done by a warp; otherwise its tag is made by a thread.
    pub wide: usize,
}

/// What is assumed of a device that was not measured: right for an H200.
impl Default for Ways {
    fn default() -> Self {
        Ways { direct: 1024, wide: 8192 }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Ways { direct, wide } = self;
        write!(f, "a warp a chunk up to {wide} chunks at a time, not copied up to {direct}")
    }
}

impl Ways {
    /// Each way for whatever there is: direct, wide and narrow.
    pub const FORCED: [Ways; 3] = [
        Ways { direct: usize::MAX, wide: usize::MAX },
        Ways { direct: 0, wide: usize::MAX },
        Ways { direct: 0, wide: 0 },
    ];

    /// The way of a piece with which `chunks` chunks are on the device.
    pub(super) fn of(self, chunks: usize) -> Way {
        match chunks {
            _ if chunks > self.wide => Way::Narrow,
            _ if chunks > self.direct => Way::Wide,
            _ => Way::Direct,
        }
    }

    /// Those with which batches take the shortest times: the measured ones of each forced way, for these numbers of
    /// chunks, which rise. Each counts as much as any other, however long it takes. Where nothing is better, the
    /// assumed ones.
    pub fn fastest(timed: &[(usize, [u64; 3])]) -> Ways {
        let cost = |ways: Ways| -> f64 {
            let times = timed.iter().map(|(chunks, times)| match ways.of(*chunks) {
                Way::Direct => times[0],
                Way::Wide => times[1],
                Way::Narrow => times[2],
            });
            times.map(|time| (time.max(1) as f64).ln()).sum()
        };
        let ends = || [0].into_iter().chain(timed.iter().map(|(chunks, _)| *chunks));
        let pairs = ends().flat_map(|wide| ends().take_while(move |d| *d <= wide).map(move |d| (d, wide)));
        let assumed = (Ways::default(), cost(Ways::default()));
        let better = |best: (Ways, f64), (direct, wide)| {
            let ways = Ways { direct, wide };
            let cost = cost(ways);
            if cost < best.1 { (ways, cost) } else { best }
        };
        pairs.fold(assumed, better).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_ways_change_where_the_times_cross() {
        let chunks = [16, 64, 256, 1024, 4096, 16384];
        let timed = |direct: usize, wide: usize| -> Vec<(usize, [u64; 3])> {
            let times = |n: usize| match n {
                _ if n <= direct => [10, 12, 30],
                _ if n <= wide => [20, 15, 17],
                _ => [90, 80, 40],
            };
            chunks.iter().map(|n| (*n, times(*n))).collect()
        };
        for (direct, wide) in [(256, 4096), (64, 64), (0, 1024), (0, 0), (4096, 16384)] {
            assert_eq!(Ways::fastest(&timed(direct, wide)), Ways { direct, wide });
        }
    }

    #[test]
    fn what_makes_no_difference_stays_as_assumed() {
        let same: Vec<_> = [16, 1024, 16384].map(|n| (n, [7; 3])).into();
        assert_eq!(Ways::fastest(&same), Ways::default());
        assert_eq!(Ways::fastest(&[]), Ways::default());
        // One odd time does not move what all others say.
        let mut odd = same;
        odd.insert(0, (8, [9, 10, 10]));
        assert_eq!(Ways::fastest(&odd), Ways::default());
    }
}
