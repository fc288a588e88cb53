//! What the program and the process of its GPU say to each other. Key slots, descriptors, bytes and results are in
//! shared memory; messages only say where.

use super::{
    driver::Description,
    plan::{Limits, Run},
};
use crate::engine::buffer::MemoryId;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What the program asks of the process as a whole. Every request but `Forget` gets one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// How many devices are there?
    Count,
    /// Open the device of that number, for pieces of at most so much.
    Open { number: usize, limits: Limits },
    /// Map and lock the memory that is handed over.
    Lend { memory: MemoryId, len: usize },
    /// Let go of it; nothing uses it.
    Forget { memory: MemoryId },
    /// Make another queue, which takes its orders from the socket that is handed over. Its desk was lent before.
    Lane { desk: MemoryId },
}

/// What the process answers, to requests and orders.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Devices(usize),
    Opened(Description),
    Failed(String),
}

/// What a lane is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// To do a piece.
    Do(Order),
    /// To answer once the last piece is done: its caller watches no longer.
    Tell,
}

/// A piece to seal or open. Its key slots and descriptors lie at the beginning of the lane's desk, its results go
/// behind them. When those are there the device writes the order's number behind them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Another one than that of the order before.
    pub number: u32,
    /// Whether the caller watches for the number; otherwise, and after an error, it gets an answer.
    pub is_watched: bool,
    /// Otherwise sealed.
    pub opens: bool,
    pub keys: usize,
    pub chunks: usize,
    /// Which of the chunks each class has.
    pub classes: Vec<(usize, Range<usize>)>,
    /// A warp for each chunk.
    pub wide: bool,
    pub input: Side,
    pub output: Side,
}

/// How a piece's bytes get to the device, or back.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Side {
    /// Copied, run by run, between this memory and the device.
    Copied(MemoryId, Vec<Run>),
    /// The kernels read or write this memory; descriptors have places in it.
    Direct(MemoryId),
}

impl Side {
    /// The memory.
    pub fn memory(&self) -> MemoryId {
        match self {
            Side::Copied(memory, _) | Side::Direct(memory) => *memory,
        }
    }
}
