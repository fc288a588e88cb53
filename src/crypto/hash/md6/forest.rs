//! The trees of many messages as the kernels of a device take them (`kernels/hash.cu`): level by level, the nodes of
//! all trees in one launch. Counts alone; nothing here hashes.

use super::{
    compress::{BLOCK, VALUE},
    tree::PART_LEVELS,
};

/// Bytes of a layer's description: struct Md6Layer of `kernels/md6.cuh`.
pub const LAYER: usize = 40;

/// Up to so many nodes for each multiprocessor, threads share nodes.
const FEW: usize = 48;

/// Whether so few nodes are done sooner if 16 threads share each of them than by a thread each.
pub fn are_few(nodes: u32, processors: usize) -> bool {
    nodes as usize <= FEW * processors
}

/// A message, or a part of one, in memory that the device sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Where it begins: a multiple of 16.
    pub data: u64,
    /// Its length in bits; of a part, at most those of `Function::part_len`.
    pub bits: u64,
    /// Its number, if it is a part of a longer message.
    pub part: Option<u64>,
}

/// A level of all trees that are so high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// 1 for the leaves, whose data are the messages; the others' data are values.
    pub number: u8,
    /// Which of the layers it takes: the first one and how many.
    pub layers: (usize, usize),
    /// Nodes in all.
    pub nodes: u32,
}

/// What to launch, from the leaves up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forest {
    /// The layers of all levels, `LAYER` bytes each.
    pub layers: Vec<u8>,
    /// The levels in the order in which they depend on each other.
    pub levels: Vec<Level>,
    /// Values of 128 bytes in all: first those at the top of each tree, in the trees' order, then inner ones.
    pub values: usize,
}

impl Forest {
    /// The levels of these trees, whose nodes have `node` bytes: 512 in MD6.
    ///
    /// # Panics
    /// If they have 2^31 nodes or more.
    pub fn new(trees: &[Tree], node: usize) -> Self {
        let mut forest = Forest { layers: Vec::new(), levels: Vec::new(), values: trees.len() };
        // Trees that go on, and where their data lie.
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
                assert!(nodes < 1 << 31, "more nodes than a launch takes"); // invariant: callers' batches are far below
            }
            forest.levels.push(Level { number, layers: (before, rows.len()), nodes: nodes as u32 });
            rows = above;
            if rows.is_empty() {
                break;
            }
        }
        forest
    }

    /// The levels of MD6 itself.
    ///
    /// # Panics
    /// As `new`.
    pub fn of_md6(trees: &[Tree]) -> Self {
        Forest::new(trees, BLOCK)
    }
}
