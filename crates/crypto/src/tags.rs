//! Tags of several chunks at once: the dispatcher over the vector widths of Keccak.

use super::{
    chunk::{ChunkId, ChunkKeys, Tag},
    hash::lanes::{self, Absorb},
    integrity::{self, Input},
    mac::MacKey,
    secret::ct_eq,
};
#[cfg(target_arch = "x86_64")]
use super::{
    hash::{lanes::States, lanes_avx2, lanes_avx512, lanes_vl},
    keccak::Rounds,
    mac::ABSORB_STACK,
    traces,
};
#[cfg(target_arch = "x86_64")]
use zeroize::Zeroizing;

/// Size in bytes of the header that precedes a chunk's ciphertext in a tag's input.
const HEADER: usize = 30;
/// Maximum number of bytes that are copied rather than absorbed in place: the first block, less than a block
/// of ciphertext, the encoded tag length and the padding, at the largest rate.
const ENDS: usize = 3 * 168;

/// A ciphertext to compute the tag of.
#[derive(Clone, Copy)]
pub struct Sealed<'a> {
    /// Keys of its file.
    pub keys: &'a ChunkKeys,
    /// Its position and version.
    pub id: &'a ChunkId,
    /// 1 to 4096 bytes.
    pub ciphertext: &'a [u8],
}

/// A sealed chunk to open in place.
pub struct Opened<'a> {
    /// Its position and version.
    pub id: ChunkId,
    /// The expected tag.
    pub tag: Tag,
    /// 1 to 4096 bytes: the ciphertext, which the plaintext replaces.
    pub data: &'a mut [u8],
}

/// Verifies chunks of a file, then decrypts them.
///
/// # Errors
/// The index of the first chunk that does not verify. All chunks are unchanged then.
///
/// # Panics
/// If a chunk's index is out of range.
pub fn open_in_place(keys: &ChunkKeys, chunks: &mut [Opened]) -> Result<(), usize> {
    let sealed: Vec<Sealed> =
        chunks.iter().map(|chunk| Sealed { keys, id: &chunk.id, ciphertext: chunk.data }).collect();
    let mut found = vec![[0; 16]; sealed.len()];
    tags(&sealed, &mut found);
    if let Some(place) = chunks.iter().zip(&found).position(|(chunk, tag)| !ct_eq(&chunk.tag, tag)) {
        return Err(place);
    }
    chunks.iter_mut().for_each(|chunk| keys.apply_keystream_in_place(&chunk.id, chunk.data));
    Ok(())
}

/// Maximum number of chunks processed side by side if their lengths differ. If this many have the same
/// length, the path for equal lengths takes them.
const TOGETHER: usize = 8;

/// Number of chunks with lanes that are processed at once: enough to keep the widest vectors full.
const CUT_TOGETHER: usize = 16;

/// Computes the tag of each chunk, as `ChunkKeys::tag` does. `out` must be as long as `chunks`.
pub fn tags(chunks: &[Sealed], out: &mut [Tag]) {
    let (mut chunks, mut out) = (chunks, out);
    while let Some((first, _)) = chunks.split_first() {
        let alike = || chunks.iter().take_while(|chunk| are_alike(first, chunk)).count();
        let done = if first.keys.chunk_key().lane().is_some() {
            side_by_side(&chunks[..related(chunks, CUT_TOGETHER)], out, lanes::absorb)
        } else if alike() < related(chunks, TOGETHER) {
            side_by_side(&chunks[..related(chunks, TOGETHER)], out, lanes::absorb)
        } else {
            some_tags(&chunks[..alike()], out)
        };
        chunks = &chunks[done..];
        out = &mut out[done..];
    }
}

/// How many of the first chunks, up to `most`, use the same function as the first one.
fn related(chunks: &[Sealed], most: usize) -> usize {
    let related = |chunk: &&Sealed| are_related(&chunks[0], chunk);
    chunks.iter().take(most).take_while(related).count()
}

/// Whether two chunks use the same integrity function.
fn are_related(a: &Sealed, b: &Sealed) -> bool {
    a.keys.functions().1 == b.keys.functions().1
}

/// Whether two chunks can share a vector from the first block to the last: same function, same length.
fn are_alike(a: &Sealed, b: &Sealed) -> bool {
    a.ciphertext.len() == b.ciphertext.len() && are_related(a, b)
}

/// Computes the tags of chunks of one function and of any lengths; returns their number.
fn side_by_side(chunks: &[Sealed], out: &mut [Tag], absorb: Absorb) -> usize {
    let heads: Vec<_> = chunks.iter().map(|chunk| chunk.id.header(chunk.ciphertext.len())).collect();
    let inputs: Vec<Input> = chunks
        .iter()
        .zip(&heads)
        .map(|(chunk, head)| Input { key: chunk.keys.chunk_key(), head, data: chunk.ciphertext })
        .collect();
    out[..chunks.len()].copy_from_slice(&integrity::several(&inputs, absorb));
    chunks.len()
}

/// Computes the tags of the first chunks, which have no lanes, up to the width of the widest vector; returns
/// their number. Even two chunks take less time in a mostly empty wide vector than one after the other.
fn some_tags(chunks: &[Sealed], out: &mut [Tag]) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if (2..=4).contains(&chunks.len()) && lanes_vl::available() {
            return four_vl(chunks, out);
        }
        if chunks.len() >= 2 && lanes_avx512::available() {
            return eight_avx512(chunks, out);
        }
        if chunks.len() >= 2 && lanes_avx2::available() {
            return four_avx2(chunks, out);
        }
    }
    out[0] = chunks[0].keys.tag(chunks[0].id, chunks[0].ciphertext);
    1
}

/// Computes the tags of up to eight chunks of equal length and function; returns their number.
/// Requires AVX-512.
#[cfg(target_arch = "x86_64")]
pub(super) fn eight_avx512(chunks: &[Sealed], out: &mut [Tag]) -> usize {
    assert!(lanes_avx512::available());
    if chunks[0].keys.chunk_key().lane().is_some() {
        return side_by_side(&chunks[..chunks.len().min(8)], out, lanes::absorb_avx512);
    }
    // SAFETY: the required CPU features were just checked.
    vector_tags::<8>(chunks, out, |s, b, rate, rounds| unsafe { lanes_avx512::absorb(s, b, rate, rounds) })
}

/// Computes the tags of up to four chunks of equal length and function; returns their number.
/// Requires AVX-512VL.
#[cfg(target_arch = "x86_64")]
pub(super) fn four_vl(chunks: &[Sealed], out: &mut [Tag]) -> usize {
    assert!(lanes_vl::available());
    if chunks[0].keys.chunk_key().lane().is_some() {
        return side_by_side(&chunks[..chunks.len().min(4)], out, lanes::absorb_vl);
    }
    // SAFETY: the required CPU features were just checked.
    vector_tags::<4>(chunks, out, |s, b, rate, rounds| unsafe { lanes_vl::absorb(s, b, rate, rounds) })
}

/// Computes the tags of up to four chunks of equal length and function; returns their number. Requires AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) fn four_avx2(chunks: &[Sealed], out: &mut [Tag]) -> usize {
    assert!(lanes_avx2::available());
    if chunks[0].keys.chunk_key().lane().is_some() {
        return side_by_side(&chunks[..chunks.len().min(4)], out, lanes::absorb_avx2);
    }
    // SAFETY: the required CPU features were just checked.
    vector_tags::<4>(chunks, out, |s, b, rate, rounds| unsafe { lanes_avx2::absorb(s, b, rate, rounds) })
}

/// Computes the tags of up to `N` chunks of equal length and function; returns their number. Lanes without
/// a chunk repeat the last one.
///
/// The ciphertext is absorbed in place, except for the first block, which starts with the header, and the
/// last one or two.
#[cfg(target_arch = "x86_64")]
fn vector_tags<const N: usize>(
    chunks: &[Sealed],
    out: &mut [Tag],
    absorb: impl Fn(&mut States<N>, &[[&[u8]; N]], usize, Rounds),
) -> usize {
    let count = chunks.len().min(N);
    let lanes: [&Sealed; N] = std::array::from_fn(|i| &chunks[i.min(count - 1)]);
    let macs = lanes.map(|chunk| chunk.keys.chunk_key().whole());
    let (rate, rounds) = macs[0].shape();
    let keyed = macs.map(MacKey::state);
    // Filled in place: a move would leave a copy behind.
    let mut states: Zeroizing<States<N>> = Zeroizing::new([[0; N]; 25]);
    for (word, lanes) in states.iter_mut().enumerate() {
        *lanes = keyed.map(|state| state[word]);
    }

    let len = lanes[0].ciphertext.len();
    // Ranges of the ciphertext: `..headed` is in the block with the header, `headed..whole` in whole blocks.
    let headed = len.min(rate - HEADER);
    let whole = headed + (len - headed) / rate * rate;
    let mut ends = [[0; ENDS]; N];
    let mut end = 0;
    for (bytes, chunk) in ends.iter_mut().zip(lanes) {
        bytes[..HEADER].copy_from_slice(&chunk.id.header(len));
        bytes[HEADER..HEADER + headed].copy_from_slice(&chunk.ciphertext[..headed]);
        end = HEADER + headed;
        if end == rate {
            bytes[end..end + len - whole].copy_from_slice(&chunk.ciphertext[whole..]);
            end += len - whole;
        }
        end = macs[0].pad(bytes, end);
    }
    let pieces = [
        ends.each_ref().map(|bytes| &bytes[..rate]),
        lanes.map(|chunk| &chunk.ciphertext[headed..whole]),
        ends.each_ref().map(|bytes| &bytes[rate..end]),
    ];
    absorb(&mut states, &pieces, rate, rounds);
    traces::wipe_stack::<ABSORB_STACK>();
    for (lane, tag) in out[..count].iter_mut().enumerate() {
        tag[..8].copy_from_slice(&states[0][lane].to_le_bytes());
        tag[8..].copy_from_slice(&states[1][lane].to_le_bytes());
    }
    count
}
