//! The list of change times that a vault preserves from one mount to the next.

use super::keys;
use crypto::{AuthError, cipher::Cipher, kdf::subkey, secret::Secret, siv::SivKey};

/// Maximum number of entries in the file.
pub const TIMES_MAX: usize = 200_000;
/// Maximum size of the file in bytes.
pub const SEALED_MAX: usize = TIMES_MAX * ENTRY + SivKey::OVERHEAD;

/// Size of an entry in bytes: an inode number and two times.
const ENTRY: usize = 8 + 2 * TIME;
const TIME: usize = 12;

/// Seconds and nanoseconds since 1970.
pub type Moment = (i64, u32);

/// The change time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTime {
    /// The inode number in the store.
    pub inode: u64,
    /// The store's change time. The entry counts only while the file has exactly this one.
    pub stored: Moment,
    /// The change time to show instead.
    pub shown: Moment,
}

/// Encrypts lists of change times.
pub struct ChangeTimesKey(SivKey);

impl ChangeTimesKey {
    /// Derives the key from the vault's master key.
    pub fn derive(master: &Secret<32>, cipher: Cipher) -> Self {
        ChangeTimesKey(SivKey::new(cipher, &subkey(master, keys::CHANGE_TIMES)))
    }

    /// Seals the first `TIMES_MAX` of `times`.
    pub fn seal(&self, times: &[ChangeTime]) -> Vec<u8> {
        let plain: Vec<u8> = times.iter().take(TIMES_MAX).flat_map(ChangeTime::bytes).collect();
        self.0.seal(&[], &plain)
    }

    /// Decrypts the content of the file.
    ///
    /// # Errors
    /// `AuthError` if the content was not made by `seal` under this key.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<ChangeTime>, AuthError> {
        let plain = self.0.open(&[], sealed)?;
        let (entries, rest) = plain.as_chunks();
        if rest.is_empty() { Ok(entries.iter().map(ChangeTime::parse).collect()) } else { Err(AuthError) }
    }
}

impl ChangeTime {
    fn bytes(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.inode.to_be_bytes());
        for (at, (seconds, nanoseconds)) in [(8, self.stored), (8 + TIME, self.shown)] {
            bytes[at..at + 8].copy_from_slice(&seconds.to_be_bytes());
            bytes[at + 8..at + TIME].copy_from_slice(&nanoseconds.to_be_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; ENTRY]) -> ChangeTime {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let moment = |at: usize| (word(at).cast_signed(), half(at + 8));
        ChangeTime { inode: word(0), stored: moment(8), shown: moment(8 + TIME) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(fill: u8) -> ChangeTimesKey {
        ChangeTimesKey::derive(&Secret::new_with(|key| *key = [fill; 32]), Cipher::Aes256)
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_nothing_else_does(
            raw in prop::collection::vec((any::<u64>(), any::<Moment>(), any::<Moment>()), 0..40),
            place in any::<prop::sample::Index>(), bit in 0..8_u8, cut in 1..40_usize
        ) {
            let times = Vec::from_iter(raw.iter().map(|&(inode, stored, shown)| ChangeTime { inode, stored, shown }));
            let sealed = key(1).seal(&times);
            prop_assert_eq!(key(1).open(&sealed), Ok(times));
            prop_assert_eq!(key(2).open(&sealed), Err(AuthError));
            prop_assert_eq!(key(1).open(&sealed[..sealed.len().saturating_sub(cut)]), Err(AuthError));
            let mut changed = sealed;
            let place = place.index(changed.len());
            changed[place] ^= 1 << bit;
            prop_assert_eq!(key(1).open(&changed), Err(AuthError));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(key(1).open(&bytes), Err(AuthError));
        }
    }

    #[test]
    fn a_list_ends_where_the_file_does() {
        let key = key(1);
        let one = ChangeTime { inode: 1, stored: (2, 3), shown: (-4, 5) };
        assert_eq!(key.seal(&vec![one; TIMES_MAX + 1]).len(), SEALED_MAX);
        assert_eq!(key.open(&key.0.seal(&[], &one.bytes()[1..])), Err(AuthError), "half an entry");
    }
}
