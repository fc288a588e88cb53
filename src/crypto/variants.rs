//! Every implementation that this processor can run, by name: the tests compare them and the benchmark
//! measures them. All else takes those that the dispatchers choose.

use super::{
    aes::AesKey,
    aes_keys::AesRoundKeys,
    chunk::Tag,
    cipher::Cipher,
    ctr::{BLOCK, Text},
    kuznyechik::Kuznyechik,
    tags::{self, Sealed},
};
#[cfg(target_arch = "x86_64")]
use super::{
    aes_ni, aes_vaes256, aes_vaes512,
    hash::{lanes_avx2, lanes_avx512},
};

/// A key in the form of every implementation of its cipher; wiped on drop.
pub struct AnyKey(Forms);

enum Forms {
    Aes(Box<AesKey>, Box<AesRoundKeys>),
    Kuznyechik(Box<Kuznyechik>),
}

type Apply<'a> = dyn Fn(&[u8; BLOCK], Text<'_>) + Sync + 'a;

/// An implementation of CTR, with a key.
pub struct Ctr<'a> {
    /// What it is made of.
    pub name: &'static str,
    apply: Box<Apply<'a>>,
}

impl<'a> Ctr<'a> {
    fn new(name: &'static str, apply: impl Fn(&[u8; BLOCK], Text<'_>) + Sync + 'a) -> Self {
        Ctr { name, apply: Box::new(apply) }
    }

    /// As `CipherKey::ctr_in_place`.
    pub fn in_place(&self, counter: &[u8; BLOCK], data: &mut [u8]) {
        (self.apply)(counter, Text { src: None, dst: data });
    }

    /// As `CipherKey::ctr`.
    #[cfg(test)]
    pub(super) fn from(&self, counter: &[u8; BLOCK], src: &[u8], dst: &mut [u8]) {
        (self.apply)(counter, Text { src: Some(src), dst });
    }
}

impl AnyKey {
    /// Expands `key`, which has `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If the length is another.
    pub fn new(cipher: Cipher, key: &[u8]) -> Self {
        assert_eq!(key.len(), cipher.key_len(), "the key has the cipher's length");
        AnyKey(match <&[u8; 32]>::try_from(key) {
            Ok(key) if cipher == Cipher::Kuznyechik => Forms::Kuznyechik(Box::new(Kuznyechik::new(key))),
            _ => Forms::Aes(Box::new(AesKey::new(key)), Box::new(AesRoundKeys::new(key))),
        })
    }

    /// Every CTR, the slowest first; the last one is what the dispatcher chooses.
    pub fn ctrs(&self) -> Vec<Ctr<'_>> {
        match &self.0 {
            Forms::Aes(key, keys) => {
                let mut all = vec![Ctr::new("aes crate's blocks", |c, t| key.ctr_portable(c, t))];
                aes_vectors(keys, &mut all);
                all
            }
            Forms::Kuznyechik(key) => {
                let mut all = vec![Ctr::new("tables", |c, t| key.ctr_portable(c, t))];
                if key.is_wide() {
                    all.push(Ctr::new("AVX-512 + GFNI", |c, t| key.ctr(c, t)));
                } else {
                    say_missing("Kuznyechik with AVX-512 and GFNI");
                }
                all
            }
        }
    }

    /// ECB by the portable implementation.
    #[cfg(test)]
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        match &self.0 {
            Forms::Aes(key, _) => blocks.chunks_mut(1).for_each(|block| key.encrypt_blocks(block)),
            Forms::Kuznyechik(key) => key.encrypt_blocks_portable(blocks),
        }
    }

    /// ECB by the portable implementation.
    #[cfg(test)]
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        match &self.0 {
            Forms::Aes(key, _) => blocks.chunks_mut(1).for_each(|block| key.decrypt_blocks(block)),
            Forms::Kuznyechik(key) => key.decrypt_blocks_portable(blocks),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn aes_vectors<'a>(keys: &'a AesRoundKeys, all: &mut Vec<Ctr<'a>>) {
    if aes_ni::available() {
        // SAFETY: the processor has the features, as was just seen.
        all.push(Ctr::new("AES-NI", |c, t| unsafe { aes_ni::ctr(keys, c, t) }));
    } else {
        say_missing("AES-NI");
    }
    if aes_vaes256::available() {
        // SAFETY: the processor has the features, as was just seen.
        all.push(Ctr::new("VAES-256", |c, t| unsafe { aes_vaes256::ctr(keys, c, t) }));
    } else {
        say_missing("VAES-256");
    }
    if aes_vaes512::available() {
        // SAFETY: the processor has the features, as was just seen.
        all.push(Ctr::new("VAES-512", |c, t| unsafe { aes_vaes512::ctr(keys, c, t) }));
    } else {
        say_missing("VAES-512");
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn aes_vectors<'a>(_: &'a AesRoundKeys, _: &mut Vec<Ctr<'a>>) {}

/// An implementation of tags.
pub struct Tags {
    /// What it is made of.
    pub name: &'static str,
    /// Chunks that it takes at once: all of one length and one integrity function.
    pub width: usize,
    make: fn(&[Sealed], &mut [Tag]) -> usize,
}

impl Tags {
    /// The tags of the first chunks, up to `width` of them; returns how many.
    pub fn make(&self, chunks: &[Sealed], out: &mut [Tag]) -> usize {
        (self.make)(chunks, out)
    }
}

/// Every implementation of tags, the slowest first.
pub fn tags() -> Vec<Tags> {
    let one = |chunks: &[Sealed], out: &mut [Tag]| {
        out[0] = chunks[0].keys.tag(chunks[0].id, chunks[0].ciphertext);
        1
    };
    let mut all = vec![Tags { name: "one at a time", width: 1, make: one }];
    #[cfg(target_arch = "x86_64")]
    {
        if lanes_avx2::available() {
            all.push(Tags { name: "AVX2", width: 4, make: tags::four_avx2 });
        } else {
            say_missing("Keccak with AVX2");
        }
        if lanes_avx512::available() {
            all.push(Tags { name: "AVX-512", width: 8, make: tags::eight_avx512 });
        } else {
            say_missing("Keccak with AVX-512");
        }
    }
    all
}

/// A test that covers one implementation less says so.
fn say_missing(what: &str) {
    if cfg!(test) {
        println!("SKIPPED: {what}: the processor has none");
    }
}
