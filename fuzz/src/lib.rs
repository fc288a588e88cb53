//! Shared by the targets: edits of valid bytes, because random bytes never get past the first magic
//! number or tag.

pub mod past;
pub mod tamper;

use arbitrary::Arbitrary;

/// A replacement for a part of a text.
#[derive(Debug, Arbitrary)]
pub struct Edit<'a> {
    at: u16,
    remove: u8,
    insert: &'a [u8],
}

/// Applies all edits to `bytes`. Positions past the end wrap around.
pub fn edited(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits {
        let at = usize::from(edit.at) % (bytes.len() + 1);
        let end = bytes.len().min(at + usize::from(edit.remove));
        bytes.splice(at..end, edit.insert.iter().copied());
    }
    bytes
}

/// Base64 with the URL alphabet and no padding.
pub fn base64(bytes: &[u8]) -> String {
    data_encoding::BASE64URL_NOPAD.encode(bytes)
}
