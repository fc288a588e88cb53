//! Published vectors by standard, and second opinions.

mod block_ciphers;
mod hashes;
mod keccak;
mod passwords;
mod random;
mod second_opinion;

/// Bytes of hexadecimal digits; blanks are skipped.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    data_encoding::HEXLOWER_PERMISSIVE.decode(&digits).expect("hexadecimal digits")
}

/// The bytes 0, 1, 2, ... of the standards' examples.
pub fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}
