//! Stored names and sidecars from any bytes are refused; any name that encodes decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt::{
    crypto::{cipher::Cipher, secret::Secret},
    format::{
        dir_id::{DirId, DirIdKey},
        name::{NameKeys, NameMode},
    },
};

static KEYS: LazyLock<[NameKeys; 2]> = LazyLock::new(|| {
    let master = Secret::new_with(|key| key.fill(1));
    [NameMode::Encrypted, NameMode::Plain].map(|mode| NameKeys::derive(&master, Cipher::Aes256, mode))
});
static IDS: LazyLock<DirIdKey> = LazyLock::new(|| DirIdKey::derive(&Secret::new_with(|key| key.fill(1))));

fuzz_target!(|parts: (&[u8], &[u8])| {
    let (name, sidecar) = parts;
    let dir = DirId([2; 16]);
    assert!(IDS.decode(name).is_err());
    assert!(KEYS[0].decode(&dir, name, Some(sidecar)).is_err());
    for keys in KEYS.iter() {
        let _ = keys.decode(&dir, name, None);
        if let Ok(encoded) = keys.encode(&dir, name) {
            let decoded = keys.decode(&dir, &encoded.stored, encoded.sidecar.as_deref());
            assert_eq!(decoded.as_deref(), Ok(name));
        }
    }
});
