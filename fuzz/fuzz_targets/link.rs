//! Modified stored link targets are refused; anything that a key holder could have sealed decodes.
#![no_main]

use crypto::{cipher::Cipher, kdf::subkey, secret::Secret, siv::SivKey};
use format::{
    keys,
    link::{LinkKey, NONCE, target_len},
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt_fuzz::{Edit, base64, edited};

static KEYS: LazyLock<(LinkKey, SivKey)> = LazyLock::new(|| {
    let master = Secret::new_with(|key| key.fill(1));
    let sealing = SivKey::new(Cipher::Kuznyechik, &subkey(&master, keys::LINKS));
    (LinkKey::derive(&master, Cipher::Kuznyechik), sealing)
});

fuzz_target!(|parts: (&[u8], [u8; NONCE], Vec<Edit>, bool)| {
    let (target, nonce, edits, encoded) = parts;
    let (key, sealing) = &*KEYS;
    let sealed = [&nonce[..], &sealing.seal(&[&nonce], target)].concat();
    let stored = base64(&sealed).into_bytes();
    assert_eq!(target_len(stored.len()), target.len());
    assert_eq!(key.decode(&stored).as_deref(), Ok(target));
    let changed =
        if encoded { edited(&stored, &edits) } else { base64(&edited(&sealed, &edits)).into_bytes() };
    assert_eq!(key.decode(&changed).is_ok(), changed == stored);
    if let Ok(stored) = key.encode(target) {
        assert_eq!(target_len(stored.len()), target.len());
        assert_eq!(key.decode(stored.as_bytes()).as_deref(), Ok(target));
    }
});
