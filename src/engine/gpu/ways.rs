//! Which way a piece goes on a device, by how many chunks that has.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ways {
    /// While the device has no more chunks than this, nothing is copied to it: the kernels read and write the host's
    /// memory, so that transfers and work overlap within a piece. Means something up to `wide` only.
    pub direct: usize,
    /// While it has no more than this, a chunk is done by a warp; otherwise its tag is made by a thread.
    pub wide: usize,
    /// While it has no more than this, a piece is soon done, and its caller watches for that. Otherwise it sleeps.
    pub watched: usize,
}

/// The fastest on an H200.
impl Default for Ways {
    fn default() -> Self {
        Ways { direct: 1024, wide: 8192, watched: 4096 }
    }
}

impl Ways {
    /// Each way for whatever there is: direct, wide and narrow; watched or not.
    pub const FORCED: [Ways; 3] = [
        Ways { direct: usize::MAX, wide: usize::MAX, watched: usize::MAX },
        Ways { direct: 0, wide: usize::MAX, watched: 0 },
        Ways { direct: 0, wide: 0, watched: usize::MAX },
    ];

    /// The way of a piece with which `chunks` chunks are on the device.
    pub(super) fn of(self, chunks: usize) -> Way {
        match chunks {
            _ if chunks > self.wide => Way::Narrow,
            _ if chunks > self.direct => Way::Wide,
            _ => Way::Direct,
        }
    }
}
