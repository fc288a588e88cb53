//! MD6's mode of operation: a tree in which every node has four children, and the sequential mode above the
//! tree if its height is limited.

use super::{
    super::digest::Digest,
    Md6,
    compress::{BLOCK, Node, VALUE, Value, compress},
};

/// Number of levels in a part of a long message. A part results in one value.
pub(super) const PART_LEVELS: u32 = 6;
/// Size of a part in bytes.
pub(in super::super) const PART: usize = BLOCK << (2 * (PART_LEVELS - 1));

/// A section of one level: the data of consecutive nodes.
struct Layer<'a> {
    data: &'a [u8],
    /// Number of unused low bits in its last byte.
    unused: u8,
    /// Index of its first node.
    first: u64,
    /// Whether it is the whole level, so that its node is the root if it has only one.
    whole: bool,
}

impl Layer<'_> {
    fn nodes(&self) -> usize {
        self.data.len().div_ceil(BLOCK).max(1)
    }
}

/// The values of the nodes in these layers, which are all on level `level` (from 1).
fn climb(md6: &Md6, level: u8, layers: &[Layer]) -> Vec<Value> {
    // The last node of a layer may need padding, so it is copied.
    let mut tails: Vec<[u8; BLOCK]> = Vec::with_capacity(layers.len());
    for layer in layers {
        let start = (layer.nodes() - 1) * BLOCK;
        let mut tail = [0; BLOCK];
        let rest = &layer.data[start..];
        tail[..rest.len()].copy_from_slice(rest);
        if layer.unused > 0 && !rest.is_empty() {
            tail[rest.len() - 1] &= 0xff << layer.unused;
        }
        tails.push(tail);
    }
    let mut nodes = Vec::with_capacity(layers.iter().map(Layer::nodes).sum());
    for (layer, tail) in layers.iter().zip(&tails) {
        let count = layer.nodes();
        let id = |index: usize| u64::from(level) << 56 | (layer.first + index as u64);
        let inner = layer.data.as_chunks::<BLOCK>().0.iter().take(count - 1).enumerate();
        nodes.extend(inner.map(|(i, data)| Node { data, id: id(i), control: md6.control(false, 0) }));
        let padding = ((count * BLOCK - layer.data.len()) * 8) as u64 + u64::from(layer.unused);
        let control = md6.control(layer.whole && count == 1, padding);
        nodes.push(Node { data: tail, id: id(count - 1), control });
    }
    compress(md6, &nodes)
}

/// Extracts the digest from the last bits of the root's value.
pub(super) fn truncate(md6: &Md6, root: &Value) -> Digest {
    let bits = usize::from(md6.bits());
    let bytes = &root[VALUE - bits.div_ceil(8)..];
    let shift = (8 - bits % 8) % 8;
    let mut digest = [0; 64];
    for (i, byte) in bytes.iter().enumerate() {
        let next = bytes.get(i + 1).copied().unwrap_or(0);
        digest[i] = ((u16::from_be_bytes([*byte, next]) << shift) >> 8) as u8;
    }
    Digest::new(md6.bits(), &digest)
}

/// The value of the final node of a message. The `unused` lowest bits of its last byte do not count.
pub(super) fn top(md6: &Md6, message: &[u8], unused: u8) -> Value {
    let (mut data, mut unused) = (message.to_vec(), unused);
    for level in 1..=md6.levels {
        let values = climb(md6, level, &[Layer { data: &data, unused, first: 0, whole: true }]);
        if let [root] = &values[..] {
            return *root;
        }
        (data, unused) = (values.concat(), 0);
    }
    sequence(md6, md6.levels + 1, &data, unused)
}

/// Hashes the nodes of level `level` sequentially: the value of each node precedes the data of the next one.
fn sequence(md6: &Md6, level: u8, data: &[u8], unused: u8) -> Value {
    const OWN: usize = BLOCK - VALUE;
    let count = data.len().div_ceil(OWN).max(1);
    let mut value = [0; VALUE];
    for index in 0..count {
        let own = &data[index * OWN..data.len().min((index + 1) * OWN)];
        let last = index + 1 == count;
        let mut block = [0; BLOCK];
        block[..VALUE].copy_from_slice(&value);
        block[VALUE..][..own.len()].copy_from_slice(own);
        let spare = if last && !own.is_empty() { unused } else { 0 };
        block[VALUE + own.len() - usize::from(!own.is_empty())] &= 0xff << spare;
        let control = md6.control(last, ((OWN - own.len()) * 8) as u64 + u64::from(spare));
        let node = Node { data: &block, id: u64::from(level) << 56 | index as u64, control };
        value = compress(md6, &[node])[0];
    }
    value
}

/// The digest of each message, computed level by level with the nodes of all messages side by side.
pub(super) fn digests(md6: &Md6, messages: &[&[u8]]) -> Vec<Digest> {
    if md6.levels < super::LEVELS_MAX {
        return messages.iter().map(|message| truncate(md6, &top(md6, message, 0))).collect();
    }
    let mut digests = vec![None; messages.len()];
    let mut above: Vec<(usize, Vec<u8>)> = Vec::new();
    for level in 1.. {
        let layer = |data| Layer { data, unused: 0, first: 0, whole: true };
        let (whose, layers): (Vec<usize>, Vec<Layer>) = match level {
            1 => messages.iter().enumerate().map(|(i, data)| (i, layer(data))).unzip(),
            _ => above.iter().map(|(i, data)| (*i, layer(data))).unzip(),
        };
        let values = climb(md6, level, &layers);
        let mut rest = &values[..];
        let mut next = Vec::new();
        for (message, layer) in whose.into_iter().zip(&layers) {
            let (own, others) = rest.split_at(layer.nodes());
            rest = others;
            match own {
                [root] => digests[message] = Some(truncate(md6, root)),
                _ => next.push((message, own.concat())),
            }
        }
        above = next;
        if above.is_empty() {
            break;
        }
    }
    digests.into_iter().flatten().collect()
}

/// The value of the node above part number `index` of a message with several parts.
pub(super) fn part(md6: &Md6, index: u64, data: &[u8]) -> Value {
    let of_level = |level: u32, data: &[u8]| {
        let first = index << (2 * (PART_LEVELS - level));
        climb(md6, level as u8, &[Layer { data, unused: 0, first, whole: false }])
    };
    // A part is never longer than the data that `PART_LEVELS` levels reduce to one value.
    (2..=PART_LEVELS).fold(of_level(1, data), |below, level| of_level(level, below.as_flattened()))[0]
}

/// The upper levels of a message in parts, as far as they are known.
pub struct Md6Join {
    md6: Md6,
    /// For each level, lowest first: values that no node covers yet (at most four), and the index of
    /// the next node.
    levels: Vec<(Vec<u8>, u64)>,
}

impl Md6Join {
    pub(in super::super) fn new(md6: Md6) -> Self {
        Md6Join { md6, levels: Vec::new() }
    }

    /// Adds the value above the next part.
    pub(in super::super) fn push(&mut self, value: &[u8]) {
        self.push_at(0, value);
    }

    fn push_at(&mut self, at: usize, value: &[u8]) {
        if at == self.levels.len() {
            self.levels.push((Vec::with_capacity(BLOCK), 0));
        }
        // Four values become an inner node only when a fifth one arrives; otherwise they might
        // belong to the root.
        if self.levels[at].0.len() == BLOCK {
            let value = self.node(at, false);
            self.push_at(at + 1, &value);
        }
        self.levels[at].0.extend_from_slice(value);
    }

    /// Makes a node from the pending values of a level.
    fn node(&mut self, at: usize, root: bool) -> Value {
        let level = (PART_LEVELS as usize + 1 + at) as u8;
        let (data, first) = &mut self.levels[at];
        let layer = Layer { data, unused: 0, first: *first, whole: root };
        let value = climb(&self.md6, level, &[layer])[0];
        data.clear();
        *first += 1;
        value
    }

    /// The digest of the message.
    pub(in super::super) fn finish(mut self) -> Digest {
        let mut at = 0;
        loop {
            let root = at + 1 == self.levels.len() && self.levels[at].1 == 0;
            let value = self.node(at, root);
            if root {
                return truncate(&self.md6, &value);
            }
            at += 1;
            self.push_at(at, &value);
        }
    }
}
