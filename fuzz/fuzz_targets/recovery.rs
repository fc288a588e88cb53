//! Any text is a recovery key or a named typo; a key prints as a text that reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpcrypt::format::recovery::RecoveryKey;

fuzz_target!(|text: &str| {
    if let Ok(key) = RecoveryKey::parse(text) {
        let again = RecoveryKey::parse(&key.to_text()).expect("its own text");
        assert_eq!(again.expose(), key.expose());
    }
});
