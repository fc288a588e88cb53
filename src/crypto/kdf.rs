//! Keys from keys, and keys from passwords.

use super::{
    chunk::ChunkKeys,
    cipher::Cipher,
    mac::{Integrity, MacKey},
    secret::Secret,
};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use std::sync::Arc;
use zeroize::Zeroize;

/// Customisation string of sub-keys.
const SUBKEY_CUSTOM: &[u8] = b"warpcrypt v1 subkey";
/// Customisation string of a file's keys.
const FILE_CUSTOM: &[u8] = b"warpcrypt v1 file keys";
/// Customisation strings of the MACs under a file's tree key.
const LEAF_CUSTOM: &[u8] = b"warpcrypt v1 leaf";
const NODE_CUSTOM: &[u8] = b"warpcrypt v1 node";
const RECORD_CUSTOM: &[u8] = b"warpcrypt v1 record";

/// The sub-key of `parent` for one use: KMAC256 (SP 800-185), key `parent`, input `label`,
/// customisation string "warpcrypt v1 subkey".
pub fn subkey(parent: &Secret<32>, label: &str) -> Secret<32> {
    let mac = MacKey::new(Integrity::Kmac256, parent.expose(), SUBKEY_CUSTOM);
    Secret::new_with(|out| mac.mac(&[label.as_bytes()], out))
}

/// What Argon2id (RFC 9106) costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Argon2Cost {
    /// The most that is accepted: a vault's configuration is read before it can be authenticated, so
    /// its numbers must not exhaust the machine.
    pub const MAX: Argon2Cost = Argon2Cost { memory_kib: 4 << 20, passes: 256, lanes: 64 };

    /// # Errors
    /// If a number is out of range.
    fn params(self) -> Result<Params, String> {
        let Argon2Cost { memory_kib, passes, lanes } = self;
        let max = Self::MAX;
        if memory_kib > max.memory_kib || passes > max.passes || lanes > max.lanes {
            return Err(format!(
                "Argon2id with {memory_kib} KiB, {passes} passes and {lanes} lanes is more than the {} KiB, \
                 {} passes and {} lanes that are accepted",
                max.memory_kib, max.passes, max.lanes
            ));
        }
        Params::new(memory_kib, passes, lanes, Some(32)).map_err(|cause| {
            format!("Argon2id with {memory_kib} KiB, {passes} passes and {lanes} lanes: {cause}")
        })
    }
}

/// Argon2id of a password, 32 bytes.
///
/// # Errors
/// When the cost is out of range (`Argon2Cost::MAX` is checked before any memory is taken) or the memory
/// cannot be had.
pub fn argon2id(password: &[u8], salt: &[u8; 32], cost: Argon2Cost) -> Result<Secret<32>, String> {
    let params = cost.params()?;
    let count = params.block_count();
    let mut memory: Vec<Block> = Vec::new();
    memory
        .try_reserve_exact(count)
        .map_err(|_| format!("no memory for Argon2id: {} KiB are needed", cost.memory_kib))?;
    memory.resize(count, Block::default());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut result = Ok(());
    let key = Secret::new_with(|out| {
        result = argon2.hash_password_into_with_memory(password, salt, out, &mut memory[..]);
    });
    memory.iter_mut().for_each(Zeroize::zeroize);
    result.map_err(|cause| format!("Argon2id: {cause}"))?;
    Ok(key)
}

/// The keys of one file, all from one KMAC256 output over its salt.
pub struct FileKeys {
    /// Seals and opens chunks.
    pub chunk: Arc<ChunkKeys>,
    /// Digest of a group's slots.
    pub leaf: MacKey,
    /// Digest of a node page.
    pub node: MacKey,
    /// MAC of a commit record.
    pub record: MacKey,
}

impl FileKeys {
    /// Derives the keys of the file with this salt from the vault's contents key: 96 bytes of KMAC256 with
    /// the input `salt` and the customisation string "warpcrypt v1 file keys". Bytes 0..32 are the
    /// encryption key (its first `cipher.key_len()` bytes), 32..64 the chunk MAC key, 64..96 the tree key
    /// of leaf digests, node digests and records.
    pub fn derive(contents: &Secret<32>, salt: &[u8; 32], cipher: Cipher, integrity: Integrity) -> Self {
        let mac = MacKey::new(Integrity::Kmac256, contents.expose(), FILE_CUSTOM);
        let keys = Secret::<96>::new_with(|out| mac.mac(&[salt], out));
        let [encryption, chunk, tree] = keys.expose().as_chunks::<32>().0 else {
            unreachable!("three keys") // invariant: 96 bytes are three keys of 32
        };
        let tree_mac = |custom| MacKey::new(integrity, tree, custom);
        FileKeys {
            chunk: Arc::new(ChunkKeys::new(cipher, integrity, &encryption[..cipher.key_len()], chunk)),
            leaf: tree_mac(LEAF_CUSTOM),
            node: tree_mac(NODE_CUSTOM),
            record: tree_mac(RECORD_CUSTOM),
        }
    }
}
