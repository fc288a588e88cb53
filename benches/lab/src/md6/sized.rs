//! MD6's tree with nodes of another size, as measured in a publication: the reference for its kernels. It
//! is MD6 only with nodes of 512 bytes. Written for readability, not for speed.

use crypto::hash::{
    Digest,
    md6::{Md6, Q, VALUE, Value},
};

/// Words computed per round.
const ROUND: usize = 16;
/// The first round's constant.
const FIRST: u64 = 0x0123_4567_89ab_cdef;
/// Shift distances of each step of a round: right, then left.
const SHIFTS: [(u32, u32); ROUND] = [
    (10, 11),
    (5, 24),
    (13, 9),
    (10, 16),
    (11, 15),
    (12, 9),
    (2, 27),
    (7, 15),
    (14, 6),
    (15, 2),
    (7, 29),
    (13, 8),
    (11, 15),
    (7, 5),
    (6, 31),
    (12, 9),
];

/// The digest of a message with a tree whose nodes have `node` bytes: a multiple of 128, at least 256.
pub fn digest(md6: &Md6, message: &[u8], node: usize) -> Digest {
    let mut data = message.to_vec();
    for level in 1_u64.. {
        let nodes = data.len().div_ceil(node).max(1);
        let padding = nodes * node - data.len();
        data.resize(nodes * node, 0);
        let value = |index: usize| {
            let padding = if index + 1 == nodes { 8 * padding as u64 } else { 0 };
            let flags = u64::from(nodes == 1) << 36 | padding << 20;
            compress(md6, &data[index * node..][..node], level << 56 | index as u64, flags)
        };
        let values: Vec<Value> = (0..nodes).map(value).collect();
        if let [root] = &values[..] {
            return md6.of_root(root);
        }
        data = values.concat();
    }
    unreachable!("a tree ends") // invariant: every level has fewer nodes than the one below, down to one
}

/// The value of a node. `flags` contains the bits of its control word that nodes do not share.
fn compress(md6: &Md6, data: &[u8], id: u64, flags: u64) -> Value {
    let shared = md6.shared();
    let shared = shared.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut a: Vec<u64> = Q.into_iter().chain(shared).collect();
    // The shared part ends with the control word; the node's number precedes that.
    a.insert(Q.len() + 8, id);
    a[Q.len() + 9] |= flags;
    a.extend(data.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes)));
    let n = a.len();
    let mut constant = FIRST;
    for _ in 0..md6.rounds() {
        for (right, left) in SHIFTS {
            let i = a.len();
            let mut x = constant ^ a[i - n] ^ a[i - 17] ^ (a[i - 18] & a[i - 21]) ^ (a[i - 31] & a[i - 67]);
            x ^= x >> right;
            a.push(x ^ (x << left));
        }
        constant = constant.rotate_left(1) ^ (constant & Q[0]);
    }
    let mut value = [0; VALUE];
    for (bytes, word) in value.as_chunks_mut::<8>().0.iter_mut().zip(&a[a.len() - ROUND..]) {
        *bytes = word.to_be_bytes();
    }
    value
}
