//! Bit-sliced Kuznyechik: one word for each bit of a block, with one bit for each of the blocks processed
//! at once. Constant-time: no branch or address depends on key or text.

use super::{
    ctr::{BLOCK, Text},
    kuznyechik::{RoundKeys, substitute_linear},
    kuznyechik_field::{PI_INVERSE, linear},
    kuznyechik_sbox::{Word, substitute, substitute_inverse},
};

/// Word `[i][k]` contains bit `k` of byte `i` of every block.
type Planes<W> = [[W; 8]; BLOCK];
/// Maximum number of blocks for any type of word.
const MOST_BLOCKS: usize = 256;

/// A word of 64-bit lanes. Block `64 * l + b` is at bit `b` of lane `l`.
pub(super) trait Wide: Word {
    /// Number of lanes: 1, 2 or 4.
    const LANES: usize;

    /// Makes a word from lanes; those beyond `LANES` are ignored.
    fn of(lanes: [u64; 4]) -> Self;

    /// The lanes; zeros beyond `LANES`.
    fn lanes(self) -> [u64; 4];

    /// Shifts every lane left.
    fn shl<const N: i32>(self) -> Self;

    /// Shifts every lane right.
    fn shr<const N: i32>(self) -> Self;
}

impl Wide for u64 {
    const LANES: usize = 1;

    #[inline(always)]
    fn of(lanes: [u64; 4]) -> Self {
        lanes[0]
    }

    #[inline(always)]
    fn lanes(self) -> [u64; 4] {
        [self, 0, 0, 0]
    }

    #[inline(always)]
    fn shl<const N: i32>(self) -> Self {
        self << N
    }

    #[inline(always)]
    fn shr<const N: i32>(self) -> Self {
        self >> N
    }
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[inline(always)]
pub(super) fn ctr<W: Wide>(keys: &RoundKeys, counter: &[u8; BLOCK], text: Text<'_>) {
    let blocks = 64 * W::LANES;
    let mut stream = [[0; BLOCK]; MOST_BLOCKS];
    for (mut first, part) in text.parts(counter, blocks) {
        let skipped = usize::from(first[BLOCK - 1]) % blocks;
        first[BLOCK - 1] -= skipped as u8;
        let mut state = first_round::<W>(keys, &first);
        for key in &keys.encrypt[2..] {
            round(&mut state, key);
        }
        from_planes(state, &mut stream[..blocks]);
        part.xor(&stream.as_flattened()[BLOCK * skipped..]);
    }
}

/// The first round for counter blocks that differ only in the last byte. Most of it is the same
/// for all of them.
#[inline(always)]
fn first_round<W: Wide>(keys: &RoundKeys, first: &[u8; BLOCK]) -> Planes<W> {
    let mut fixed = *first;
    fixed.iter_mut().zip(&keys.encrypt[0]).for_each(|(byte, key)| *byte ^= key);
    // A byte that S maps to 0, so that it contributes nothing.
    fixed[BLOCK - 1] = PI_INVERSE[0];
    let fixed = substitute_linear(&fixed);
    let mut last = splat_byte::<W>(keys.encrypt[0][BLOCK - 1]);
    for (k, bit) in last.iter_mut().enumerate() {
        *bit = *bit ^ number_bit(first[BLOCK - 1], k);
    }
    let last = substitute(last);
    let mut state = [last; BLOCK];
    for i in 0..BLOCK {
        state[i] = product(last, LAST_COLUMN[i]);
    }
    add(&mut state, &fixed);
    add(&mut state, &keys.encrypt[1]);
    state
}

/// L of the block whose last byte is 1 and whose other bytes are 0.
const LAST_COLUMN: [u8; BLOCK] = linear([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], false);

/// Bit `k` of the blocks' numbers, which are counted from `first`, a multiple of the number of blocks.
#[inline(always)]
fn number_bit<W: Wide>(first: u8, k: usize) -> W {
    const WITHIN_LANE: [u64; 6] = [
        0xaaaa_aaaa_aaaa_aaaa,
        0xcccc_cccc_cccc_cccc,
        0xf0f0_f0f0_f0f0_f0f0,
        0xff00_ff00_ff00_ff00,
        0xffff_0000_ffff_0000,
        0xffff_ffff_0000_0000,
    ];
    match WITHIN_LANE.get(k) {
        Some(&bits) => W::of([bits; 4]),
        None => W::of([0, 64, 128, 192].map(|lane| all_or_none((first | lane) >> k))),
    }
}

/// Encrypts any number of blocks in ECB mode.
#[inline(always)]
pub(super) fn encrypt_blocks<W: Wide>(keys: &RoundKeys, blocks: &mut [[u8; BLOCK]]) {
    for group in blocks.chunks_mut(64 * W::LANES) {
        let mut state = to_planes::<W>(group);
        add(&mut state, &keys.encrypt[0]);
        for key in &keys.encrypt[1..] {
            round(&mut state, key);
        }
        from_planes(state, group);
    }
}

/// Decrypts any number of blocks in ECB mode.
#[inline(always)]
pub(super) fn decrypt_blocks<W: Wide>(keys: &RoundKeys, blocks: &mut [[u8; BLOCK]]) {
    for group in blocks.chunks_mut(64 * W::LANES) {
        let mut state = to_planes::<W>(group);
        for key in &keys.decrypt[..9] {
            for slot in 0..BLOCK {
                step(&mut state, slot);
            }
            add(&mut state, key);
            for byte in &mut state {
                *byte = substitute_inverse(*byte);
            }
        }
        add(&mut state, &keys.decrypt[9]);
        from_planes(state, group);
    }
}

/// Applies S and L, and adds a key.
#[inline(always)]
fn round<W: Wide>(state: &mut Planes<W>, key: &[u8; BLOCK]) {
    for byte in &mut *state {
        *byte = substitute(*byte);
    }
    for slot in (0..BLOCK).rev() {
        step(state, slot);
    }
    add(state, key);
}

#[inline(always)]
fn add<W: Wide>(state: &mut Planes<W>, key: &[u8; BLOCK]) {
    for (byte, key) in state.iter_mut().zip(key) {
        *byte = xor_all(*byte, splat_byte(*key));
    }
}

/// One step of the linear map: see `kuznyechik_field::feedback`.
///
/// Byte `i` after the slot and byte `14 - i` have the same coefficient. The products are summed by the
/// powers of x in their factors, highest first; 251 is x^4 + x^3 + x + 1/x.
#[inline(always)]
fn step<W: Wide>(state: &mut Planes<W>, slot: usize) {
    macro_rules! byte {
        ($i:literal) => {
            state[(slot + 1 + $i) % BLOCK]
        };
    }
    let (times148, times32) = (xor_all(byte!(0), byte!(14)), xor_all(byte!(1), byte!(13)));
    let (times133, times16) = (xor_all(byte!(2), byte!(12)), xor_all(byte!(3), byte!(11)));
    let (times194, times192) = (xor_all(byte!(4), byte!(10)), xor_all(byte!(5), byte!(9)));
    let times251 = byte!(7);
    let of7and2 = xor_all(times148, times133);
    let of7and6 = xor_all(times194, times192);
    let mut sum = double(xor_all(of7and2, of7and6));
    sum = double(xor_all(sum, of7and6));
    sum = double(xor_all(sum, times32));
    sum = double(xor_all(xor_all(sum, times148), xor_all(times16, times251)));
    sum = double(xor_all(sum, times251));
    sum = double(xor_all(sum, of7and2));
    sum = double(xor_all(xor_all(sum, times194), times251));
    sum = xor_all(xor_all(sum, times133), xor_all(byte!(6), byte!(8)));
    state[slot] = xor_all(xor_all(state[slot], sum), halve(times251));
}

/// Multiplies by x.
#[inline(always)]
fn double<W: Wide>(a: [W; 8]) -> [W; 8] {
    [a[7], a[0] ^ a[7], a[1], a[2], a[3], a[4], a[5] ^ a[7], a[6] ^ a[7]]
}

/// Multiplies by the inverse of x.
#[inline(always)]
fn halve<W: Wide>(a: [W; 8]) -> [W; 8] {
    [a[1] ^ a[0], a[2], a[3], a[4], a[5], a[6] ^ a[0], a[7] ^ a[0], a[0]]
}

/// Multiplies by a factor that is not secret.
#[inline(always)]
fn product<W: Wide>(mut power: [W; 8], factor: u8) -> [W; 8] {
    let mut product = splat_byte(0);
    for bit in 0..8 {
        if factor >> bit & 1 == 1 {
            product = xor_all(product, power);
        }
        power = double(power);
    }
    product
}

#[inline(always)]
fn xor_all<W: Wide>(a: [W; 8], b: [W; 8]) -> [W; 8] {
    [a[0] ^ b[0], a[1] ^ b[1], a[2] ^ b[2], a[3] ^ b[3], a[4] ^ b[4], a[5] ^ b[5], a[6] ^ b[6], a[7] ^ b[7]]
}

/// Puts the same byte into every block.
#[inline(always)]
fn splat_byte<W: Wide>(byte: u8) -> [W; 8] {
    let mut bits = [W::of([0; 4]); 8];
    for (k, bit) in bits.iter_mut().enumerate() {
        *bit = W::of([all_or_none(byte >> k); 4]);
    }
    bits
}

/// A word whose 64 bits all equal the lowest bit of `bit`.
#[inline(always)]
fn all_or_none(bit: u8) -> u64 {
    0_u64.wrapping_sub(u64::from(bit & 1))
}

/// Splits blocks into planes. There are at most as many blocks as a word has bits; further ones
/// count as zeros.
#[inline(always)]
fn to_planes<W: Wide>(blocks: &[[u8; BLOCK]]) -> Planes<W> {
    let mut state = [[W::of([0; 4]); 8]; BLOCK];
    for (i, words) in state.iter_mut().enumerate() {
        for (t, word) in words.iter_mut().enumerate() {
            let mut lanes = [0; 4];
            for (lane, half) in lanes[..W::LANES].iter_mut().enumerate() {
                if let Some(block) = blocks.get(64 * lane + 8 * (i % 8) + t) {
                    *half = u64::from_le_bytes(block.as_chunks().0[i / 8]);
                }
            }
            *word = W::of(lanes);
        }
    }
    transpose_bytes(&mut state);
    transpose_bits(&mut state);
    state
}

/// Inverse of `to_planes`.
#[inline(always)]
fn from_planes<W: Wide>(mut state: Planes<W>, blocks: &mut [[u8; BLOCK]]) {
    transpose_bits(&mut state);
    transpose_bytes(&mut state);
    for (i, words) in state.iter().enumerate() {
        for (t, word) in words.iter().enumerate() {
            let lanes = word.lanes();
            for (lane, half) in lanes[..W::LANES].iter().enumerate() {
                if let Some(block) = blocks.get_mut(64 * lane + 8 * (i % 8) + t) {
                    block.as_chunks_mut::<8>().0[i / 8] = half.to_le_bytes();
                }
            }
        }
    }
}

/// For each bit, the pairs of the numbers 0 to 7 that differ in it, by the lower number.
const PAIRS: [[usize; 4]; 3] = [[0, 2, 4, 6], [0, 1, 4, 5], [0, 1, 2, 3]];

/// Exchanges the index of the word with that of the bit within a byte.
#[inline(always)]
fn transpose_bits<W: Wide>(state: &mut Planes<W>) {
    for w in state {
        for i in PAIRS[0] {
            (w[i], w[i + 1]) = swap::<1, W>(w[i], w[i + 1], 0x5555_5555_5555_5555);
        }
        for i in PAIRS[1] {
            (w[i], w[i + 2]) = swap::<2, W>(w[i], w[i + 2], 0x3333_3333_3333_3333);
        }
        for i in PAIRS[2] {
            (w[i], w[i + 4]) = swap::<4, W>(w[i], w[i + 4], 0x0f0f_0f0f_0f0f_0f0f);
        }
    }
}

/// Exchanges the index of the byte within each half of a block with that of the byte within a lane.
#[inline(always)]
fn transpose_bytes<W: Wide>(state: &mut Planes<W>) {
    for half in state.as_chunks_mut::<8>().0 {
        for t in [0, 1, 2, 3, 4, 5, 6, 7] {
            for i in PAIRS[0] {
                (half[i][t], half[i + 1][t]) =
                    swap::<8, W>(half[i][t], half[i + 1][t], 0x00ff_00ff_00ff_00ff);
            }
            for i in PAIRS[1] {
                (half[i][t], half[i + 2][t]) =
                    swap::<16, W>(half[i][t], half[i + 2][t], 0x0000_ffff_0000_ffff);
            }
            for i in PAIRS[2] {
                (half[i][t], half[i + 4][t]) =
                    swap::<32, W>(half[i][t], half[i + 4][t], 0x0000_0000_ffff_ffff);
            }
        }
    }
}

/// Exchanges the bits of `b` at `mask` with the bits of `a` that are `N` positions higher.
#[inline(always)]
fn swap<const N: i32, W: Wide>(a: W, b: W, mask: u64) -> (W, W) {
    let difference = (a.shr::<N>() ^ b) & W::of([mask; 4]);
    (a ^ difference.shl::<N>(), b ^ difference)
}
