//! Secrets on paper, in a form that people can copy: the recovery key, and the master secret.
//!
//! The text consists of groups of five characters of Crockford's base32. The last character of a group
//! checks the other four and the group's position, so that a typo or a swapped group is found before
//! any key is tried.

use zeroize::Zeroizing;

/// Characters in a group: four of the secret, and a check character.
pub const GROUP_LEN: usize = 5;
/// Bits of the secret in a group.
const GROUP_BITS: usize = 20;
/// Without I, L, O and U. When typed, I and L are read as 1, and O as 0.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Why a text is not a printed secret. It names positions, never the text typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrintedError {
    /// Wrong number of characters.
    #[error("expected {expected} letters and digits, got {found}")]
    Length {
        /// Letters and digits that the secret has.
        expected: usize,
        /// Letters and digits in the text.
        found: usize,
    },
    /// A group with an invalid character, or whose check character does not match.
    #[error("group {group} has a typo")]
    Typo {
        /// Number of the group, from 1.
        group: usize,
    },
}

/// Number of groups for a secret of `bytes` bytes.
pub const fn groups(bytes: usize) -> usize {
    (bytes * 8).div_ceil(GROUP_BITS)
}

/// The text of a secret of at most 77 bytes: groups joined by hyphens. The last group is filled
/// with zero bits.
pub fn to_text(bytes: &[u8]) -> Zeroizing<String> {
    let groups = groups(bytes.len());
    let mut text = Zeroizing::new(String::with_capacity(groups * (GROUP_LEN + 1)));
    for group in 0..groups {
        let digits: Zeroizing<[u8; 4]> = Zeroizing::new([0, 1, 2, 3].map(|i| digit(bytes, group * 4 + i)));
        if group > 0 {
            text.push('-');
        }
        for value in digits.iter().copied().chain([check(group, &*digits)]) {
            text.push(char::from(ALPHABET[usize::from(value)]));
        }
    }
    text
}

/// Parses a secret. Upper and lower case are equivalent; spaces and hyphens are ignored.
///
/// # Errors
/// `Length`, or `Typo` with the first incorrect group.
pub fn parse<const N: usize>(text: &str) -> Result<Zeroizing<[u8; N]>, PrintedError> {
    let separator = |c: &char| !c.is_whitespace() && !matches!(c, '-' | '\u{2010}'..='\u{2015}');
    let typed: Zeroizing<Vec<char>> = Zeroizing::new(text.chars().filter(separator).collect());
    let expected = groups(N) * GROUP_LEN;
    if typed.len() != expected {
        return Err(PrintedError::Length { expected, found: typed.len() });
    }
    let mut bytes = Zeroizing::new([0; N]);
    for (group, chars) in typed.chunks_exact(GROUP_LEN).enumerate() {
        let typo = PrintedError::Typo { group: group + 1 };
        let mut values = Zeroizing::new([0; GROUP_LEN]);
        for (value, c) in values.iter_mut().zip(chars) {
            *value = value_of(*c).ok_or(typo)?;
        }
        if check(group, &values[..4]) != values[4] {
            return Err(typo);
        }
        for (i, value) in values[..4].iter().enumerate() {
            put_digit(&mut *bytes, group * 4 + i, *value).ok_or(typo)?;
        }
    }
    Ok(bytes)
}

/// Base32 digit `index` of `bytes`, most significant bits first. The bits after the last byte are zero.
fn digit(bytes: &[u8], index: usize) -> u8 {
    (0..5).fold(0, |value, bit| {
        let at = index * 5 + bit;
        value << 1 | bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1)
    })
}

/// Inverse of `digit`; `None` if a bit after the last byte is set.
fn put_digit(bytes: &mut [u8], index: usize, value: u8) -> Option<()> {
    for bit in 0..5 {
        let at = index * 5 + bit;
        let set = value >> (4 - bit) & 1;
        match bytes.get_mut(at / 8) {
            Some(byte) => *byte |= set << (7 - at % 8),
            None if set != 0 => return None,
            None => {}
        }
    }
    Some(())
}

/// Check digit of a group: a polynomial over GF(32), evaluated at 2 and starting from the group's position.
/// One wrong digit, two swapped neighbours and two swapped groups always change it.
fn check(group: usize, digits: &[u8]) -> u8 {
    digits.iter().fold(group as u8 + 1, |sum, value| double(sum ^ value))
}

/// Twice `value` in GF(32) with x^5 = x^2 + 1.
fn double(value: u8) -> u8 {
    let shifted = value << 1;
    if shifted & 32 == 0 { shifted } else { shifted ^ 0b10_0101 }
}

fn value_of(c: char) -> Option<u8> {
    let c = match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    ALPHABET.iter().position(|known| char::from(*known) == c).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery_key::RecoveryKey;
    use crypto::secret::Secret;

    const GROUPS: usize = groups(32);
    use proptest::prelude::*;

    fn key(bytes: [u8; 32]) -> RecoveryKey {
        RecoveryKey::of(Secret::new_with(|k| *k = bytes))
    }

    fn group_of_typo(text: &str) -> Option<usize> {
        match RecoveryKey::parse(text) {
            Err(PrintedError::Typo { group }) => Some(group),
            _ => None,
        }
    }

    #[test]
    fn a_known_key_has_a_known_text() {
        assert_eq!(
            *key([0; 32]).to_text(),
            "0000G-00005-0000N-0000A-0000T-0000F-0000Z-0000M-00004-0000H-00001-0000Y-0000E"
                .to_owned()
                .as_str()
        );
    }

    #[test]
    fn generated_keys_differ_and_come_back() {
        let (one, two) = (RecoveryKey::generate().unwrap(), RecoveryKey::generate().unwrap());
        assert_ne!(one.expose(), two.expose());
        assert_eq!(RecoveryKey::parse(&one.to_text()).unwrap().expose(), one.expose());
    }

    #[test]
    fn case_spaces_and_look_alikes_do_not_matter() {
        let key = key([0x11; 32]);
        let text = key.to_text().replace('-', " \n").to_lowercase().replace('0', "o").replace('1', "l");
        assert_eq!(RecoveryKey::parse(&text).unwrap().expose(), key.expose());
        let joined = key.to_text().replace('-', "");
        assert_eq!(RecoveryKey::parse(&joined).unwrap().expose(), key.expose());
    }

    #[test]
    fn every_single_typo_is_named_by_its_group() {
        let text = key(std::array::from_fn(|i| (i * 37) as u8)).to_text();
        for (at, c) in text.char_indices().filter(|(_, c)| *c != '-') {
            for other in ALPHABET.iter().map(|b| char::from(*b)).chain(['U', '!', 'é']) {
                if other != c {
                    let mut typo: Vec<char> = text.chars().collect();
                    typo[at] = other;
                    let typo: String = typo.into_iter().collect();
                    assert_eq!(group_of_typo(&typo), Some(at / 6 + 1), "{at}: {other}");
                }
            }
        }
    }

    #[test]
    fn swapped_neighbours_and_swapped_groups_are_typos() {
        let text: Vec<char> = key(std::array::from_fn(|i| (i * 91 + 5) as u8)).to_text().chars().collect();
        for at in 0..text.len() - 1 {
            let (a, b) = (text[at], text[at + 1]);
            if a != b && a != '-' && b != '-' {
                let mut swapped = text.clone();
                swapped.swap(at, at + 1);
                assert_eq!(group_of_typo(&swapped.iter().collect::<String>()), Some(at / 6 + 1));
            }
        }
        let text: String = text.into_iter().collect();
        let groups: Vec<&str> = text.split('-').collect();
        for i in 0..GROUPS {
            for j in i + 1..GROUPS {
                let mut swapped = groups.clone();
                swapped.swap(i, j);
                assert_eq!(group_of_typo(&swapped.join("-")), Some(i + 1));
            }
        }
    }

    #[test]
    fn a_wrong_length_is_said() {
        assert_eq!(RecoveryKey::parse("").err(), Some(PrintedError::Length { expected: 65, found: 0 }));
        let text = key([7; 32]).to_text();
        assert_eq!(
            RecoveryKey::parse(&text[1..]).err(),
            Some(PrintedError::Length { expected: 65, found: 64 })
        );
        assert_eq!(
            RecoveryKey::parse(&(text.to_string() + "0")).err(),
            Some(PrintedError::Length { expected: 65, found: 66 })
        );
    }

    proptest! {
        #[test]
        fn every_key_comes_back(bytes in prop::array::uniform32(any::<u8>())) {
            let key = key(bytes);
            prop_assert_eq!(*RecoveryKey::parse(&key.to_text()).unwrap().expose(), bytes);
        }

        #[test]
        fn hostile_text_never_panics(text in ".{0,100}", chars in "[0-9A-Za-z]{65}") {
            let _ = RecoveryKey::parse(&text);
            let _ = RecoveryKey::parse(&chars);
        }
    }
}
