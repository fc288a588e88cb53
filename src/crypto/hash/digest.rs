//! What every hash function answers.

use std::fmt;

/// The answer: up to 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    bits: u16,
    bytes: [u8; 64],
}

impl Digest {
    /// The first `bits` (at most 512) of `bytes`; bits past them count as zeros.
    ///
    /// # Panics
    /// If `bytes` has fewer.
    pub(super) fn new(bits: u16, bytes: &[u8]) -> Self {
        let len = usize::from(bits).div_ceil(8);
        let mut digest = Digest { bits, bytes: [0; 64] };
        digest.bytes[..len].copy_from_slice(&bytes[..len]);
        if !bits.is_multiple_of(8) {
            digest.bytes[len - 1] &= 0xff << (8 - bits % 8);
        }
        digest
    }

    /// The digest that these hexadecimal digits mean, in either case, if there are as many as `bits` need.
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

    /// The bytes; the last one's unused low bits are zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.bits).div_ceil(8)]
    }
}

/// Lower-case hexadecimal digits, as many as the bits need.
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
