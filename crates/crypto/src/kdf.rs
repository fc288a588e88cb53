//! Derivation of keys from keys and from passwords.

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
/// Customisation string of the derivation of a file's keys.
const FILE_CUSTOM: &[u8] = b"warpcrypt v2 file keys";
/// Customisation strings of the uses of a file's tree key.
const LEAF_CUSTOM: &[u8] = b"warpcrypt v2 leaf";
const NODE_CUSTOM: &[u8] = b"warpcrypt v2 node";
const RECORD_CUSTOM: &[u8] = b"warpcrypt v2 record";

/// The sub-key of `parent` for one use: KMAC256 (SP 800-185) with the key `parent`, the input `label` and
/// the customisation string "warpcrypt v2 subkey".
pub fn subkey(parent: &Secret<32>, label: &str) -> Secret<32> {
    let mac = MacKey::new(Mac::Kmac256, parent.expose(), SUBKEY_CUSTOM);
    Secret::new_with(|out| mac.mac(&[label.as_bytes()], out))
}

/// Cost parameters of Argon2id (RFC 9106). Callers that read them from a vault must limit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Number of passes over the memory.
    pub passes: u32,
    /// Number of lanes.
    pub lanes: u32,
}

impl Argon2Cost {
    /// The parameters for the `argon2` crate, with 32 bytes of output.
    ///
    /// # Errors
    /// If a number is out of range.
    fn params(self) -> Result<Params, String> {
        let Argon2Cost { memory_kib, passes, lanes } = self;
        Params::new(memory_kib, passes, lanes, Some(32)).map_err(|cause| {
            format!("Argon2id with {memory_kib} KiB, {passes} passes and {lanes} lanes: {cause}")
        })
    }
}

/// Argon2id of a password, with 32 bytes of output.
///
/// # Errors
/// If Argon2 does not allow the cost, or the memory cannot be allocated.
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

/// Derives the keys of a vault's files. Input common to all files is absorbed once.
pub struct FileKdf {
    contents: Secret<32>,
    cipher: Cipher,
    integrity: Integrity,
    file: MacUse,
    /// Chunks, holes, leaves, nodes, records: the first two use the chunk MAC key, the others the tree key.
    uses: IntegrityUses<5>,
}

impl FileKdf {
    /// Prepares the derivation for a vault with this contents key, cipher and integrity function.
    pub fn new(contents: Secret<32>, cipher: Cipher, integrity: Integrity) -> Self {
        let file = MacUse::new(Mac::Kmac256, FILE_CUSTOM);
        let customs = [CHUNK_CUSTOM, HOLE_CUSTOM, LEAF_CUSTOM, NODE_CUSTOM, RECORD_CUSTOM];
        let uses = IntegrityUses::new(integrity, customs);
        FileKdf { contents, cipher, integrity, file, uses }
    }

    /// The keys of the file with this salt: 96 bytes of KMAC256 with the contents key, the input `salt` and
    /// the customisation string "warpcrypt v2 file keys". Bytes 0..32 are the encryption key (its first
    /// `cipher.key_len()` bytes), 32..64 the chunk MAC key, and 64..96 the tree key for leaf digests, node
    /// digests and records.
    pub fn keys(&self, salt: &[u8; 32]) -> FileKeys {
        // Not locked in memory: locking costs more than everything else here, and the file's keys are not
        // locked either.
        let mut bytes = Zeroizing::new([[0; 32]; 3]);
        self.file.key(self.contents.expose()).mac(&[salt], bytes.as_flattened_mut());
        let [encryption, chunk, tree] = &*bytes;
        let [chunk, hole, leaf, node, record] = self.uses.keys::<2>([chunk, tree]);
        let encryption = &encryption[..self.cipher.key_len()];
        let chunk = ChunkKeys::of_macs(self.cipher, self.integrity, encryption, chunk, hole);
        FileKeys { chunk: Arc::new(chunk), leaf, node, record }
    }
}

/// The keys of a file.
pub struct FileKeys {
    /// Seals and opens chunks.
    pub chunk: Arc<ChunkKeys>,
    /// For digests of a group's slots.
    pub leaf: IntegrityKey,
    /// For digests of node pages.
    pub node: IntegrityKey,
    /// For MACs of commit records.
    pub record: IntegrityKey,
}
