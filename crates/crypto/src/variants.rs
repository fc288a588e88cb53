//! All implementations that this processor can run, by name, for tests that compare them and for the
//! benchmark. All other code uses those that the dispatchers choose.

use super::{
    aes::AesKey,
    aes_keys::AesRoundKeys,
    chunk::Tag,
    cipher::{Cipher, CipherFamily},
    ctr::{BLOCK, Text},
    kuznyechik::Kuznyechik,
    tags::{self, Sealed},
};
#[cfg(target_arch = "x86_64")]
use super::{
    aes_ni, aes_vaes256, aes_vaes512,
    hash::{lanes_avx2, lanes_avx512, lanes_vl},
    kuznyechik_avx2, kuznyechik_avx512,
};

/// A key in the form of every implementation of its cipher. Wiped on drop.
pub struct AnyKey(Forms);

enum Forms {
    Aes(Box<AesKey>, Box<AesRoundKeys>),
    Kuznyechik(Box<Kuznyechik>),
}

/// An implementation of CTR. Its functions panic if the key is of another cipher.
#[derive(Clone, Copy)]
pub struct Ctr {
    /// Name of the implementation.
    pub name: &'static str,
    apply: fn(&AnyKey, &[u8; BLOCK], Text<'_>),
}

impl Ctr {
    /// Same contract as `CipherKey::ctr_in_place`. The key must be of this implementation's cipher.
    pub fn in_place(&self, key: &AnyKey, counter: &[u8; BLOCK], data: &mut [u8]) {
        (self.apply)(key, counter, Text { src: None, dst: data });
    }

    /// Same contract as `CipherKey::ctr`. The key must be of this implementation's cipher.
    ///
    /// # Panics
    /// If `src` and `dst` differ in length.
    pub fn from(&self, key: &AnyKey, counter: &[u8; BLOCK], src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len(), "CTR keeps the length");
        (self.apply)(key, counter, Text { src: Some(src), dst });
    }
}

/// All CTR implementations of a cipher, slowest first.
pub fn ctrs(cipher: Cipher) -> Vec<Ctr> {
    match cipher.family() {
        CipherFamily::Aes => aes_ctrs(),
        CipherFamily::Kuznyechik => kuznyechik_ctrs(),
    }
}

fn aes_ctrs() -> Vec<Ctr> {
    let portable: fn(&AnyKey, &_, Text<'_>) = |key, c, t| key.aes().0.ctr_portable(c, t);
    let mut all = vec![Ctr { name: "aes crate's blocks", apply: portable }];
    #[cfg(target_arch = "x86_64")]
    for (available, name, apply) in AES_VECTORS {
        add(&mut all, available(), Ctr { name, apply });
    }
    all
}

fn add(all: &mut Vec<Ctr>, available: bool, ctr: Ctr) {
    if available {
        all.push(ctr);
    } else {
        say_missing(ctr.name);
    }
}

/// Availability check, name, and implementation, which panics if it is not available.
#[cfg(target_arch = "x86_64")]
type Vectors = (fn() -> bool, &'static str, fn(&AnyKey, &[u8; BLOCK], Text<'_>));

#[cfg(target_arch = "x86_64")]
const AES_VECTORS: [Vectors; 3] = [
    (aes_ni::available, "AES-NI", |key, c, t| {
        assert!(aes_ni::available());
        // SAFETY: the required CPU features were just checked.
        unsafe { aes_ni::ctr(key.aes().1, c, t) }
    }),
    (aes_vaes256::available, "VAES-256", |key, c, t| {
        assert!(aes_vaes256::available());
        // SAFETY: the required CPU features were just checked.
        unsafe { aes_vaes256::ctr(key.aes().1, c, t) }
    }),
    (aes_vaes512::available, "VAES-512", |key, c, t| {
        assert!(aes_vaes512::available());
        // SAFETY: the required CPU features were just checked.
        unsafe { aes_vaes512::ctr(key.aes().1, c, t) }
    }),
];

fn kuznyechik_ctrs() -> Vec<Ctr> {
    let portable: fn(&AnyKey, &_, Text<'_>) = |key, c, t| key.kuznyechik().ctr_portable(c, t);
    let mut all = vec![Ctr { name: "portable", apply: portable }];
    #[cfg(target_arch = "x86_64")]
    {
        let apply: fn(&AnyKey, &_, Text<'_>) = |key, c, t| {
            assert!(kuznyechik_avx2::available());
            // SAFETY: the required CPU features were just checked.
            unsafe { kuznyechik_avx2::ctr(key.kuznyechik().round_keys(), c, t) }
        };
        add(&mut all, kuznyechik_avx2::available(), Ctr { name: "AVX2", apply });
        let apply: fn(&AnyKey, &_, Text<'_>) = |key, c, t| key.kuznyechik().ctr(c, t);
        add(&mut all, kuznyechik_avx512::available(), Ctr { name: "AVX-512 + GFNI", apply });
    }
    all
}

impl AnyKey {
    /// Expands `key`, which must have `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub fn new(cipher: Cipher, key: &[u8]) -> Self {
        assert_eq!(key.len(), cipher.key_len(), "the key has the cipher's length");
        AnyKey(match cipher.family() {
            CipherFamily::Aes => Forms::Aes(Box::new(AesKey::new(key)), Box::new(AesRoundKeys::new(key))),
            CipherFamily::Kuznyechik => Forms::Kuznyechik(Box::new(Kuznyechik::from_slice(key))),
        })
    }

    fn aes(&self) -> (&AesKey, &AesRoundKeys) {
        match &self.0 {
            Forms::Aes(key, keys) => (key, keys),
            Forms::Kuznyechik(_) => panic!("a key of another cipher"), // invariant: documented
        }
    }

    fn kuznyechik(&self) -> &Kuznyechik {
        match &self.0 {
            Forms::Kuznyechik(key) => key,
            Forms::Aes(..) => panic!("a key of another cipher"), // invariant: documented
        }
    }

    /// Encrypts in ECB mode, block by block, with the portable implementation.
    #[cfg(test)]
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        match &self.0 {
            Forms::Aes(key, _) => blocks.chunks_mut(1).for_each(|block| key.encrypt_blocks(block)),
            Forms::Kuznyechik(key) => {
                blocks.chunks_mut(1).for_each(|block| key.encrypt_blocks_portable(block));
            }
        }
    }

    /// Decrypts in ECB mode, block by block, with the portable implementation.
    #[cfg(test)]
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        match &self.0 {
            Forms::Aes(key, _) => blocks.chunks_mut(1).for_each(|block| key.decrypt_blocks(block)),
            Forms::Kuznyechik(key) => {
                blocks.chunks_mut(1).for_each(|block| key.decrypt_blocks_portable(block));
            }
        }
    }
}

/// An implementation of tags.
#[derive(Clone, Copy)]
pub struct Tags {
    /// Name of the implementation.
    pub name: &'static str,
    /// Maximum number of chunks at once. They must have the same length and integrity function.
    pub width: usize,
    make: fn(&[Sealed], &mut [Tag]) -> usize,
}

impl Tags {
    /// Computes the tags of the first chunks, up to `width`; returns their number.
    pub fn make(&self, chunks: &[Sealed], out: &mut [Tag]) -> usize {
        (self.make)(chunks, out)
    }
}

/// All implementations of tags, slowest first.
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
        if lanes_vl::available() {
            all.push(Tags { name: "AVX-512, four", width: 4, make: tags::four_vl });
        } else {
            say_missing("Keccak with AVX-512 of 256 bits");
        }
        if lanes_avx512::available() {
            all.push(Tags { name: "AVX-512", width: 8, make: tags::eight_avx512 });
        } else {
            say_missing("Keccak with AVX-512");
        }
    }
    all
}

/// Reports in a test's output that an implementation was not covered.
fn say_missing(what: &str) {
    if cfg!(test) {
        println!("SKIPPED: {what}: the processor has none");
    }
}
