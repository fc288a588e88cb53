//! A configuration from any bytes: refused, or one that reads back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpcrypt::format::config::VaultConfig;

fuzz_target!(|text: &[u8]| {
    if let Ok(config) = VaultConfig::parse(text) {
        let again = VaultConfig::parse(config.to_json().as_bytes());
        assert_eq!(again.ok(), Some(config));
    }
});
