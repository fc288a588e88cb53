//! Stored link targets from any bytes are refused; any target that encodes decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt::{
    crypto::{cipher::Cipher, secret::Secret},
    format::link::{LinkKey, target_len},
};

static KEY: LazyLock<LinkKey> =
    LazyLock::new(|| LinkKey::derive(&Secret::new_with(|key| key.fill(1)), Cipher::Kuznyechik));

fuzz_target!(|bytes: &[u8]| {
    assert!(KEY.decode(bytes).is_err());
    if let Ok(stored) = KEY.encode(bytes) {
        assert_eq!(target_len(stored.len()), bytes.len());
        assert_eq!(KEY.decode(stored.as_bytes()).as_deref(), Ok(bytes));
    }
});
