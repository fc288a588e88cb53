//! How a piece is processed on a device, depending on the number of chunks there.

/// How a piece is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferMode {
    /// In host memory, by kernels with one warp per chunk.
    Direct,
    /// Copied to the device, one warp per chunk: lowest latency.
    Wide,
    /// Copied to the device, one thread per tag: highest throughput.
    Narrow,
}

/// Thresholds for each way, in chunks on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferModes {
    /// Up to this many chunks on the device, nothing is copied: the kernels read and write host memory, so
    /// that transfers and computation overlap within a piece. Values above `wide` have no effect.
    pub direct: usize,
    /// Up to this many, a warp processes each chunk. Above, a thread computes each tag.
    pub wide: usize,
    /// Up to this many, a piece is done soon and its caller watches for that. Above, the caller sleeps.
    pub watched: usize,
}

/// The fastest on an H200.
impl Default for TransferModes {
    fn default() -> Self {
        TransferModes { direct: 1024, wide: 8192, watched: 4096 }
    }
}

impl TransferModes {
    /// Forces each way regardless of load: direct, wide and narrow; watched or not.
    pub const FORCED: [TransferModes; 3] = [
        TransferModes { direct: usize::MAX, wide: usize::MAX, watched: usize::MAX },
        TransferModes { direct: 0, wide: usize::MAX, watched: 0 },
        TransferModes { direct: 0, wide: 0, watched: usize::MAX },
    ];

    /// The way for a piece that brings the number of chunks on the device to `chunks`.
    pub(super) fn of(self, chunks: usize) -> TransferMode {
        match chunks {
            _ if chunks > self.wide => TransferMode::Narrow,
            _ if chunks > self.direct => TransferMode::Wide,
            _ => TransferMode::Direct,
        }
    }
}
