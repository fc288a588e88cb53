//! CTR mode (SP 800-38A): the text with its counter blocks, and the mode over any block cipher that
//! implements the traits of the `cipher` crate.

use aes::cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, ParBlocks,
    consts::U16, typenum::Unsigned,
};

/// Size of a block in bytes.
pub(super) const BLOCK: usize = 16;

/// The data that a keystream is XORed onto: from `src` to `dst`, which have the same length, or in
/// place in `dst`.
pub(super) struct Text<'a> {
    pub(super) src: Option<&'a [u8]>,
    pub(super) dst: &'a mut [u8],
}

impl<'a> Text<'a> {
    /// Splits off the first `len` bytes.
    #[inline(always)]
    fn take(&mut self, len: usize) -> Text<'a> {
        let (dst, rest) = std::mem::take(&mut self.dst).split_at_mut(len);
        self.dst = rest;
        let src = self.src.map(|src| {
            let (head, tail) = src.split_at(len);
            self.src = Some(tail);
            head
        });
        Text { src, dst }
    }

    /// XORs the keystream on. `stream` must be at least as long as the text.
    #[inline(always)]
    pub(super) fn xor(self, stream: &[u8]) {
        match self.src {
            Some(src) => self.dst.iter_mut().zip(src).zip(stream).for_each(|((d, s), k)| *d = s ^ k),
            None => self.dst.iter_mut().zip(stream).for_each(|(d, k)| *d ^= k),
        }
    }

    /// Splits the text into parts of up to `blocks` blocks (a power of two, at most 256), each with its
    /// first counter block. A part ends before a counter that is a multiple of `blocks`, so that only the
    /// last byte of the counter block changes within a part.
    #[inline(always)]
    pub(super) fn parts(
        mut self,
        counter: &[u8; BLOCK],
        blocks: usize,
    ) -> impl Iterator<Item = ([u8; BLOCK], Text<'a>)> {
        let mut counter = u128::from_be_bytes(*counter);
        std::iter::from_fn(move || {
            if self.dst.is_empty() {
                return None;
            }
            let first = counter.to_be_bytes();
            let left = blocks - usize::from(first[BLOCK - 1]) % blocks;
            let len = (left * BLOCK).min(self.dst.len());
            counter = counter.wrapping_add(len.div_ceil(BLOCK) as u128);
            Some((first, self.take(len)))
        })
    }
}

/// XORs the keystream onto `text`. The counter block is a 128-bit big-endian number that wraps around.
pub(super) fn apply<C>(cipher: &C, counter: &[u8; BLOCK], text: Text<'_>)
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    cipher.encrypt_with_backend(Keystream { counter: u128::from_be_bytes(*counter), text });
}

struct Keystream<'a> {
    counter: u128,
    text: Text<'a>,
}

impl BlockSizeUser for Keystream<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Keystream<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let width = B::ParBlocksSize::USIZE;
        // Up to this number, single blocks are cheaper than a wide pass that discards most of its blocks.
        let few = (width / 2).min(8);
        let Keystream { mut counter, mut text } = self;
        let mut stream = ParBlocks::<B>::default();
        while !text.dst.is_empty() {
            let part = text.take(text.dst.len().min(width * BLOCK));
            let blocks = part.dst.len().div_ceil(BLOCK);
            fill_counters(&mut stream, counter);
            if blocks > few {
                backend.encrypt_par_blocks_inplace(&mut stream);
            } else {
                stream[..blocks].iter_mut().for_each(|block| backend.encrypt_block_inplace(block));
            }
            part.xor(Array::slice_as_flattened(&stream));
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
