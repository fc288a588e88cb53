//! MD6 (Rivest et al., "The MD6 hash function", 2008 and 2009): digests of 1 to 512 bits, with and without
//! a key, with any number of rounds, as a tree, sequentially, or as a tree of limited height.

mod compress;
#[cfg(target_arch = "x86_64")]
mod compress_avx2;
#[cfg(target_arch = "x86_64")]
mod compress_avx512;
pub mod forest;
mod steps;
#[cfg(test)]
mod tests;
mod tree;

use super::digest::Digest;
pub use compress::{BLOCK as NODE, Q, VALUE, Value};
use std::fmt;
pub use tree::Md6Join;
pub(super) use tree::PART;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Maximum height of the tree; no message needs more.
pub const LEVELS_MAX: u8 = 64;
/// Maximum number of rounds that a node's control word can express.
pub const ROUNDS_MAX: u16 = 4095;
/// Maximum length of a key in bytes.
pub const KEY_MAX: usize = 64;

/// A parameter is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The digest's length.
    #[error("an MD6 digest has 1 to 512 bits, not {0}")]
    Bits(u16),
    /// The key's length.
    #[error("an MD6 key has at most 64 bytes, not {0}")]
    Key(usize),
    /// The tree's height.
    #[error("an MD6 tree has at most 64 levels, not {0}")]
    Levels(u8),
    /// The number of rounds.
    #[error("MD6 has at most 4095 rounds, not {0}")]
    Rounds(u16),
}

/// MD6 with its parameters. The key is wiped on drop and not printed.
#[derive(Clone, PartialEq, Eq, ZeroizeOnDrop)]
pub struct Md6 {
    #[zeroize(skip)]
    bits: u16,
    #[zeroize(skip)]
    rounds: u16,
    #[zeroize(skip)]
    levels: u8,
    #[zeroize(skip)]
    key_len: u8,
    key: [u64; 8],
}

impl fmt::Debug for Md6 {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Md6 of {} bits, {} rounds, {} levels", self.bits, self.rounds, self.levels)
    }
}

impl Md6 {
    /// An MD6 with a digest of `bits` bits (1 to 512), no key, a full tree, and 40 + bits / 4 rounds.
    ///
    /// # Errors
    /// `ParameterError::Bits`.
    pub fn new(bits: u16) -> Result<Self, ParameterError> {
        if !(1..=512).contains(&bits) {
            return Err(ParameterError::Bits(bits));
        }
        Ok(Md6 { bits, rounds: 40 + bits / 4, levels: LEVELS_MAX, key_len: 0, key: [0; 8] })
    }

    /// Sets a key of at most 64 bytes. Unless it is empty, the number of rounds is raised to at least 80; a
    /// later `with_rounds` can lower it.
    ///
    /// # Errors
    /// `ParameterError::Key`.
    pub fn with_key(mut self, key: &[u8]) -> Result<Self, ParameterError> {
        if key.len() > KEY_MAX {
            return Err(ParameterError::Key(key.len()));
        }
        let mut padded = Zeroizing::new([0; KEY_MAX]);
        padded[..key.len()].copy_from_slice(key);
        for (word, bytes) in self.key.iter_mut().zip(padded.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        self.key_len = key.len() as u8;
        if !key.is_empty() {
            self.rounds = self.rounds.max(80);
        }
        Ok(self)
    }

    /// Limits the height of the tree to `levels` (0 to 64). Above it, nodes are hashed sequentially; with
    /// 0 all of them.
    ///
    /// # Errors
    /// `ParameterError::Levels`.
    pub fn with_levels(mut self, levels: u8) -> Result<Self, ParameterError> {
        if levels > LEVELS_MAX {
            return Err(ParameterError::Levels(levels));
        }
        self.levels = levels;
        Ok(self)
    }

    /// Sets the number of rounds (0 to 4095).
    ///
    /// # Errors
    /// `ParameterError::Rounds`.
    pub fn with_rounds(mut self, rounds: u16) -> Result<Self, ParameterError> {
        if rounds > ROUNDS_MAX {
            return Err(ParameterError::Rounds(rounds));
        }
        self.rounds = rounds;
        Ok(self)
    }

    /// Length of the digest in bits.
    pub fn bits(&self) -> u16 {
        self.bits
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u16 {
        self.rounds
    }

    /// The digest of a message.
    pub fn digest(&self, message: &[u8]) -> Digest {
        self.digest_bits(message, 0)
    }

    /// The digest of a message of which the `unused` lowest bits (0 to 7) of the last byte do not count.
    pub fn digest_bits(&self, message: &[u8], unused: u8) -> Digest {
        self.of_root(&tree::top(self, message, unused))
    }

    /// The digests of several messages, whose nodes are compressed side by side.
    pub(super) fn digests(&self, messages: &[&[u8]]) -> Vec<Digest> {
        tree::digests(self, messages)
    }

    /// The value of the root node of a message.
    pub fn root(&self, message: &[u8]) -> Value {
        tree::top(self, message, 0)
    }

    /// The value of the node above part number `index` of a longer message. `data` has at least one byte,
    /// and at most `Function::part_len`.
    pub fn part(&self, index: u64, data: &[u8]) -> Value {
        tree::part(self, index, data)
    }

    /// The values common to all nodes, for kernels (struct Md6Hash of `kernels/md6.cuh`): the key, and the
    /// control word without root flag and padding.
    pub fn shared(&self) -> Zeroizing<[u8; 72]> {
        let mut shared = Zeroizing::new([0; 72]);
        let words = self.key.into_iter().chain([self.control(false, 0)]);
        for (bytes, word) in shared.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        shared
    }

    /// Extracts the digest from the root's value.
    pub fn of_root(&self, value: &Value) -> Digest {
        tree::truncate(self, value)
    }

    /// A node's control word. `root` marks the root node; `padding` is the number of padding bits.
    fn control(&self, root: bool, padding: u64) -> u64 {
        u64::from(self.rounds) << 48
            | u64::from(self.levels) << 40
            | u64::from(root) << 36
            | padding << 20
            | u64::from(self.key_len) << 12
            | u64::from(self.bits)
    }
}
