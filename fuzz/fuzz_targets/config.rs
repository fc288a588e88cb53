//! A modified configuration is refused, or it parses to what its text says and round-trips. Only the
//! original configuration can be opened.
#![no_main]

use format::{config::VaultConfig, key_slot::SlotSecret, recovery_key::RecoveryKey};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::LazyLock;
use warpcrypt_fuzz::{Edit, edited};

/// A configuration with a slot of each kind, and the secrets for two of them.
const WRITTEN: &str = include_str!("config.json");
const KEY_FILE: &[u8] = &[b'k'; 32];
const RECOVERY: &str = "9XPV6-VGE7E-MHYKT-5J1WD-8TV7D-BG4K9-T9DDA-99ARA-R3FQQ-B36R5-MPDGK-38EW1-EMWGY";

static CONFIG: LazyLock<VaultConfig> =
    LazyLock::new(|| VaultConfig::parse(WRITTEN.as_bytes()).expect("a configuration"));

fuzz_target!(|edits: Vec<Edit>| {
    let text = edited(WRITTEN.as_bytes(), &edits);
    let recovery = RecoveryKey::parse(RECOVERY).expect("a recovery key");
    let secrets = [SlotSecret::KeyFile(KEY_FILE), SlotSecret::Recovery(&recovery)];
    let Ok(config) = VaultConfig::parse(&text) else {
        assert_ne!(text, WRITTEN.as_bytes());
        return;
    };
    let again = config.to_json();
    let said: Value = serde_json::from_slice(&text).expect("it was parsed");
    assert_eq!(serde_json::from_str::<Value>(&again).ok(), Some(said));
    assert_eq!(VaultConfig::parse(again.as_bytes()).ok().as_ref(), Some(&config));
    let opens = secrets.map(|secret| config.unlock(&secret).is_ok());
    assert_eq!(opens, [config == *CONFIG; 2]);
});
