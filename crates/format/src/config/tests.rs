use super::*;
use crate::{
    key_slot::{Kdf, MAX_COST},
    recovery_key::RecoveryKey,
};
use crypto::kdf::Argon2Cost;
use proptest::prelude::*;

const TINY: Argon2Cost = Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 };
const LIST: ListId = ListId { id: [5; LIST_ID], items: 1 };
const PASSWORD: SlotSecret = SlotSecret::Password(b"correct horse");
const KEY_FILE: SlotSecret = SlotSecret::KeyFile(b"0123456789abcdef");

fn slot(secret: SlotSecret) -> NewSlot {
    NewSlot { secret, cost: TINY, created: 1_700_000_000, label: Some("ключ") }
}

fn settings() -> Settings {
    Settings { cipher: Cipher::Kuznyechik, integrity: Integrity::Kmac256, names: NameMode::Encrypted }
}

fn sample() -> (VaultConfig, Secret<32>) {
    VaultConfig::create(settings(), &slot(PASSWORD)).unwrap()
}

/// A vault with a slot of each of three kinds.
fn full() -> (VaultConfig, Secret<32>, RecoveryKey) {
    let (mut config, master) = sample();
    let recovery = RecoveryKey::generate().unwrap();
    assert_eq!(config.add(&master, &slot(KEY_FILE)).unwrap(), 2);
    let unlabelled = NewSlot { label: None, ..slot(SlotSecret::Recovery(&recovery)) };
    assert_eq!(config.add(&master, &unlabelled).unwrap(), 3);
    (config, master, recovery)
}

#[test]
fn every_kind_of_slot_opens_what_was_written() {
    let (config, master, recovery) = full();
    let again = VaultConfig::parse(config.to_json().as_bytes()).unwrap();
    assert_eq!(again, config);
    assert_eq!(again.settings(), settings());
    let secrets = [PASSWORD, KEY_FILE, SlotSecret::Recovery(&recovery)];
    for (id, secret) in (1..).zip(secrets) {
        let (slot, opened) = again.unlock_slot(&secret).unwrap();
        assert_eq!((slot, opened.expose()), (id, master.expose()));
    }
}

#[test]
fn settings_survive() {
    for cipher in Cipher::ALL {
        for integrity in Integrity::ALL {
            for names in NameMode::ALL {
                let settings = Settings { cipher, integrity, names };
                let (config, _) = VaultConfig::create(settings, &slot(PASSWORD)).unwrap();
                let again = VaultConfig::parse(config.to_json().as_bytes()).unwrap();
                assert_eq!(again.settings(), settings);
                assert!(again.unlock(&PASSWORD).is_ok());
            }
        }
    }
}

#[test]
fn wrong_and_missing_secrets_are_told_apart() {
    let (config, _) = sample();
    let unlock = |secret| config.unlock(&secret).err().unwrap();
    assert!(matches!(unlock(SlotSecret::Password(b"wrong")), ConfigError::WrongSecret(SlotKind::Password)));
    assert!(matches!(unlock(KEY_FILE), ConfigError::NoSlotOfThatKind(SlotKind::KeyFile)));
    let (config, _, _) = full();
    let unlock = |secret| config.unlock(&secret).err().unwrap();
    assert!(matches!(unlock(SlotSecret::KeyFile(b"short")), ConfigError::Slot(SlotError::KeyFileSize(5))));
    let other = RecoveryKey::generate().unwrap();
    assert!(matches!(unlock(SlotSecret::Recovery(&other)), ConfigError::WrongSecret(SlotKind::Recovery)));
}

#[test]
fn the_second_password_opens_too() {
    let (mut config, master) = sample();
    let second = SlotSecret::Password(b"another");
    let id = config.add(&master, &slot(second)).unwrap();
    assert_eq!(config.unlock_slot(&second).unwrap().0, id);
    config.remove(&master, 1).unwrap();
    assert!(matches!(config.unlock(&PASSWORD), Err(ConfigError::WrongSecret(_))));
    assert!(config.unlock(&second).is_ok());
}

#[test]
fn ids_are_not_used_twice_and_the_last_slot_stays() {
    let (mut config, master, _) = full();
    config.remove(&master, 3).unwrap();
    assert_eq!(config.add(&master, &slot(PASSWORD)).unwrap(), 4);
    for id in [1, 2] {
        config.remove(&master, id).unwrap();
    }
    assert!(matches!(config.remove(&master, 3), Err(ConfigError::NoSuchSlot(3))));
    assert!(matches!(config.remove(&master, 4), Err(ConfigError::LastSlot)));
    assert!(VaultConfig::parse(config.to_json().as_bytes()).unwrap().unlock(&PASSWORD).is_ok());
}

#[test]
fn another_master_key_changes_nothing() {
    let (mut config, _, _) = full();
    let before = config.clone();
    let other = Secret::new_with(|key| key.fill(1));
    assert!(matches!(config.add(&other, &slot(KEY_FILE)), Err(ConfigError::Edited)));
    assert!(matches!(config.remove(&other, 1), Err(ConfigError::Edited)));
    assert_eq!(config, before);
}

#[test]
fn there_is_room_for_so_many_slots() {
    let (mut config, master) = sample();
    for _ in 1..SLOTS_MAX {
        config.add(&master, &slot(KEY_FILE)).unwrap();
    }
    assert!(matches!(config.add(&master, &slot(KEY_FILE)), Err(ConfigError::TooManySlots)));
    assert!(VaultConfig::parse(config.to_json().as_bytes()).is_ok());
}

#[test]
fn edited_parameters_are_called_edited() {
    let (config, master, _) = full();
    let text = config.to_json();
    for (from, to) in [
        ("kuznyechik-ctr", "aes-128-ctr"),
        ("kmac256", "turboshake128x4"),
        ("\"encrypted\"", "\"plain\""),
        ("\"generation\": 3", "\"generation\": 4"),
        ("\"key_generation\": 0", "\"key_generation\": 1"),
        ("\"next_slot\": 4", "\"next_slot\": 5"),
        ("\"created\": 1700000000", "\"created\": 1700000001"),
        ("ключ", "слот"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text, "{from}");
        let edited = VaultConfig::parse(edited.as_bytes()).unwrap();
        assert!(matches!(edited.unlock(&PASSWORD), Err(ConfigError::Edited)), "{from}");
    }
    let mut fewer = config.clone();
    fewer.slots.remove(1);
    assert!(matches!(fewer.unlock(&PASSWORD), Err(ConfigError::Edited)));
    assert!(matches!(fewer.add(&master, &slot(KEY_FILE)), Err(ConfigError::Edited)));
}

#[test]
fn a_slot_is_bound_to_its_vault_its_id_and_its_parameters() {
    let (config, _, _) = full();
    let mut moved = config.clone();
    moved.id[0] ^= 1;
    let mut renumbered = config.clone();
    renumbered.slots[1].id = 3;
    let mut recast = config.clone();
    if let Kdf::KeyFile { salt } = recast.slots[1].kdf {
        recast.slots[1].kdf = Kdf::Recovery { salt };
    }
    for (what, edited) in [("vault", moved), ("id", renumbered)] {
        let error = edited.unlock(&KEY_FILE).err().unwrap();
        assert!(matches!(error, ConfigError::WrongSecret(SlotKind::KeyFile)), "{what}: {error}");
    }
    assert!(matches!(recast.unlock(&KEY_FILE), Err(ConfigError::NoSlotOfThatKind(_))));
    let mut cheaper = config;
    if let Kdf::Password { cost, .. } = &mut cheaper.slots[0].kdf {
        cost.passes = 2;
    }
    assert!(matches!(cheaper.unlock(&PASSWORD), Err(ConfigError::WrongSecret(_))));
}

#[test]
fn every_changed_byte_is_refused_or_changes_nothing() {
    let (config, _, recovery) = full();
    let text = config.to_json().into_bytes();
    for at in 0..text.len() {
        for flip in [1, 2, 4, 0x20, 0x80] {
            let mut changed = text.clone();
            changed[at] ^= flip;
            let Ok(parsed) = VaultConfig::parse(&changed) else { continue };
            // Only a change of white space may leave the meaning unchanged.
            if parsed == config {
                assert!(text[at].is_ascii_whitespace(), "byte {at}");
                continue;
            }
            assert!(parsed.unlock(&KEY_FILE).is_err(), "byte {at}");
            assert!(parsed.unlock(&SlotSecret::Recovery(&recovery)).is_err(), "byte {at}");
        }
    }
}

#[test]
fn another_version_is_named() {
    let text = sample().0.to_json();
    for version in [0, 1, 3, 18_446_744_073_709_551_615_u64] {
        let other = text.replace("\"format\": 2", &format!("\"format\": {version}"));
        assert!(
            matches!(VaultConfig::parse(other.as_bytes()), Err(ConfigError::UnknownVersion(v)) if v == version)
        );
    }
    let alone = VaultConfig::parse(br#"{"format": 7, "whatever": [1, 2]}"#);
    assert!(matches!(alone, Err(ConfigError::UnknownVersion(7))));
}

#[test]
fn what_is_no_configuration_is_damaged() {
    let (config, _, _) = full();
    // Without white space, so that a replacement can span lines.
    let value: serde_json::Value = serde_json::from_str(&config.to_json()).unwrap();
    let salt = &value["slots"][2]["kdf"]["recovery"]["salt"];
    let listed = value.to_string().replacen(&format!("{{\"salt\":{salt}}}"), &format!("[{salt}]"), 1);
    let text = config.to_json();
    let cases = [
        ("nothing", String::new()),
        ("no JSON", "warpcrypt".to_owned()),
        ("no version", "{}".to_owned()),
        ("version as text", text.replace("\"format\": 2", "\"format\": \"2\"")),
        ("cut", text[..text.len() - 3].to_owned()),
        ("unknown field", text.replacen('{', "{\"extra\": 1,", 1)),
        ("unknown field of a slot", text.replacen("\"created\"", "\"extra\": 1, \"created\"", 1)),
        ("unknown field of a KDF", text.replacen("\"passes\"", "\"extra\": 1, \"passes\"", 1)),
        ("field twice", text.replacen("\"cipher\"", "\"next_slot\": 4, \"cipher\"", 1)),
        ("missing field", text.replacen("\"names\": \"encrypted\",", "", 1)),
        ("unknown cipher", text.replace("kuznyechik-ctr", "aes-256-ecb")),
        ("unknown KDF", text.replace("\"key-file\"", "\"keyfile\"")),
        ("generation 0", text.replace("\"generation\": 3", "\"generation\": 0")),
        ("generation too high", text.replace("\"generation\": 3", "\"generation\": 9223372036854775808")),
        ("no list of former keys", text.replace("\"former_keys\": []", "\"former_keys\": null")),
        ("short hex", text.replacen("\"vault_id\": \"", "\"vault_id\": \"00", 1)),
        ("slots out of order", text.replace("\"id\": 3", "\"id\": 2")),
        ("slot 0", text.replace("\"id\": 1", "\"id\": 0")),
        ("next slot too low", text.replace("\"next_slot\": 4", "\"next_slot\": 3")),
        ("negative", text.replace("\"created\": 1700000000", "\"created\": -1")),
        ("too long", text.clone() + &" ".repeat(TEXT_MAX)),
        ("nested deeply", "[".repeat(60_000)),
        ("no label, said", text.replacen("\"label\": \"ключ\"", "\"label\": null", 1)),
        ("a KDF's fields as a list", listed),
    ];
    for (what, case) in cases {
        assert_ne!(case, text, "{what}");
        assert!(matches!(VaultConfig::parse(case.as_bytes()), Err(ConfigError::Damaged { .. })), "{what}");
    }
    let empty = text.replacen("\"slots\": [", "\"slots\": [], \"x\": [", 1);
    assert!(VaultConfig::parse(empty.as_bytes()).is_err());
}

#[test]
fn costs_are_capped_before_they_run() {
    let text = sample().0.to_json();
    for (field, value, high) in [
        ("\"memory_kib\": 8", u64::from(MAX_COST.memory_kib) + 1, true),
        ("\"memory_kib\": 8", u64::from(u32::MAX), true),
        ("\"passes\": 1", 65, true),
        ("\"lanes\": 1", 65, true),
        ("\"memory_kib\": 8", 7, false),
        ("\"passes\": 1", 0, false),
        ("\"lanes\": 1", 0, false),
        ("\"lanes\": 1", 2, false),
    ] {
        let name = field.split(": ").next().unwrap();
        let edited = text.replacen(field, &format!("{name}: {value}"), 1);
        assert_ne!(edited, text, "{field}");
        match VaultConfig::parse(edited.as_bytes()) {
            Err(ConfigError::Slot(SlotError::CostTooHigh { .. })) => assert!(high, "{field} = {value}"),
            Err(ConfigError::Slot(SlotError::CostTooLow)) => assert!(!high, "{field} = {value}"),
            other => panic!("{field} = {value}: {other:?}"),
        }
    }
    let greedy = NewSlot { cost: Argon2Cost { passes: 65, ..TINY }, ..slot(PASSWORD) };
    assert!(matches!(
        VaultConfig::create(settings(), &greedy),
        Err(ConfigError::Slot(SlotError::CostTooHigh { .. }))
    ));
}

#[test]
fn labels_and_key_files_have_limits() {
    let (mut config, master) = sample();
    for (label, fits) in [("\x1b[31m".to_owned(), false), ("x".repeat(65), false), ("x".repeat(64), true)] {
        let new = NewSlot { label: Some(&label), ..slot(KEY_FILE) };
        let added = config.add(&master, &new);
        assert!(if fits {
            added.is_ok()
        } else {
            matches!(added, Err(ConfigError::Slot(SlotError::BadLabel)))
        });
    }
    for (len, fits) in [(0, false), (15, false), (16, true), (1 << 20, true), ((1 << 20) + 1, false)] {
        let added = config.add(&master, &slot(SlotSecret::KeyFile(&vec![1; len])));
        let refused = matches!(added, Err(ConfigError::Slot(SlotError::KeyFileSize(found))) if found == len);
        assert!(if fits { added.is_ok() } else { refused }, "{len}");
    }
}

#[test]
fn messages_name_the_cause_and_no_secret() {
    let (config, _) = sample();
    let wrong = config.unlock(&SlotSecret::Password(b"hunter2")).err().unwrap();
    assert!(wrong.to_string().contains("password"));
    assert!(!format!("{wrong} {wrong:?}").contains("hunter2"));
    let text = config.to_json().replace("kuznyechik-ctr", "aes-256-ecb");
    let damaged = VaultConfig::parse(text.as_bytes()).err().unwrap().to_string();
    assert!(damaged.contains("aes-256-ecb") && damaged.contains("aes-256-ctr"), "{damaged}");
    let steers = config.to_json().replacen('{', "{\"\\u001b[2J\\nall is well\": 1,", 1);
    let damaged = VaultConfig::parse(steers.as_bytes()).err().unwrap().to_string();
    assert!(damaged.contains("all is well") && !damaged.contains(char::is_control), "{damaged:?}");
}

#[test]
fn every_change_raises_the_generation() {
    let (mut config, master) = sample();
    assert_eq!(config.generation(), 1);
    let id = config.add(&master, &slot(KEY_FILE)).unwrap();
    assert_eq!(config.generation(), 2);
    config.remove(&master, id).unwrap();
    assert_eq!(VaultConfig::parse(config.to_json().as_bytes()).unwrap().generation(), 3);
    assert!(config.remove(&master, id).is_err());
    assert_eq!(config.generation(), 3);
}

/// A configuration after a rotation, with the new master key and the previous one.
fn rotated() -> (VaultConfig, Secret<32>, Secret<32>) {
    let (config, old) = sample();
    let (config, master) = config.rotate(&old, 1, &slot(PASSWORD)).unwrap();
    (config, master, old)
}

#[test]
fn a_rotated_configuration_has_another_master_key_and_the_former_one() {
    let (config, master, old) = rotated();
    let again = VaultConfig::parse(config.to_json().as_bytes()).unwrap();
    assert_eq!(again, config);
    let opened = again.unlock(&PASSWORD).unwrap();
    assert_eq!(opened.expose(), master.expose());
    assert_ne!(opened.expose(), old.expose());
    assert_eq!((again.key_generation(), again.is_rotating()), (1, true));
    let (generation, former) = again.former(&opened).unwrap();
    assert_eq!((generation, former.expose()), (0, old.expose()));
    assert!(again.unlock(&PASSWORD).is_ok() && again.former(&old).is_none() && !again.is_authentic(&old));
}

#[test]
fn a_rotation_keeps_one_slot_with_its_number_and_label() {
    let (mut config, old) = sample();
    let id = config.add(&old, &NewSlot { label: Some("usb stick"), ..slot(KEY_FILE) }).unwrap();
    let (rotated, master) = config.rotate(&old, id, &slot(KEY_FILE)).unwrap();
    let [kept] = rotated.slots() else { panic!("one slot") };
    assert_eq!((kept.id, kept.label.as_deref()), (id, Some("usb stick")));
    assert!(matches!(rotated.unlock(&PASSWORD), Err(ConfigError::NoSlotOfThatKind(_))));
    assert!(rotated.generation() > config.generation());
    let mut later = rotated;
    assert_eq!(later.add(&master, &slot(PASSWORD)).unwrap(), id + 1);
    assert!(later.is_rotating());
}

#[test]
fn a_rotation_ends_before_the_next_one() {
    let (mut config, master, old) = rotated();
    assert!(matches!(config.rotate(&master, 1, &slot(PASSWORD)), Err(ConfigError::Rotating)));
    assert!(matches!(config.rotate(&old, 1, &slot(PASSWORD)), Err(ConfigError::Edited)));
    assert!(matches!(config.end_rotation(&old), Err(ConfigError::Edited)));
    config.end_rotation(&master).unwrap();
    assert!(!config.is_rotating() && config.former(&master).is_none());
    let again = VaultConfig::parse(config.to_json().as_bytes()).unwrap();
    assert_eq!(again.rotate(&master, 1, &slot(PASSWORD)).unwrap().0.key_generation(), 2);
}

#[test]
fn the_former_key_is_bound_to_its_vault_and_generation() {
    let (config, master, old) = rotated();
    for (vault, generation) in [([9; VAULT_ID], 0), (config.id, 1)] {
        let mut moved = config.clone();
        moved.former =
            vec![FormerKey { generation: 0, ..FormerKey::wrap(&master, &vault, generation, &old, LIST) }];
        assert!(matches!(moved.unlock(&PASSWORD), Err(ConfigError::Edited)));
        moved.changed(&master);
        assert!(matches!(moved.unlock(&PASSWORD), Err(ConfigError::Damaged { .. })));
        assert!(moved.former(&master).is_none());
    }
    let mut without = config.clone();
    without.former.pop();
    assert!(matches!(without.unlock(&PASSWORD), Err(ConfigError::Edited)));
    let text = config.to_json();
    for (from, to) in [
        ("\"key_generation\": 1", "\"key_generation\": 0"),
        ("\"generation\": 0", "\"generation\": 1"),
        ("\"generation\": 0", "\"generation\": -1"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text, "{from}");
        assert!(matches!(VaultConfig::parse(edited.as_bytes()), Err(ConfigError::Damaged { .. })), "{from}");
    }
    let mut many = config;
    many.key_generation = 1000;
    many.former =
        (0..=FORMER_MAX as u32).map(|n| FormerKey::wrap(&master, &many.id, n, &old, LIST)).collect();
    assert!(matches!(VaultConfig::parse(many.to_json().as_bytes()), Err(ConfigError::Damaged { .. })));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(VaultConfig::parse(&bytes).is_err());
    }

    #[test]
    fn hostile_edits_never_panic(at in any::<prop::sample::Index>(), cut in 0..40_usize, put in ".{0,20}") {
        let text = sample().0.to_json();
        let at = at.index(text.len());
        let end = (at + cut).min(text.len());
        let edited = [&text.as_bytes()[..at], put.as_bytes(), &text.as_bytes()[end..]].concat();
        if let Ok(parsed) = VaultConfig::parse(&edited) {
            prop_assert_eq!(VaultConfig::parse(parsed.to_json().as_bytes()).unwrap(), parsed);
        }
    }
}

/// Otherwise the target `config` would refuse its unmodified input.
#[test]
fn the_configuration_of_the_fuzz_target_opens() {
    let config = VaultConfig::parse(include_bytes!("../../../../fuzz/fuzz_targets/config.json")).unwrap();
    assert!(config.unlock(&SlotSecret::KeyFile(&[b'k'; 32])).is_ok());
}
