//! Any text is a recovery key or a typo that gets reported. A key's text parses back, and does not with
//! one character changed or two groups swapped.
#![no_main]

use format::{
    printed::{GROUP_LEN, PrintedError, groups},
    recovery_key::RecoveryKey,
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const GROUPS: usize = groups(32);
use warpcrypt_fuzz::{Edit, edited};

static TEXT: LazyLock<String> =
    LazyLock::new(|| RecoveryKey::generate().expect("random bytes").to_text().to_string());

fuzz_target!(|parts: (&str, Vec<Edit>, u8, char, [u8; 2])| {
    let (text, edits, at, other, swap) = parts;
    reads_back(text);
    if let Ok(changed) = std::str::from_utf8(&edited(TEXT.as_bytes(), &edits)) {
        reads_back(changed);
    }

    let digits: Vec<char> = TEXT.chars().filter(|c| *c != '-').collect();
    let at = usize::from(at) % digits.len();
    let mut typo = digits.clone();
    typo[at] = other;
    match RecoveryKey::parse(&typo.iter().collect::<String>()) {
        Ok(key) => {
            let same = matches!((other.to_ascii_uppercase(), digits[at]), ('O', '0') | ('I' | 'L', '1'));
            assert!(same || other.to_ascii_uppercase() == digits[at]);
            assert_eq!(*key.to_text(), *TEXT);
        }
        Err(PrintedError::Typo { group }) => assert_eq!(group, at / GROUP_LEN + 1),
        Err(PrintedError::Length { found, .. }) => assert_eq!(found, digits.len() - 1),
    }
    let mut groups: Vec<&str> = TEXT.split('-').collect();
    groups.swap(usize::from(swap[0]) % GROUPS, usize::from(swap[1]) % GROUPS);
    let swapped = groups.join("-");
    assert_eq!(RecoveryKey::parse(&swapped).is_ok(), swapped == *TEXT);
});

/// Asserts that a parsed key prints as a text that parses to the same key.
fn reads_back(text: &str) {
    if let Ok(key) = RecoveryKey::parse(text) {
        let again = RecoveryKey::parse(&key.to_text()).expect("its own text");
        assert_eq!(again.expose(), key.expose());
    }
}
