//! What the kernel still has, where it gathers writes.

use std::ops::Range;

/// Bytes that a write came behind. The kernel has several writes of a file under way, and they come in any order. Until these
/// bytes have come, nothing behind them goes to the store by itself: a killed mount would leave zeros there that nobody wrote.
#[derive(Default)]
pub(super) struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// Notes bytes between the end of the file and a write behind it.
    pub(super) fn add(&mut self, gap: Range<u64>) {
        self.0.push(gap);
    }

    /// These bytes have come.
    pub(super) fn fill(&mut self, written: &Range<u64>) {
        let rest = |gap: Range<u64>| {
            let before = gap.start..gap.end.min(written.start);
            let behind = gap.start.max(written.end)..gap.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        self.0 = std::mem::take(&mut self.0).into_iter().flat_map(rest).collect();
    }

    /// Nothing more is to come: what is left are holes.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing is to come.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the first one begins; the end of any file if there is none.
    pub(super) fn first(&self) -> u64 {
        self.0.iter().map(|gap| gap.start).min().unwrap_or(u64::MAX)
    }
}
