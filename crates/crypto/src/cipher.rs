//! Block ciphers in CTR and ECB mode. Dispatches to the implementations.

use super::{
    aes::AesKey,
    ctr::{BLOCK, Text},
    kuznyechik::Kuznyechik,
};
use crate::listed;

listed! {
    /// A block cipher with a key length.
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
    /// A cipher algorithm, regardless of key length. Implementations are selected by it.
    pub enum CipherFamily {
        /// AES (FIPS 197).
        Aes,
        /// Kuznyechik (GOST R 34.12-2015, RFC 7801).
        Kuznyechik,
    }
}

impl CipherFamily {
    /// The algorithm's part of the names of CUDA kernels.
    pub fn name(self) -> &'static str {
        match self {
            CipherFamily::Aes => "aes",
            CipherFamily::Kuznyechik => "kuznyechik",
        }
    }
}

impl Cipher {
    /// The cipher's algorithm.
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

    /// The cipher's name, including the mode, in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128 => "aes-128-ctr",
            Cipher::Aes192 => "aes-192-ctr",
            Cipher::Aes256 => "aes-256-ctr",
            Cipher::Kuznyechik => "kuznyechik-ctr",
        }
    }

    /// Looks up a cipher by its name.
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

/// Evaluates an expression for the key's cipher.
macro_rules! dispatch {
    ($key:expr, $cipher:ident => $body:expr) => {
        match &$key.0 {
            Expanded::Aes($cipher) => $body,
            Expanded::Kuznyechik($cipher) => $body,
        }
    };
}

impl CipherKey {
    /// Expands `key`, which must have `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub fn new(cipher: Cipher, key: &[u8]) -> Self {
        assert_eq!(key.len(), cipher.key_len(), "the key has the cipher's length");
        CipherKey(match cipher.family() {
            CipherFamily::Aes => Expanded::Aes(Box::new(AesKey::new(key))),
            CipherFamily::Kuznyechik => Expanded::Kuznyechik(Box::new(Kuznyechik::from_slice(key))),
        })
    }

    /// CTR mode (SP 800-38A): `dst = src ^ keystream`. The counter block is a 128-bit big-endian number
    /// that starts at `counter` and wraps around. Any length is allowed.
    ///
    /// # Panics
    /// If `src` and `dst` differ in length.
    pub fn ctr(&self, counter: &[u8; 16], src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len(), "CTR keeps the length");
        dispatch!(self, cipher => cipher.ctr(counter, Text { src: Some(src), dst }));
    }

    /// CTR mode, in place.
    pub fn ctr_in_place(&self, counter: &[u8; 16], data: &mut [u8]) {
        dispatch!(self, cipher => cipher.ctr(counter, Text { src: None, dst: data }));
    }

    /// Encrypts whole 16-byte blocks in ECB mode (SP 800-38A).
    ///
    /// # Panics
    /// If the length is not a multiple of 16.
    pub fn ecb_encrypt(&self, blocks: &mut [u8]) {
        let blocks = whole_blocks(blocks);
        dispatch!(self, cipher => cipher.encrypt_blocks(blocks));
    }

    /// Decrypts whole 16-byte blocks in ECB mode (SP 800-38A).
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
