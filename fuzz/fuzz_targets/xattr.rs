//! Modified stored attribute names, values and lists are refused. Of everything that a key holder could
//! have sealed, only the canonical stored form of a name is accepted.
#![no_main]

use crypto::{cipher::Cipher, kdf::subkey, secret::Secret, siv::SivKey};
use format::{
    dir_id::DirId,
    keys,
    xattr::{NONCE, Owner, PREFIX, STORED_NAME_MAX, XattrKeys},
    xattr_list::{ListOwner, XattrList},
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt_fuzz::{Edit, base64, edited};

static KEYS: LazyLock<(XattrKeys, SivKey)> = LazyLock::new(|| {
    let master = Secret::new_with(|key| key.fill(1));
    let names = SivKey::new(Cipher::Aes128, &subkey(&master, keys::XATTR_NAMES));
    (XattrKeys::derive(&master, Cipher::Aes128), names)
});

fuzz_target!(|parts: (&[u8], &[u8], Vec<Edit>)| {
    let (name, value, edits) = parts;
    let (keys, sealing) = &*KEYS;
    canonical(keys, PREFIX.to_owned() + &base64(&sealing.seal(&[], name)));
    if let Some(stored) = keys.encode_name(name) {
        assert_eq!(keys.decode_name(stored.as_bytes()).as_deref(), Ok(name));
        let changed = edited(stored.as_bytes(), &edits);
        assert_eq!(keys.decode_name(&changed).is_ok(), changed == stored.as_bytes());
    }

    let (file, id) = ([3; 32], DirId([3; 16]));
    let owners = [Owner::File(&file), Owner::Dir(&id)];
    let stored = keys.encode_value(owners[0], name, value).expect("random bytes");
    assert_eq!(stored.len(), value.len() + NONCE + SivKey::OVERHEAD);
    assert_eq!(keys.decode_value(owners[0], name, &stored).as_deref(), Ok(value));
    assert!(keys.decode_value(owners[1], name, &stored).is_err());
    let changed = edited(&stored, &edits);
    assert_eq!(keys.decode_value(owners[0], name, &changed).is_ok(), changed == stored);
    let other = edited(name, &edits);
    assert_eq!(keys.decode_value(owners[0], &other, &stored).is_ok(), other == name);
    list(keys, name, value, &edits);
});

/// A list parses back as written, only for its own node. Bytes that parse as a list are its canonical
/// encoding.
fn list(keys: &XattrKeys, name: &[u8], value: &[u8], edits: &[Edit]) {
    if let Some(list) = XattrList::parse(value) {
        assert_eq!(list.bytes(), value);
    }
    let mut list = XattrList::default();
    if name.is_empty() || name.contains(&0) || !list.insert(name, value) {
        return;
    }
    list.insert(b"user.another", b"value");
    let edited_bytes = edited(&list.bytes(), edits);
    if let Some(parsed) = XattrList::parse(&edited_bytes) {
        assert_eq!(parsed.bytes(), edited_bytes);
    }
    let owners = [ListOwner::File([3; 32]), ListOwner::Dir(DirId([3; 16]))];
    let stored = keys.encode_list(&owners[0], &list).expect("random bytes");
    assert_eq!(keys.decode_list(&owners[0], &stored), Ok(list));
    assert!(keys.decode_list(&owners[1], &stored).is_err());
    let changed = edited(&stored, edits);
    assert_eq!(keys.decode_list(&owners[0], &changed).is_ok(), changed == stored);
    for owner in owners {
        let stored = keys.list_name(&owner);
        assert_eq!(keys.list_owner(stored.as_bytes()), Ok(owner));
        let changed = edited(stored.as_bytes(), edits);
        assert_eq!(keys.list_owner(&changed).is_ok(), changed == stored.as_bytes());
    }
}

/// Asserts that whatever decodes is what encoding produces, if a store can have the name.
fn canonical(keys: &XattrKeys, stored: String) {
    if let Ok(name) = keys.decode_name(stored.as_bytes())
        && stored.len() <= STORED_NAME_MAX
    {
        assert_eq!(keys.encode_name(&name), Some(stored));
    }
}
