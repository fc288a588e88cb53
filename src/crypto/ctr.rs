//! CTR mode (SP 800-38A) over any block cipher of the `cipher` crate's traits: many counter blocks at
//! once on the stack, encrypted together, then xored onto the data.

use aes::cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, ParBlocks,
    consts::U16, typenum::Unsigned,
};

/// Bytes of a block.
const BLOCK: usize = 16;

/// `data = src ^ keystream`, or `data ^= keystream` without a `src`. The counter block is a 128-bit
/// big-endian number that wraps from 2^128 - 1 to 0.
pub(super) fn apply<C>(cipher: &C, counter: &[u8; 16], src: Option<&[u8]>, data: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let counter = u128::from_be_bytes(*counter);
    cipher.encrypt_with_backend(Keystream { counter, src, data });
}

struct Keystream<'a> {
    counter: u128,
    src: Option<&'a [u8]>,
    data: &'a mut [u8],
}

impl BlockSizeUser for Keystream<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Keystream<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let width = B::ParBlocksSize::USIZE;
        // Up to here single blocks are cheaper than a wide pass whose other blocks are thrown away.
        let few = (width / 2).min(8);
        let Keystream { mut counter, mut src, data } = self;
        let mut stream = ParBlocks::<B>::default();
        for part in data.chunks_mut(width * BLOCK) {
            let blocks = part.len().div_ceil(BLOCK);
            fill_counters(&mut stream, counter);
            if blocks > few {
                backend.encrypt_par_blocks_inplace(&mut stream);
            } else {
                stream[..blocks].iter_mut().for_each(|block| backend.encrypt_block_inplace(block));
            }
            let used = &Array::slice_as_flattened(&stream)[..part.len()];
            xor(used, take(&mut src, part.len()), part);
            counter = counter.wrapping_add(blocks as u128);
        }
    }
}

#[inline(always)]
fn fill_counters(blocks: &mut [Block<Keystream<'_>>], first: u128) {
    let mut counter = first;
    for block in blocks {
        block.0 = counter.to_be_bytes();
        counter = counter.wrapping_add(1);
    }
}

/// Cuts the next `len` bytes off the front of the source, if there is one.
#[inline(always)]
fn take<'a>(src: &mut Option<&'a [u8]>, len: usize) -> Option<&'a [u8]> {
    let (head, tail) = (*src)?.split_at(len);
    *src = Some(tail);
    Some(head)
}

#[inline(always)]
fn xor(stream: &[u8], src: Option<&[u8]>, data: &mut [u8]) {
    match src {
        Some(src) => data.iter_mut().zip(src).zip(stream).for_each(|((d, s), k)| *d = s ^ k),
        None => data.iter_mut().zip(stream).for_each(|(d, k)| *d ^= k),
    }
}
