//! The trees of many messages, described for a device's kernels (`kernels/hash.cu`): level by level, with
//! the nodes of all trees in one launch. This module only counts; it does not hash.

use super::{
    compress::{BLOCK, VALUE},
    tree::PART_LEVELS,
};

/// Size of a layer's description in bytes: struct Md6Layer of `kernels/md6.cuh`.
pub const LAYER: usize = 40;

/// Up to this many nodes per multiprocessor, several threads share a node.
const FEW: usize = 48;

/// Whether there are so few nodes that 16 threads per node are faster than one.
pub fn are_few(nodes: u32, processors: usize) -> bool {
    nodes as usize <= FEW * processors
}

/// A message, or a part of one, in memory that the device can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Offset of its first byte: a multiple of 16.
    pub data: u64,
    /// Its length in bits; for a part at most that of `Function::part_len`.
    pub bits: u64,
    /// Its part number, if it is a part of a longer message.
    pub part: Option<u64>,
}

/// One level of all trees that reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// 1 for the leaves, which read the messages. Higher levels read the values of the level below.
    pub number: u8,
    /// Range of its layers: index of the first one, and their number.
    pub layers: (usize, usize),
    /// Total number of nodes.
    pub nodes: u32,
}

/// The launches for a set of trees, from the leaves up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forest {
    /// Descriptions of the layers of all levels, `LAYER` bytes each.
    pub layers: Vec<u8>,
    /// The levels, each of which depends on the one before.
    pub levels: Vec<Level>,
    /// Total number of values, 128 bytes each: first the top value of each tree, in the order of the trees,
    /// then the inner ones.
    pub values: usize,
}

impl Forest {
    /// Plans the levels of these trees. A node has `node` bytes: 512 for MD6.
    ///
    /// # Panics
    /// If a level has 2^31 nodes or more.
    pub fn new(trees: &[Tree], node: usize) -> Self {
        let mut forest = Forest { layers: Vec::new(), levels: Vec::new(), values: trees.len() };
        // Trees that reach the current level, with the offset and length in bits of their data.
        let mut rows: Vec<(usize, u64, u64)> =
            trees.iter().enumerate().map(|(tree, of)| (tree, of.data, of.bits)).collect();
        for number in 1.. {
            let (mut nodes, mut above, before) = (0, Vec::new(), forest.layers.len() / LAYER);
            for (tree, data, bits) in &rows {
                let own = bits.div_ceil(8 * node as u64).max(1);
                let part = trees[*tree].part;
                let is_top = part.map_or(own == 1, |_| u32::from(number) == PART_LEVELS);
                let first = part.map_or(0, |index| index << (2 * (PART_LEVELS - u32::from(number))));
                let value = if is_top { *tree } else { forest.values };
                if !is_top {
                    forest.values += own as usize;
                    above.push((*tree, (value * VALUE) as u64, own * 8 * VALUE as u64));
                }
                for word in [*data, *bits, first] {
                    forest.layers.extend(word.to_le_bytes());
                }
                for word in [nodes as u32, value as u32, u32::from(part.is_none()), 0] {
                    forest.layers.extend(word.to_le_bytes());
                }
                nodes += own;
                assert!(nodes < 1 << 31, "more nodes than a launch takes"); // invariant: batches are smaller
            }
            forest.levels.push(Level { number, layers: (before, rows.len()), nodes: nodes as u32 });
            rows = above;
            if rows.is_empty() {
                break;
            }
        }
        forest
    }

    /// Plans the levels for MD6.
    ///
    /// # Panics
    /// As `new`.
    pub fn of_md6(trees: &[Tree]) -> Self {
        Forest::new(trees, BLOCK)
    }
}
