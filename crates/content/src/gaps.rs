//! Ranges still missing because the kernel gathers writes and sends them out of order.

use std::ops::Range;

/// Byte ranges skipped by a write further on. The kernel has several writes of a file in flight, and they
/// arrive in any order. Nothing behind a gap is stored in the background until the gap is filled;
/// otherwise, killing the mount would leave zeros there that the application never wrote.
#[derive(Default)]
pub(super) struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// Adds the bytes between the end of the file and a write further on.
    pub(super) fn add(&mut self, gap: Range<u64>) {
        self.0.push(gap);
    }

    /// Removes bytes that were written.
    pub(super) fn fill(&mut self, written: &Range<u64>) {
        let rest = |gap: Range<u64>| {
            let before = gap.start..gap.end.min(written.start);
            let behind = gap.start.max(written.end)..gap.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        self.0 = std::mem::take(&mut self.0).into_iter().flat_map(rest).collect();
    }

    /// Forgets all gaps: the remaining ones are holes.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there are no gaps.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Start of the first gap; `u64::MAX` if there is none.
    pub(super) fn first(&self) -> u64 {
        self.0.iter().map(|gap| gap.start).min().unwrap_or(u64::MAX)
    }
}
