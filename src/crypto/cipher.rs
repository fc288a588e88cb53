//! Block ciphers in CTR and ECB mode: the one dispatcher over every implementation.

/// A block cipher with its key length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Cipher {
    /// Every cipher.
    pub const ALL: [Cipher; 4] = [Cipher::Aes128, Cipher::Aes192, Cipher::Aes256, Cipher::Kuznyechik];

    /// Key length in bytes: 16, 24 or 32.
    pub fn key_len(self) -> usize {
        match self {
            Cipher::Aes128 => 16,
            Cipher::Aes192 => 24,
            Cipher::Aes256 | Cipher::Kuznyechik => 32,
        }
    }
}

/// An expanded key; wiped on drop.
pub struct CipherKey {
    _todo: (),
}

impl CipherKey {
    /// Expands `key`, which has `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If the length is another.
    pub fn new(_cipher: Cipher, _key: &[u8]) -> Self {
        todo!()
    }

    /// CTR (SP 800-38A): `dst = src ^ keystream`, the counter block a 128-bit big-endian number that
    /// starts at `counter`. Any length; `src` and `dst` are equally long.
    pub fn ctr(&self, _counter: &[u8; 16], _src: &[u8], _dst: &mut [u8]) {
        todo!()
    }

    /// CTR in place.
    pub fn ctr_in_place(&self, _counter: &[u8; 16], _data: &mut [u8]) {
        todo!()
    }

    /// ECB (SP 800-38A) over whole 16-byte blocks.
    pub fn ecb_encrypt(&self, _blocks: &mut [u8]) {
        todo!()
    }

    /// ECB over whole 16-byte blocks.
    pub fn ecb_decrypt(&self, _blocks: &mut [u8]) {
        todo!()
    }
}
