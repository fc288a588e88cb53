//! Block ciphers in CTR and ECB mode: the one dispatcher over every implementation.

use super::{
    aes::AesKey,
    ctr::{BLOCK, Text},
    kuznyechik::Kuznyechik,
    listed::listed,
};

listed! {
    /// A block cipher with its key length.
    pub enum Cipher {
        /// AES-128 (FIPS 197).
        Aes128,
        /// AES-192 (FIPS 197).
        Aes192,
        /// AES-256 (FIPS 197).
        Aes256,
        /// Kuznyechik (GOST R 34.12-2015, RFC 7801).
        Kuznyechik,
    }
}

listed! {
    /// The ciphers that one algorithm defines, whatever their key lengths. Implementations are chosen by it.
    pub enum CipherFamily {
        /// AES (FIPS 197).
        Aes,
        /// Kuznyechik (GOST R 34.12-2015, RFC 7801).
        Kuznyechik,
    }
}

impl CipherFamily {
    /// Its part of the names of CUDA kernels.
    pub fn name(self) -> &'static str {
        match self {
            CipherFamily::Aes => "aes",
            CipherFamily::Kuznyechik => "kuznyechik",
        }
    }
}

impl Cipher {
    /// Its algorithm.
    pub fn family(self) -> CipherFamily {
        match self {
            Cipher::Aes128 | Cipher::Aes192 | Cipher::Aes256 => CipherFamily::Aes,
            Cipher::Kuznyechik => CipherFamily::Kuznyechik,
        }
    }

    /// Key length in bytes: 16, 24 or 32.
    pub fn key_len(self) -> usize {
        match self {
            Cipher::Aes128 => 16,
            Cipher::Aes192 => 24,
            Cipher::Aes256 | Cipher::Kuznyechik => 32,
        }
    }

    /// Its name, mode included, in a vault's configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128 => "aes-128-ctr",
            Cipher::Aes192 => "aes-192-ctr",
            Cipher::Aes256 => "aes-256-ctr",
            Cipher::Kuznyechik => "kuznyechik-ctr",
        }
    }

    /// The cipher of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }
}

/// An expanded key; wiped on drop.
pub struct CipherKey(Expanded);

enum Expanded {
    Aes(Box<AesKey>),
    Kuznyechik(Box<Kuznyechik>),
}

/// Runs the same expression over whichever cipher the key is of.
macro_rules! dispatch {
    ($key:expr, $cipher:ident => $body:expr) => {
        match &$key.0 {
            Expanded::Aes($cipher) => $body,
            Expanded::Kuznyechik($cipher) => $body,
        }
    };
}

impl CipherKey {
    /// Expands `key`, which has `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If the length is another.
    pub fn new(cipher: Cipher, key: &[u8]) -> Self {
        assert_eq!(key.len(), cipher.key_len(), "the key has the cipher's length");
        CipherKey(match cipher.family() {
            CipherFamily::Aes => Expanded::Aes(Box::new(AesKey::new(key))),
            CipherFamily::Kuznyechik => Expanded::Kuznyechik(Box::new(Kuznyechik::from_slice(key))),
        })
    }

    /// CTR (SP 800-38A): `dst = src ^ keystream`, the counter block a 128-bit big-endian number that
    /// starts at `counter` and wraps from 2^128 - 1 to 0. Any length.
    ///
    /// # Panics
    /// If `src` and `dst` differ in length.
    pub fn ctr(&self, counter: &[u8; 16], src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len(), "CTR keeps the length");
        dispatch!(self, cipher => cipher.ctr(counter, Text { src: Some(src), dst }));
    }

    /// CTR in place.
    pub fn ctr_in_place(&self, counter: &[u8; 16], data: &mut [u8]) {
        dispatch!(self, cipher => cipher.ctr(counter, Text { src: None, dst: data }));
    }

    /// ECB (SP 800-38A) over whole 16-byte blocks.
    ///
    /// # Panics
    /// If the length is not a multiple of 16.
    pub fn ecb_encrypt(&self, blocks: &mut [u8]) {
        let blocks = whole_blocks(blocks);
        dispatch!(self, cipher => cipher.encrypt_blocks(blocks));
    }

    /// ECB over whole 16-byte blocks.
    ///
    /// # Panics
    /// If the length is not a multiple of 16.
    pub fn ecb_decrypt(&self, blocks: &mut [u8]) {
        let blocks = whole_blocks(blocks);
        dispatch!(self, cipher => cipher.decrypt_blocks(blocks));
    }
}

fn whole_blocks(bytes: &mut [u8]) -> &mut [[u8; BLOCK]] {
    let (blocks, rest) = bytes.as_chunks_mut();
    assert!(rest.is_empty(), "ECB takes whole blocks");
    blocks
}
