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
fn names_of_every_length_survive_in_every_mode() {
    for mode in NameMode::ALL {
        let keys = keys(mode);
        for len in 1..=NAME_MAX {
            let name: Vec<u8> = (0..len).map(|i| 128 + (i % 100) as u8).collect();
            let encoded = keys.encode(&DIR, &name).unwrap();
            assert!(encoded.stored.len() <= mode.stored_max());
            assert!(!encoded.stored.contains(&b'/'));
            let long = len > mode.short_max();
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
fn stored_names_have_their_lengths_at_every_edge() {
    let [normal, short] = [NameMode::Encrypted, NameMode::EncryptedShort];
    for (mode, len, stored, sidecar) in [
        (normal, 64, 107, None),
        (normal, 80, 128, None),
        (normal, 81, 150, None),
        (normal, 160, 235, None),
        (normal, 161, 58, Some(192)),
        (normal, 255, 58, Some(272)),
        (short, 64, 107, None),
        (short, 65, 128, None),
        (short, 80, 128, None),
        (short, 81, 58, Some(112)),
        (short, 96, 58, Some(112)),
        (short, 97, 58, Some(128)),
        (short, 160, 58, Some(176)),
        (short, 161, 58, Some(192)),
        (short, 255, 58, Some(272)),
    ] {
        let encoded = keys(mode).encode(&DIR, &vec![b'n'; len]).unwrap();
        let lengths = (encoded.stored.len(), encoded.sidecar.map(|sealed| sealed.len()));
        assert_eq!(lengths, (stored, sidecar), "{mode:?}, {len}");
    }
}

#[test]
fn only_a_name_of_a_length_that_its_mode_writes_has_the_form_of_one() {
    const UP_TO_128: [usize; 5] = [43, 64, 86, 107, 128];
    const LONGER: [usize; 5] = [150, 171, 192, 214, 235];
    for len in 1..=NAME_MAX {
        let name = vec![b'A'; len];
        let [normal, short] =
            [NameMode::Encrypted, NameMode::EncryptedShort].map(|mode| keys(mode).has_form(&name));
        assert_eq!(short, UP_TO_128.contains(&len), "{len}");
        assert_eq!(normal, short || LONGER.contains(&len), "{len}");
    }
}

#[test]
fn a_stored_name_is_found_in_a_longer_one() {
    for mode in [NameMode::Encrypted, NameMode::EncryptedShort] {
        let keys = keys(mode);
        for len in [80, 81, 160, 161] {
            let stored = keys.encode(&DIR, &vec![b'n'; len]).unwrap().stored;
            for around in [("", "-laptop"), ("Copy of ", ""), ("._", ".orig"), ("", "0123456789012345678901")]
            {
                let stray = [around.0.as_bytes(), &stored, around.1.as_bytes()].concat();
                assert!(keys.stored_names_in(&stray).any(|found| found == stored), "{mode:?}, {len}");
            }
        }
    }
}

#[test]
fn the_limit_of_names_follows_from_that_of_the_store() {
    let [normal, short, plain] = [NameMode::Encrypted, NameMode::EncryptedShort, NameMode::Plain];
    for (mode, store, limit) in [
        (normal, 1530, 255),
        (normal, 255, 255),
        (normal, 235, 255),
        (normal, 234, 144),
        (normal, 189, 112),
        (normal, 143, 80),
        (normal, 42, 0),
        (short, 255, 255),
        (short, 143, 255),
        (short, 129, 255),
        (short, 128, 255),
        (short, 127, 64),
        (short, 43, 16),
        (short, 42, 0),
        (plain, 1530, 255),
        (plain, 255, 255),
        (plain, 143, 143),
    ] {
        assert_eq!(mode.name_max(store), limit, "{mode:?} in a store with names of {store} bytes");
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
    for mode in [NameMode::Encrypted, NameMode::EncryptedShort] {
        let keys = keys(mode);
        for len in [1, 79, 80, 81, 96, 159, 160, 161, 176] {
            let sealed = keys.siv.seal(&[&DIR.0], &pad16(&vec![b'n'; len]));
            let short = Encoded { stored: to_base64(&sealed).into_bytes(), sidecar: None };
            assert_eq!(decode(&keys, &short).is_ok(), len <= mode.short_max(), "{mode:?}, {len}");
            let long = Encoded { stored: keys.long_name(&sealed).into_bytes(), sidecar: Some(sealed) };
            assert_eq!(decode(&keys, &long).is_ok(), len > mode.short_max(), "{mode:?}, {len}");
        }
    }
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
        for mode in NameMode::ALL {
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
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), pick in 0..4_usize,
                                 mode in 0..NameMode::ALL.len()) {
        let prefix = ["", LONG, PLAIN, RESERVED][pick].as_bytes();
        let stored = [prefix, &bytes].concat();
        let mode = NameMode::ALL[mode];
        let keys = keys(mode);
        for result in [
            keys.decode(&DIR, &stored, None),
            keys.decode(&DIR, &stored, Some(&bytes)),
            keys.decode(&DIR, to_base64(&bytes).as_bytes(), None),
        ] {
            prop_assert!(!mode.is_encrypted() || result.is_err());
        }
    }

    #[test]
    fn any_name_that_encodes_decodes(name in prop::collection::vec(any::<u8>(), 0..300), mode in 0..NameMode::ALL.len()) {
        let keys = keys(NameMode::ALL[mode]);
        if let Ok(encoded) = keys.encode(&DIR, &name) {
            prop_assert_eq!(decode(&keys, &encoded), Ok(name));
        }
    }
}
