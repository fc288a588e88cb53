//! The digest type common to all hash functions.

use std::fmt;

/// A digest of up to 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    bits: u16,
    bytes: [u8; 64],
}

impl Digest {
    /// Takes the first `bits` bits (at most 512) of `bytes`; further bits are cleared.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub(super) fn new(bits: u16, bytes: &[u8]) -> Self {
        let len = usize::from(bits).div_ceil(8);
        let mut digest = Digest { bits, bytes: [0; 64] };
        digest.bytes[..len].copy_from_slice(&bytes[..len]);
        if !bits.is_multiple_of(8) {
            digest.bytes[len - 1] &= 0xff << (8 - bits % 8);
        }
        digest
    }

    /// Parses a digest of `bits` bits from hexadecimal digits of either case. `None` if the number of
    /// digits is wrong.
    pub fn from_hex(bits: u16, digits: &str) -> Option<Self> {
        if digits.len() != usize::from(bits).div_ceil(4) || digits.len() > 128 {
            return None;
        }
        let mut bytes = [0; 64];
        for (at, digit) in digits.bytes().enumerate() {
            let value = (digit as char).to_digit(16)? as u8;
            bytes[at / 2] |= if at % 2 == 0 { value << 4 } else { value };
        }
        Some(Digest::new(bits, &bytes))
    }

    /// The bytes of the digest. Unused low bits of the last byte are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.bits).div_ceil(8)]
    }
}

/// Formats the bits as lower-case hexadecimal digits, rounded up to whole digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let hex = data_encoding::HEXLOWER.encode(self.bytes());
        f.write_str(&hex[..usize::from(self.bits).div_ceil(4)])
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
