//! Messages between the program and its GPU's process. Key slots, descriptors, data and results are in
//! shared memory; messages only refer to them.

use super::{
    driver::Description,
    plan::{Limits, Run},
};
use crate::buffer::MemoryId;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A request to the process as a whole. Every request except `Forget` gets one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerRequest {
    /// Report the number of devices.
    Count,
    /// Open the device with this number, for pieces within these limits.
    Open { number: usize, limits: Limits },
    /// Map and lock the memory whose descriptor is attached.
    Lend { memory: MemoryId, len: usize },
    /// Release the memory; nothing uses it.
    Forget { memory: MemoryId },
    /// Create another queue, which takes its orders from the attached socket. Its control block was
    /// lent before.
    Queue { control_block: MemoryId },
}

/// The process's answer to a request or an order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerAnswer {
    Done,
    Devices(usize),
    Opened(Description),
    Failed(String),
}

/// A message to a queue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GpuCommand {
    /// Process a piece.
    Submit(PieceOrder),
    /// Answer once the last piece is done: its caller has stopped watching.
    Notify,
}

/// A piece to seal or open. Its key slots and descriptors are at the start of the queue's control
/// block; the results follow them. Once the results are complete, the device writes the order's number
/// behind them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PieceOrder {
    /// Differs from the previous order's number.
    pub number: u32,
    /// Whether the caller watches for the number. If not, or on an error, it gets an answer.
    pub is_watched: bool,
    /// Open if true, else seal.
    pub opens: bool,
    pub keys: usize,
    pub chunks: usize,
    /// The classes, each with its range of chunks.
    pub classes: Vec<(usize, Range<usize>)>,
    /// Use one warp per chunk.
    pub wide: bool,
    pub input: ChannelSide,
    pub output: ChannelSide,
}

/// How a piece's bytes get to the device, or back.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChannelSide {
    /// Copied, run by run, between this memory and the device.
    Copied(MemoryId, Vec<Run>),
    /// The kernels access this memory directly; descriptors contain offsets in it.
    Direct(MemoryId),
}

impl ChannelSide {
    /// The host's memory on this side.
    pub fn memory(&self) -> MemoryId {
        match self {
            ChannelSide::Copied(memory, _) | ChannelSide::Direct(memory) => *memory,
        }
    }
}
