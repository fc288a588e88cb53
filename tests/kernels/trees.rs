//! Launches for MD6 trees, level by level.

use super::runner::{Argument, Geometry, Runner};
use crypto::hash::md6::{
    Md6, VALUE,
    forest::{Forest, LAYER, Tree},
};

/// A message or a part, and the number of unused bits in its last byte.
pub struct Message {
    pub bytes: Vec<u8>,
    pub unused: u8,
    pub part: Option<u64>,
}

/// A kernel, with one or 16 threads per node, and its geometry: blocks, and threads per block.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kernel: &'a str,
    pub blocks: u32,
    pub threads: u32,
}

/// Dynamic shared memory per thread if 16 threads share a node of this many bytes.
fn shared(node: usize) -> u32 {
    (node / 8 + 48) as u32
}

/// The values at the roots of the trees.
pub fn tops(
    runner: &mut Runner,
    md6: &Md6,
    messages: &[Message],
    node: usize,
    launch: Launch,
) -> Vec<[u8; VALUE]> {
    let (mut data, mut trees) = (Vec::new(), Vec::new());
    for message in messages {
        let bits = 8 * message.bytes.len() as u64 - u64::from(message.unused);
        trees.push(Tree { data: data.len() as u64, bits, part: message.part });
        data.extend(&message.bytes);
        data.resize(data.len().next_multiple_of(16), 0x77);
    }
    let forest = Forest::new(&trees, node);
    let mut values = vec![0xee; forest.values * VALUE];
    for level in &forest.levels {
        let (first, count) = level.layers;
        let mut arguments = vec![
            Argument::Buffer(md6.shared().to_vec()),
            Argument::Buffer(forest.layers[first * LAYER..(first + count) * LAYER].to_vec()),
            Argument::Number(count as u64),
            Argument::Number(level.number.into()),
            Argument::Number(level.nodes.into()),
        ];
        let values_in = Argument::Buffer(values);
        arguments.extend(match level.number {
            1 => [Argument::Buffer(data.clone()), values_in],
            // Above the leaves, the data is the values of the level below.
            _ => [values_in, Argument::Same(5)],
        });
        let Launch { kernel, blocks, threads } = launch;
        let geometry = Geometry { blocks, threads, shared: threads * shared(node) };
        values = runner.run(kernel, geometry, arguments).pop().expect("values");
    }
    values.as_chunks().0[..messages.len()].to_vec()
}
