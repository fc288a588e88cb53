//! Modified stored names, sidecars and directory ids are refused. Of everything that a key holder could
//! have sealed, only the canonical stored form of a name is accepted.
#![no_main]

use crypto::{
    cipher::Cipher,
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::Secret,
    siv::SivKey,
};
use format::{
    dir_id::{DirId, DirIdKey},
    keys,
    name::{Encoded, LONG, NAME_MAX, NameKeys, NameMode},
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt_fuzz::{Edit, base64, edited};

struct Keys {
    encrypted: NameKeys,
    short: NameKeys,
    plain: NameKeys,
    ids: DirIdKey,
    /// The two keys that `encrypted` contains.
    sealing: SivKey,
    hash: MacKey,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let master = Secret::new_with(|key| key.fill(1));
    let cipher = Cipher::Aes256;
    let long = subkey(&master, keys::LONG_NAMES);
    Keys {
        encrypted: NameKeys::derive(&master, cipher, NameMode::Encrypted),
        short: NameKeys::derive(&master, cipher, NameMode::EncryptedShort),
        plain: NameKeys::derive(&master, cipher, NameMode::Plain),
        ids: DirIdKey::derive(&master),
        sealing: SivKey::new(cipher, &subkey(&master, keys::NAMES)),
        hash: MacKey::new(Mac::Kmac256, long.expose(), b"warpcrypt v2 long name"),
    }
});

const DIR: DirId = DirId([2; 16]);

fuzz_target!(|parts: (&[u8], Vec<Edit>, Vec<Edit>)| {
    let (name, edits, more) = parts;
    for keys in [&KEYS.encrypted, &KEYS.short, &KEYS.plain] {
        canonical(keys, name, None);
        canonical(keys, name, Some(&edited(name, &edits)));
        let Ok(encoded) = keys.encode(&DIR, name) else { continue };
        let decoded = keys.decode(&DIR, &encoded.stored, encoded.sidecar.as_deref());
        assert_eq!(decoded.as_deref(), Ok(name));
        let sidecar = encoded.sidecar.map(|sidecar| edited(&sidecar, &more));
        canonical(keys, &edited(&encoded.stored, &edits), sidecar.as_deref());
    }
    let sealed = KEYS.sealing.seal(&[&DIR.0], name);
    let long = LONG.to_owned() + &base64(&KEYS.hash.digest(&[&sealed]));
    for keys in [&KEYS.encrypted, &KEYS.short] {
        canonical(keys, base64(&sealed).as_bytes(), None);
        canonical(keys, long.as_bytes(), Some(&sealed));
    }

    let id = KEYS.ids.encode(&DIR);
    let changed = edited(&id, &edits);
    assert_eq!(KEYS.ids.decode(&changed).ok(), (changed == id).then_some(DIR));
});

/// Asserts that whatever decodes is what encoding produces, if a store can have the name: each name has
/// one form.
fn canonical(keys: &NameKeys, stored: &[u8], sidecar: Option<&[u8]>) {
    if let Ok(name) = keys.decode(&DIR, stored, sidecar)
        && stored.len() <= NAME_MAX
    {
        let Encoded { stored: again, sidecar: beside } = keys.encode(&DIR, &name).expect("a name");
        assert_eq!(again, stored);
        assert!(beside.is_none() || beside.as_deref() == sidecar);
    }
}
