//! Tags of several chunks at once: the dispatcher over the vector widths of Keccak.

use super::{
    chunk::{CHUNK, ChunkId, ChunkKeys, Tag},
    mac::MacKey,
};
#[cfg(target_arch = "x86_64")]
use super::{keccak_avx2, keccak_avx512, keccak_lanes::Messages};

/// What stands before a chunk's ciphertext.
const HEADER: usize = 30;
/// A whole chunk with header, encoded tag length and padding, at the largest of the rates.
const PADDED: usize = 4216;

/// A ciphertext whose tag is wanted.
#[derive(Clone, Copy)]
pub struct Sealed<'a> {
    /// Keys of its file.
    pub keys: &'a ChunkKeys,
    /// Its place.
    pub id: &'a ChunkId,
    /// 1 to 4096 bytes.
    pub ciphertext: &'a [u8],
}

/// The tag of each chunk, as `ChunkKeys::tag` makes it. `out` is as long as `chunks`.
pub fn tags(chunks: &[Sealed], out: &mut [Tag]) {
    let (mut chunks, mut out) = (chunks, out);
    while let Some((first, _)) = chunks.split_first() {
        let alike = chunks.iter().take_while(|chunk| are_alike(first, chunk)).count();
        let done = some_tags(&chunks[..alike], out);
        chunks = &chunks[done..];
        out = &mut out[done..];
    }
}

/// Whether two chunks can be in one vector: the same function, the same number of bytes.
fn are_alike(a: &Sealed, b: &Sealed) -> bool {
    a.ciphertext.len() == b.ciphertext.len() && a.keys.chunk_mac().is_like(b.keys.chunk_mac())
}

/// The tags of the first chunks, as many as the widest vector takes; returns how many.
fn some_tags(chunks: &[Sealed], out: &mut [Tag]) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if chunks.len() >= 8 && keccak_avx512::available() {
            // SAFETY: the processor has the features, as was just seen.
            vector_tags::<8>(chunks, out, |messages| unsafe { keccak_avx512::absorb(messages) });
            return 8;
        }
        if chunks.len() >= 4 && keccak_avx2::available() {
            // SAFETY: the processor has the features, as was just seen.
            vector_tags::<4>(chunks, out, |messages| unsafe { keccak_avx2::absorb(messages) });
            return 4;
        }
    }
    out[0] = chunks[0].keys.tag(chunks[0].id, chunks[0].ciphertext);
    1
}

/// The tags of `N` chunks that are alike.
#[cfg(target_arch = "x86_64")]
pub(super) fn vector_tags<const N: usize>(
    chunks: &[Sealed],
    out: &mut [Tag],
    absorb: impl Fn(&Messages<N>) -> [Tag; N],
) {
    let macs: [&MacKey; N] = std::array::from_fn(|i| chunks[i].keys.chunk_mac());
    let mut padded = [[0; PADDED]; N];
    let mut len = 0;
    for (message, chunk) in padded.iter_mut().zip(chunks) {
        let data = chunk.ciphertext;
        message[..HEADER].copy_from_slice(&chunk.id.header(data.len()));
        message[HEADER..HEADER + data.len()].copy_from_slice(data);
        len = macs[0].pad(message, HEADER + data.len());
    }
    let (rate, rounds) = macs[0].shape();
    let states = macs.map(MacKey::state);
    let blocks = std::array::from_fn(|i| &padded[i][..len]);
    out[..N].copy_from_slice(&absorb(&Messages { states, blocks, rate, rounds }));
}

const _: () = assert!(HEADER + CHUNK + 3 <= PADDED);
