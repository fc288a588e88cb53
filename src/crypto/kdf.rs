//! Keys from keys, and keys from passwords.

use super::{
    chunk::{CHUNK_CUSTOM, ChunkKeys, HOLE_CUSTOM},
    cipher::Cipher,
    integrity::{Integrity, IntegrityKey, IntegrityUses},
    mac::{Mac, MacKey, MacUse},
    secret::Secret,
};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// Customisation string of sub-keys.
const SUBKEY_CUSTOM: &[u8] = b"warpcrypt v2 subkey";
/// Customisation string of a file's keys.
const FILE_CUSTOM: &[u8] = b"warpcrypt v2 file keys";
/// Customisation strings of the MACs under a file's tree key.
const LEAF_CUSTOM: &[u8] = b"warpcrypt v2 leaf";
const NODE_CUSTOM: &[u8] = b"warpcrypt v2 node";
const RECORD_CUSTOM: &[u8] = b"warpcrypt v2 record";

/// The sub-key of `parent` for one use: KMAC256 (SP 800-185), key `parent`, input `label`,
/// customisation string "warpcrypt v2 subkey".
pub fn subkey(parent: &Secret<32>, label: &str) -> Secret<32> {
    let mac = MacKey::new(Mac::Kmac256, parent.expose(), SUBKEY_CUSTOM);
    Secret::new_with(|out| mac.mac(&[label.as_bytes()], out))
}

/// What Argon2id (RFC 9106) costs. How much of it is accepted is for whoever reads it to say.
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
    /// # Errors
    /// If a number is out of range.
    fn params(self) -> Result<Params, String> {
        let Argon2Cost { memory_kib, passes, lanes } = self;
        Params::new(memory_kib, passes, lanes, Some(32)).map_err(|cause| {
            format!("Argon2id with {memory_kib} KiB, {passes} passes and {lanes} lanes: {cause}")
        })
    }
}

/// Argon2id of a password, 32 bytes.
///
/// # Errors
/// When Argon2 does not define the cost, or the memory cannot be had.
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

/// Derives the keys of a vault's files. What is the same for all of them is absorbed once.
pub struct FileKdf {
    contents: Secret<32>,
    cipher: Cipher,
    integrity: Integrity,
    file: MacUse,
    /// Chunks, holes, leaves, nodes, records: the first two with the chunk MAC key, the others with the tree key.
    uses: IntegrityUses<5>,
}

impl FileKdf {
    /// For the vault with this contents key, cipher and integrity function.
    pub fn new(contents: Secret<32>, cipher: Cipher, integrity: Integrity) -> Self {
        let file = MacUse::new(Mac::Kmac256, FILE_CUSTOM);
        let customs = [CHUNK_CUSTOM, HOLE_CUSTOM, LEAF_CUSTOM, NODE_CUSTOM, RECORD_CUSTOM];
        let uses = IntegrityUses::new(integrity, customs);
        FileKdf { contents, cipher, integrity, file, uses }
    }

    /// The keys of the file with this salt: 96 bytes of KMAC256 with the contents key, the input `salt` and
    /// the customisation string "warpcrypt v2 file keys". Bytes 0..32 are the encryption key (its first
    /// `cipher.key_len()` bytes), 32..64 the chunk MAC key, 64..96 the tree key of leaf digests, node digests
    /// and records.
    pub fn keys(&self, salt: &[u8; 32]) -> FileKeys {
        // Not locked in memory, which costs more than all the rest, and the file's keys are not either.
        let mut bytes = Zeroizing::new([[0; 32]; 3]);
        self.file.key(self.contents.expose()).mac(&[salt], bytes.as_flattened_mut());
        let [encryption, chunk, tree] = &*bytes;
        let [chunk, hole, leaf, node, record] = self.uses.keys::<2>([chunk, tree]);
        let encryption = &encryption[..self.cipher.key_len()];
        let chunk = ChunkKeys::of_macs(self.cipher, self.integrity, encryption, chunk, hole);
        FileKeys { chunk: Arc::new(chunk), leaf, node, record }
    }
}

/// The keys of one file.
pub struct FileKeys {
    /// Seals and opens chunks.
    pub chunk: Arc<ChunkKeys>,
    /// Digest of a group's slots.
    pub leaf: IntegrityKey,
    /// Digest of a node page.
    pub node: IntegrityKey,
    /// MAC of a commit record.
    pub record: IntegrityKey,
}
