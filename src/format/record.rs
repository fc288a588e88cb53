//! The commit record: one 512-byte sector that says which version of a file counts.

use super::{entry::EPOCH_LIMIT, layout, tree::Digest};
use crate::crypto::{integrity::IntegrityKey, secret::ct_eq};

/// Bytes of a record.
pub const RECORD: usize = layout::RECORD as usize;
/// First bytes of a record.
pub const MAGIC: [u8; 8] = *b"warpfile";
/// Version of the record's layout.
pub const VERSION: u16 = 1;
/// Sequence numbers are below this, so that the next one always exists.
pub const SEQUENCE_LIMIT: u64 = 1 << 63;

/// State of a clean record, and of a dirty one.
const CLEAN: u16 = 0;
const DIRTY: u16 = 1;
/// Where each field starts.
const VERSION_AT: usize = 8;
const STATE_AT: usize = 10;
const KEY_GENERATION_AT: usize = 12;
const SEQUENCE_AT: usize = 16;
const SALT_AT: usize = 24;
const TARGET_AT: usize = 56;
const BASE_AT: usize = 104;
const RESERVED_AT: usize = 152;
const MAC_AT: usize = 480;
/// Bytes of the MAC.
pub const MAC_LEN: usize = RECORD - MAC_AT;
/// Bytes of a version: epoch, size, root.
const VERSION_LEN: usize = 48;

/// One version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Epoch; below 2^48.
    pub epoch: u64,
    /// Plaintext bytes; at most `layout::MAX_SIZE`.
    pub size: u64,
    /// Root of the tree over the slots current at `epoch`.
    pub root: Digest,
}

/// Where the keys of a file come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId {
    /// Which of the vault's master keys: 0 is the first.
    pub generation: u32,
    /// The file's salt.
    pub salt: [u8; 32],
}

/// A commit record. Clean: all of `target` is durable and nothing newer was begun. Dirty: `target` is
/// being written over the durable `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The higher one counts; below 2^63.
    pub sequence: u64,
    /// Where the file's keys come from, the same in both sectors.
    pub key: KeyId,
    /// The version that the record is about.
    pub target: Version,
    /// The durable version under a dirty record, of a lower epoch; `None` for a clean one.
    pub base: Option<Version>,
}

/// Why a sector is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// All zero: never written.
    #[error("empty record sector")]
    Empty,
    /// Wrong magic, version or field.
    #[error("malformed record")]
    Malformed,
    /// The MAC does not verify.
    #[error("record does not authenticate")]
    Forged,
}

impl Record {
    /// Where the key comes from that verifies a sector which looks like a record.
    ///
    /// # Errors
    /// `Empty` or `Malformed`.
    pub fn peek_key(sector: &[u8; RECORD]) -> Result<KeyId, RecordError> {
        if sector.iter().all(|byte| *byte == 0) {
            return Err(RecordError::Empty);
        }
        let known = sector[..VERSION_AT] == MAGIC && field::<2>(sector, VERSION_AT) == VERSION.to_be_bytes();
        if !known {
            return Err(RecordError::Malformed);
        }
        let generation = u32::from_be_bytes(field(sector, KEY_GENERATION_AT));
        Ok(KeyId { generation, salt: field(sector, SALT_AT) })
    }

    /// Sequence number and MAC of a sector that holds a record.
    pub fn peek_order(sector: &[u8; RECORD]) -> (u64, [u8; MAC_LEN]) {
        (u64::from_be_bytes(field(sector, SEQUENCE_AT)), field(sector, MAC_AT))
    }

    /// Verifies and decodes a sector.
    ///
    /// # Errors
    /// `Empty`, `Malformed` or `Forged`.
    pub fn decode(sector: &[u8; RECORD], key: &IntegrityKey) -> Result<Self, RecordError> {
        let key_id = Self::peek_key(sector)?;
        if !ct_eq(&key.digest(&[], &sector[..MAC_AT]), &sector[MAC_AT..]) {
            return Err(RecordError::Forged);
        }
        let dirty = match u16::from_be_bytes(field(sector, STATE_AT)) {
            CLEAN => false,
            DIRTY => true,
            _ => return Err(RecordError::Malformed),
        };
        let base = dirty.then(|| Version::decode(sector, BASE_AT));
        let record = Record {
            sequence: u64::from_be_bytes(field(sector, SEQUENCE_AT)),
            key: key_id,
            target: Version::decode(sector, TARGET_AT),
            base,
        };
        let reserved_from = if dirty { RESERVED_AT } else { BASE_AT };
        if sector[reserved_from..MAC_AT].iter().any(|byte| *byte != 0) || !record.in_range() {
            return Err(RecordError::Malformed);
        }
        Ok(record)
    }

    /// Encodes and authenticates.
    pub fn encode(&self, key: &IntegrityKey) -> [u8; RECORD] {
        debug_assert!(self.in_range(), "{self:?}");
        let mut out = [0; RECORD];
        out[..VERSION_AT].copy_from_slice(&MAGIC);
        out[VERSION_AT..STATE_AT].copy_from_slice(&VERSION.to_be_bytes());
        let state = if self.base.is_some() { DIRTY } else { CLEAN };
        out[STATE_AT..KEY_GENERATION_AT].copy_from_slice(&state.to_be_bytes());
        out[KEY_GENERATION_AT..SEQUENCE_AT].copy_from_slice(&self.key.generation.to_be_bytes());
        out[SEQUENCE_AT..SALT_AT].copy_from_slice(&self.sequence.to_be_bytes());
        out[SALT_AT..TARGET_AT].copy_from_slice(&self.key.salt);
        self.target.encode(&mut out[TARGET_AT..BASE_AT]);
        if let Some(base) = &self.base {
            base.encode(&mut out[BASE_AT..RESERVED_AT]);
        }
        let mac = key.digest(&[], &out[..MAC_AT]);
        out[MAC_AT..].copy_from_slice(&mac);
        out
    }

    /// Whether every number is one that a writer may write.
    fn in_range(&self) -> bool {
        let base_below = self.base.is_none_or(|base| base.in_range() && base.epoch < self.target.epoch);
        self.sequence < SEQUENCE_LIMIT && self.target.in_range() && base_below
    }
}

impl Version {
    fn in_range(&self) -> bool {
        self.epoch < EPOCH_LIMIT && self.size <= layout::MAX_SIZE
    }

    fn decode(sector: &[u8; RECORD], at: usize) -> Self {
        Version {
            epoch: u64::from_be_bytes(field(sector, at)),
            size: u64::from_be_bytes(field(sector, at + 8)),
            root: field(sector, at + 16),
        }
    }

    fn encode(&self, out: &mut [u8]) {
        debug_assert_eq!(out.len(), VERSION_LEN);
        out[..8].copy_from_slice(&self.epoch.to_be_bytes());
        out[8..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..].copy_from_slice(&self.root);
    }
}

/// The `N` bytes at `at`.
fn field<const N: usize>(sector: &[u8; RECORD], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&sector[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::integrity::Integrity;
    use proptest::prelude::*;

    fn key() -> IntegrityKey {
        IntegrityKey::new(Integrity::Kmac256, &[1; 32], b"test record")
    }

    fn version(epoch: u64, size: u64) -> Version {
        Version { epoch, size, root: [epoch as u8; 32] }
    }

    fn clean() -> Record {
        Record {
            sequence: 6,
            key: KeyId { generation: 3, salt: [2; 32] },
            target: version(10, 4097),
            base: None,
        }
    }

    fn dirty() -> Record {
        Record { base: Some(version(9, 77)), ..clean() }
    }

    /// A sector with the bytes at `at` replaced and a MAC that verifies all the same.
    fn forge(record: &Record, at: usize, bytes: &[u8]) -> [u8; RECORD] {
        let mut sector = record.encode(&key());
        sector[at..at + bytes.len()].copy_from_slice(bytes);
        let mac = key().digest(&[], &sector[..MAC_AT]);
        sector[MAC_AT..].copy_from_slice(&mac);
        sector
    }

    #[test]
    fn both_states_survive_a_round_trip() {
        for record in [clean(), dirty()] {
            let sector = record.encode(&key());
            assert_eq!(Record::decode(&sector, &key()), Ok(record));
            assert_eq!(Record::peek_key(&sector), Ok(KeyId { generation: 3, salt: [2; 32] }));
        }
    }

    #[test]
    fn every_changed_byte_is_refused() {
        for record in [clean(), dirty()] {
            let sector = record.encode(&key());
            for at in 0..RECORD {
                for flip in [1, 0x80, 0xff] {
                    let mut changed = sector;
                    changed[at] ^= flip;
                    assert!(Record::decode(&changed, &key()).is_err(), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn zeros_are_empty_and_other_bytes_malformed() {
        assert_eq!(Record::decode(&[0; RECORD], &key()), Err(RecordError::Empty));
        assert_eq!(Record::peek_key(&[0; RECORD]), Err(RecordError::Empty));
        assert_eq!(Record::decode(&[7; RECORD], &key()), Err(RecordError::Malformed));
    }

    #[test]
    fn another_key_is_refused() {
        let other = IntegrityKey::new(Integrity::Kmac256, &[2; 32], b"test record");
        assert_eq!(Record::decode(&clean().encode(&other), &key()), Err(RecordError::Forged));
    }

    #[test]
    fn authentic_nonsense_is_malformed() {
        let mut cases = vec![
            ("version", forge(&clean(), VERSION_AT, &[0, 2])),
            ("state", forge(&clean(), STATE_AT, &[0, 2])),
            ("epoch of 2^48", forge(&clean(), TARGET_AT, &EPOCH_LIMIT.to_be_bytes())),
            ("size", forge(&clean(), TARGET_AT + 8, &(layout::MAX_SIZE + 1).to_be_bytes())),
            ("base size", forge(&dirty(), BASE_AT + 8, &u64::MAX.to_be_bytes())),
            ("base epoch equal", forge(&dirty(), BASE_AT, &10u64.to_be_bytes())),
            ("base epoch above", forge(&dirty(), BASE_AT, &11u64.to_be_bytes())),
            ("sequence", forge(&clean(), SEQUENCE_AT, &SEQUENCE_LIMIT.to_be_bytes())),
            ("base in a clean record", forge(&clean(), BASE_AT, &[1])),
        ];
        cases.extend((RESERVED_AT..MAC_AT).map(|at| ("reserved", forge(&dirty(), at, &[1]))));
        for (what, sector) in cases {
            assert_eq!(Record::decode(&sector, &key()), Err(RecordError::Malformed), "{what}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), RECORD), prefix in any::<bool>()) {
            let mut sector: [u8; RECORD] = bytes.try_into().unwrap();
            if prefix {
                sector[..10].copy_from_slice(&clean().encode(&key())[..10]);
                let mac = key().digest(&[], &sector[..MAC_AT]);
                sector[MAC_AT..].copy_from_slice(&mac);
            }
            if let Ok(record) = Record::decode(&sector, &key()) {
                prop_assert_eq!(record.encode(&key()), sector);
            }
        }
    }
}
