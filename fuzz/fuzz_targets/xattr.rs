//! Stored attribute names and values from any bytes are refused; what encodes decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt::{
    crypto::{cipher::Cipher, secret::Secret},
    format::xattr::{Owner, XattrKeys},
};

static KEYS: LazyLock<XattrKeys> =
    LazyLock::new(|| XattrKeys::derive(&Secret::new_with(|key| key.fill(1)), Cipher::Aes128));

fuzz_target!(|parts: (&[u8], &[u8])| {
    let (name, value) = parts;
    let owner = Owner::File(&[3; 32]);
    assert!(KEYS.decode_name(name).is_err());
    assert!(KEYS.decode_value(owner, name, value).is_err());
    if let Some(stored) = KEYS.encode_name(name) {
        assert_eq!(KEYS.decode_name(stored.as_bytes()).as_deref(), Ok(name));
    }
});
