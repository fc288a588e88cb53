//! Byte-string helpers that several structures share.

use data_encoding::BASE64URL_NOPAD;

/// `bytes`, padded with zeros to a multiple of 16.
pub(super) fn pad16(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(16), 0);
    padded
}

/// Inverts `pad16`; `None` if `padded` is not the padding of a non-empty string without zeros.
pub(super) fn unpad16(padded: &[u8]) -> Option<&[u8]> {
    let len = padded.iter().position(|byte| *byte == 0).unwrap_or(padded.len());
    let (bytes, rest) = padded.split_at(len);
    let canonical = len > 0 && padded.len() == len.next_multiple_of(16) && rest.iter().all(|b| *b == 0);
    canonical.then_some(bytes)
}

/// Base64 with the URL alphabet and no padding (RFC 4648, section 5).
pub(super) fn to_base64(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

/// Inverts `to_base64`; `None` for any other text, including one whose unused trailing bits are not zero.
pub(super) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(text).ok()
}

/// Length of the base64 text for `len` bytes.
pub(super) const fn base64_len(len: usize) -> usize {
    (len * 4).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_unambiguous() {
        for len in 1..70 {
            let bytes = vec![7; len];
            let padded = pad16(&bytes);
            assert_eq!(padded.len(), len.div_ceil(16) * 16);
            assert_eq!(unpad16(&padded), Some(&bytes[..]));
        }
        assert_eq!(unpad16(&[]), None);
        assert_eq!(unpad16(&[0; 16]), None);
        assert_eq!(unpad16(&[7; 15]), None);
        assert_eq!(unpad16(&[[7; 16], [0; 16]].concat()), None);
        assert_eq!(unpad16(&[&[7, 0, 7][..], &[0; 13]].concat()), None);
    }

    #[test]
    fn base64_lengths_and_trailing_bits() {
        for len in 0..100 {
            assert_eq!(to_base64(&vec![1; len]).len(), base64_len(len));
        }
        assert_eq!(from_base64(b"AA"), Some(vec![0]));
        assert_eq!(from_base64(b"AB"), None);
        assert_eq!(from_base64(b"AA=="), None);
    }
}
