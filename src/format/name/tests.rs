use super::*;
use proptest::prelude::*;

const DIR: DirId = DirId([3; 16]);

fn keys(mode: NameMode) -> NameKeys {
    NameKeys::derive(&Secret::new_with(|k| k.fill(1)), Cipher::Aes256, mode)
}

fn decode(keys: &NameKeys, encoded: &Encoded) -> Result<Vec<u8>, NameError> {
    keys.decode(&DIR, &encoded.stored, encoded.sidecar.as_deref())
}

#[test]
fn names_of_every_length_survive_in_both_modes() {
    for mode in [NameMode::Encrypted, NameMode::Plain] {
        let keys = keys(mode);
        for len in 1..=NAME_MAX {
            let name: Vec<u8> = (0..len).map(|i| 128 + (i % 100) as u8).collect();
            let encoded = keys.encode(&DIR, &name).unwrap();
            assert!(encoded.stored.len() <= NAME_MAX);
            assert!(!encoded.stored.contains(&b'/'));
            let long = mode == NameMode::Encrypted && len > SHORT_MAX;
            assert_eq!(encoded.sidecar.is_some(), long);
            assert_eq!(keys.classify(&encoded.stored), if long { Class::Long } else { Class::Entry });
            assert_eq!(keys.classify(&sidecar_name(&encoded.stored)) == Class::Own, long);
            assert_eq!(decode(&keys, &encoded), Ok(name));
        }
        assert_eq!(keys.encode(&DIR, &[b'x'; 256]), Err(NameError::TooLong));
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(keys.encode(&DIR, name), Err(NameError::Invalid));
        }
    }
}

#[test]
fn a_name_is_stored_the_same_way_in_one_directory_and_another_way_in_the_next() {
    let keys = keys(NameMode::Encrypted);
    for name in [&b"short"[..], &[b'l'; 200]] {
        let here = keys.encode(&DIR, name).unwrap();
        assert_eq!(keys.encode(&DIR, name).unwrap(), here);
        let there = DirId([4; 16]);
        assert_ne!(keys.encode(&there, name).unwrap().stored, here.stored);
        assert_eq!(keys.decode(&there, &here.stored, here.sidecar.as_deref()), Err(NameError::Forged));
    }
}

#[test]
fn every_changed_byte_is_refused() {
    let keys = keys(NameMode::Encrypted);
    for name in [&b"a name of some length"[..], &[b'l'; 255]] {
        let encoded = keys.encode(&DIR, name).unwrap();
        for at in 0..encoded.stored.len() {
            for byte in (1..=255).filter(|b| *b != encoded.stored[at] && *b != b'/') {
                let mut changed = encoded.clone();
                changed.stored[at] = byte;
                assert_eq!(decode(&keys, &changed), Err(NameError::Forged), "byte {at} = {byte}");
            }
        }
        let Some(sidecar) = encoded.sidecar.clone() else { continue };
        for at in 0..sidecar.len() {
            for flip in 1..=255 {
                let mut changed = sidecar.clone();
                changed[at] ^= flip;
                let changed = Encoded { sidecar: Some(changed), ..encoded.clone() };
                assert_eq!(decode(&keys, &changed), Err(NameError::Forged), "sidecar byte {at}");
            }
            let cut = Encoded { sidecar: Some(sidecar[..at].to_vec()), ..encoded.clone() };
            assert_eq!(decode(&keys, &cut), Err(NameError::Forged));
        }
        assert_eq!(keys.decode(&DIR, &encoded.stored, None), Err(NameError::NoSidecar));
    }
}

#[test]
fn another_vaults_names_are_refused() {
    let other = NameKeys::derive(&Secret::new_with(|k| k.fill(2)), Cipher::Aes256, NameMode::Encrypted);
    for name in [&b"short"[..], &[b'l'; 200]] {
        let encoded = other.encode(&DIR, name).unwrap();
        assert_eq!(decode(&keys(NameMode::Encrypted), &encoded), Err(NameError::Forged));
    }
}

#[test]
fn a_long_name_has_no_short_form_and_a_short_name_no_long_one() {
    let keys = keys(NameMode::Encrypted);
    let sealed = keys.siv.seal(&[&DIR.0], &pad16(b"short"));
    let forged = Encoded { stored: keys.long_name(&sealed).into_bytes(), sidecar: Some(sealed) };
    assert_eq!(decode(&keys, &forged), Err(NameError::Forged));
}

#[test]
fn plain_names_stay_clear_of_the_reserved_ones() {
    let keys = keys(NameMode::Plain);
    let own =
        [CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, "warpcrypt.tmp.1", "warpcrypt.plain.x", "warpcrypt.long.x"];
    for name in own {
        let encoded = keys.encode(&DIR, name.as_bytes()).unwrap();
        assert_eq!(encoded.stored, [PLAIN, name].concat().into_bytes());
        assert_eq!(keys.classify(&encoded.stored), Class::Entry);
        assert_eq!(decode(&keys, &encoded), Ok(name.as_bytes().to_vec()));
    }
    for name in [CONFIG_FILE, DIR_ID_NAME, LOCK_FILE] {
        assert_eq!(keys.classify(name.as_bytes()), Class::Own);
        assert_eq!(keys.decode(&DIR, name.as_bytes(), None), Err(NameError::Forged));
    }
    assert_eq!(keys.classify(b"warpcrypt.tmp.1"), Class::Temporary);
    // An unnecessary escape would be a second stored form of the same name.
    assert_eq!(keys.decode(&DIR, b"warpcrypt.plain.x", None), Err(NameError::Forged));
    assert_eq!(keys.encode(&DIR, b"warpcrypt").unwrap().stored, b"warpcrypt");
    let long = [RESERVED.as_bytes(), &[b'x'; 230]].concat();
    assert_eq!(keys.encode(&DIR, &long), Err(NameError::TooLong));
}

#[test]
fn own_files_of_an_encrypted_vault_are_no_entries() {
    let keys = keys(NameMode::Encrypted);
    for name in [CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, "warpcrypt.plain.x", "warpcrypt.long.short"] {
        assert_eq!(keys.classify(name.as_bytes()), Class::Own, "{name}");
    }
    assert_eq!(keys.classify(b"warpcrypt.tmp.1"), Class::Temporary);
}

#[test]
fn copies_of_own_files_are_told_from_them() {
    for (name, own) in [
        ("warpcrypt.sync-conflict-20260101-120000-ABCDEFG.json", Some(CONFIG_FILE)),
        ("warpcrypt (conflicted copy 2026-01-01).json", Some(CONFIG_FILE)),
        ("warpcrypt-HOST.json", Some(CONFIG_FILE)),
        ("warpcrypt.json.conflict1", Some(CONFIG_FILE)),
        ("warpcrypt.json (1)", Some(CONFIG_FILE)),
        ("warpcrypt.json.sync-conflict-20260101-120000-ABCDEFG.copy", Some(CONFIG_COPY)),
        ("warpcrypt.json.copy..path2", Some(CONFIG_COPY)),
        ("warpcrypt (conflicted copy).dir", Some(DIR_ID_NAME)),
        ("warpcrypt.dir..path1", Some(DIR_ID_NAME)),
        ("warpcrypt.sync-conflict-20260101-120000-ABCDEFG.lock", Some(LOCK_FILE)),
        ("warpcrypt.times.orig", Some(TIMES_FILE)),
        ("warpcrypt2.json", None),
        ("warpcrypt.jsonl", None),
        ("warpcrypt.dirt", None),
        ("warpcrypt", None),
        ("warpcrypt.other", None),
    ] {
        assert_eq!(copied_from(name.as_bytes()), own, "{name}");
        for mode in [NameMode::Encrypted, NameMode::Plain] {
            let keys = keys(mode);
            assert!(
                !keys.has_form(name.as_bytes()) || keys.classify(name.as_bytes()) == Class::Entry,
                "{name}"
            );
        }
    }
    for own in
        [&FILES[..], &[LINKS, LISTS, "warpcrypt.aside.1", "warpcrypt.rewrite.1", "warpcrypt.lost.1"]].concat()
    {
        assert!(keys(NameMode::Encrypted).has_form(own.as_bytes()), "{own}");
    }
}

#[test]
fn what_nfs_clients_keep_has_their_names() {
    for (name, kept) in [
        (".nfs00000000012345670000000a", true),
        (".nfs.2024fc3b.0004", true),
        (".nfs", false),
        (".nfs-notes", false),
        ("nfs00000000012345670000000a", false),
    ] {
        assert_eq!(is_removed_over_nfs(name.as_bytes()), kept, "{name}");
    }
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), pick in 0..4_usize) {
        let prefix = ["", LONG, PLAIN, RESERVED][pick].as_bytes();
        let stored = [prefix, &bytes].concat();
        let keys = keys(NameMode::Encrypted);
        prop_assert!(keys.decode(&DIR, &stored, None).is_err());
        prop_assert!(keys.decode(&DIR, &stored, Some(&bytes)).is_err());
        prop_assert!(keys.decode(&DIR, to_base64(&bytes).as_bytes(), None).is_err());
        let _ = super::NameKeys::decode(&self::keys(NameMode::Plain), &DIR, &stored, None);
    }

    #[test]
    fn any_name_that_encodes_decodes(name in prop::collection::vec(any::<u8>(), 0..300), plain in any::<bool>()) {
        let keys = keys(if plain { NameMode::Plain } else { NameMode::Encrypted });
        if let Ok(encoded) = keys.encode(&DIR, &name) {
            prop_assert_eq!(decode(&keys, &encoded), Ok(name));
        }
    }
}
