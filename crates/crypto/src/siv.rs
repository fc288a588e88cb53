//! Deterministic authenticated encryption of short strings (names, link targets, xattrs, wrapped keys). A
//! Keccak PRF over plaintext and context serves both as the tag and as the first CTR counter block.

use super::{
    AuthError,
    cipher::{Cipher, CipherKey},
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::{Secret, ct_eq},
};
use zeroize::Zeroize;

/// Customisation string of the PRF.
const CUSTOM: &[u8] = b"warpcrypt v2 siv";

/// The keys of one use. Wiped on drop.
pub struct SivKey {
    prf: MacKey,
    encryption: CipherKey,
}

impl SivKey {
    /// Number of bytes by which sealed text is longer than its plaintext.
    pub const OVERHEAD: usize = 16;

    /// Derives two sub-keys of `key`: one for the PRF (KMAC256), and one for `cipher` in CTR mode.
    pub fn new(cipher: Cipher, key: &Secret<32>) -> Self {
        let prf = subkey(key, "siv prf");
        let encryption = subkey(key, "siv encryption");
        SivKey {
            prf: MacKey::new(Mac::Kmac256, prf.expose(), CUSTOM),
            encryption: CipherKey::new(cipher, &encryption.expose()[..cipher.key_len()]),
        }
    }

    /// Encrypts `plain`. Returns the IV (16 bytes) and the ciphertext. `context` is authenticated but
    /// not stored; its parts are encoded unambiguously. Equal plaintexts in equal contexts result in
    /// equal sealed texts.
    pub fn seal(&self, context: &[&[u8]], plain: &[u8]) -> Vec<u8> {
        let iv = self.iv(context, plain);
        let mut sealed = Vec::with_capacity(Self::OVERHEAD + plain.len());
        sealed.extend_from_slice(&iv);
        sealed.extend_from_slice(plain);
        self.encryption.ctr_in_place(&iv, &mut sealed[Self::OVERHEAD..]);
        sealed
    }

    /// Decrypts and verifies.
    ///
    /// # Errors
    /// `AuthError` if `sealed` was not made by `seal` with this key and context.
    pub fn open(&self, context: &[&[u8]], sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        let (iv, ciphertext) = sealed.split_first_chunk::<16>().ok_or(AuthError)?;
        let mut plain = ciphertext.to_vec();
        self.encryption.ctr_in_place(iv, &mut plain);
        if ct_eq(&self.iv(context, &plain), iv) {
            return Ok(plain);
        }
        plain.zeroize();
        Err(AuthError)
    }

    /// The PRF over the number of context parts, each part preceded by its length (64 bits, big-endian),
    /// and the plaintext.
    fn iv(&self, context: &[&[u8]], plain: &[u8]) -> [u8; 16] {
        let lengths: Vec<[u8; 8]> = context.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let count = (context.len() as u64).to_be_bytes();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * context.len() + 2);
        parts.push(&count);
        for (length, part) in lengths.iter().zip(context) {
            parts.extend([length, *part]);
        }
        parts.push(plain);
        self.prf.tag(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cipher: Cipher, byte: u8) -> SivKey {
        SivKey::new(cipher, &Secret::new_with(|bytes| bytes.fill(byte)))
    }

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        for cipher in Cipher::ALL {
            let siv = key(cipher, 1);
            for len in [0, 1, 15, 16, 17, 255, 4096] {
                let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let sealed = siv.seal(&[b"a", b"bc"], &plain);
                assert_eq!(sealed.len(), len + SivKey::OVERHEAD);
                assert_eq!(siv.open(&[b"a", b"bc"], &sealed), Ok(plain.clone()));
                for other in [&[&b"ab"[..], b"c"][..], &[b"a", b"bc", b""], &[b"abc"], &[]] {
                    assert_eq!(siv.open(other, &sealed), Err(AuthError));
                    assert_ne!(siv.seal(other, &plain), sealed);
                }
                assert_eq!(key(cipher, 2).open(&[b"a", b"bc"], &sealed), Err(AuthError));
                assert_eq!(siv.open(&[b"a", b"bc"], &sealed[..sealed.len() - 1]), Err(AuthError));
            }
        }
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let siv = key(Cipher::Aes256, 1);
        let sealed = siv.seal(&[b"directory"], b"a name");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(siv.open(&[b"directory"], &changed), Err(AuthError));
        }
        for len in 0..sealed.len() {
            assert_eq!(siv.open(&[b"directory"], &sealed[..len]), Err(AuthError));
        }
    }
}
