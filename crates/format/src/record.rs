//! The commit record: a 512-byte sector that determines the current version of a file.

use super::{entry::EPOCH_LIMIT, layout, tree::Digest};
use crypto::{integrity::IntegrityKey, secret::ct_eq};

/// Size of a record in bytes.
pub const RECORD: usize = layout::RECORD as usize;
/// The first bytes of a record.
pub const MAGIC: [u8; 8] = *b"warpfile";
/// Version of the record's layout.
pub const VERSION: u16 = 2;
/// Upper bound (exclusive) of sequence numbers, so that there is always a next one.
pub const SEQUENCE_LIMIT: u64 = 1 << 63;

/// Values of the claim field.
const CLEAN: u16 = 0;
const DIRTY: u16 = 1;
const RECOVERY: u16 = 2;
/// Offset of each field.
const VERSION_AT: usize = 8;
const CLAIM_AT: usize = 10;
const KEY_GENERATION_AT: usize = 12;
const SEQUENCE_AT: usize = 16;
const SALT_AT: usize = 24;
const TARGET_AT: usize = 56;
const BASE_AT: usize = 104;
const PREVIOUS_AT: usize = 152;
const BARRIER_AT: usize = 200;
/// Start of the reserved zeros in a dirty record.
const RESERVED_AT: usize = 248;
const LIMIT_AT: usize = 152;
const UNREADABLE_AT: usize = 160;
const MAC_AT: usize = 480;
/// Size of the MAC in bytes.
pub const MAC_LEN: usize = RECORD - MAC_AT;
/// Size of an encoded version in bytes: epoch, size, root.
const VERSION_LEN: usize = 48;
/// Maximum number of unreadable chunks in a recovery record.
pub const MOST_UNREADABLE: usize = (MAC_AT - UNREADABLE_AT) / 8;

/// A version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Below 2^48.
    pub epoch: u64,
    /// Plaintext size in bytes; at most `layout::MAX_SIZE`.
    pub size: u64,
    /// Root of the tree over the slots that are current at `epoch`.
    pub root: Digest,
}

/// Identifies the keys of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId {
    /// Key generation: number of the vault's master key, from 0.
    pub generation: u32,
    /// The file's salt.
    pub salt: [u8; 32],
}

/// A commit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Of two records, the one with the higher number is current. Below 2^63.
    pub sequence: u64,
    /// Identifies the file's keys. The same in both sectors.
    pub key: KeyId,
    /// The version that the record describes.
    pub target: Version,
    /// The state of that version.
    pub claim: Claim,
}

/// The state of a record's target version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The target is durable, and no newer version was started.
    Clean,
    /// The target is being written over the durable base.
    Dirty {
        /// The durable version. Its epoch is below the target's.
        base: Version,
        /// Versions flushed between base and target.
        between: Between,
    },
    /// Recovery assembled the target, and is writing it down.
    Recovery(Recovery),
}

/// Versions between the base and the target of a dirty record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Between {
    /// The version flushed before the target.
    pub previous: Option<Version>,
    /// The newest version whose flush overwrote data of the base, if that is not `previous`. Its epoch is
    /// below that of `previous`.
    pub barrier: Option<Version>,
}

/// Content of a recovery record besides its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The durable version below the target, with a lower epoch.
    pub base: Version,
    /// Slots with a higher epoch are ignored. At least the base's epoch, and below the target's.
    pub limit: u64,
    /// Chunks whose slot above the base counts, although their data does not verify. In ascending order,
    /// within the file, at most `MOST_UNREADABLE`.
    pub unreadable: Vec<u64>,
}

/// Why a sector is not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// All zeros: never written.
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
    /// Identifies the key that verifies this sector. Nothing is authenticated yet.
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

    /// Sequence number and MAC of a sector that contains a record. Not authenticated.
    pub fn peek_order(sector: &[u8; RECORD]) -> (u64, [u8; MAC_LEN]) {
        (u64::from_be_bytes(field(sector, SEQUENCE_AT)), field(sector, MAC_AT))
    }

    /// Whether a sector that contains a record claims that the file is clean. True for an empty sector,
    /// too. Not authenticated.
    pub fn peek_clean(sector: &[u8; RECORD]) -> bool {
        field(sector, CLAIM_AT) == CLEAN.to_be_bytes()
    }

    /// Verifies and decodes a record.
    ///
    /// # Errors
    /// `Empty`, `Malformed` or `Forged`.
    pub fn decode(sector: &[u8; RECORD], key: &IntegrityKey) -> Result<Self, RecordError> {
        let key_id = Self::peek_key(sector)?;
        if !ct_eq(&key.digest(&[], &sector[..MAC_AT]), &sector[MAC_AT..]) {
            return Err(RecordError::Forged);
        }
        let (claim, reserved_from) = match u16::from_be_bytes(field(sector, CLAIM_AT)) {
            CLEAN => (Claim::Clean, BASE_AT),
            DIRTY => {
                let between = Between {
                    previous: Version::decode_some(sector, PREVIOUS_AT),
                    barrier: Version::decode_some(sector, BARRIER_AT),
                };
                (Claim::Dirty { base: Version::decode(sector, BASE_AT), between }, RESERVED_AT)
            }
            RECOVERY => {
                let recovery = Recovery::decode(sector);
                let end = UNREADABLE_AT + recovery.unreadable.len() * 8;
                (Claim::Recovery(recovery), end)
            }
            _ => return Err(RecordError::Malformed),
        };
        let record = Record {
            sequence: u64::from_be_bytes(field(sector, SEQUENCE_AT)),
            key: key_id,
            target: Version::decode(sector, TARGET_AT),
            claim,
        };
        if sector[reserved_from..MAC_AT].iter().any(|byte| *byte != 0) || !record.in_range() {
            return Err(RecordError::Malformed);
        }
        Ok(record)
    }

    /// Encodes and authenticates the record.
    pub fn encode(&self, key: &IntegrityKey) -> [u8; RECORD] {
        debug_assert!(self.in_range(), "{self:?}");
        let mut out = [0; RECORD];
        out[..VERSION_AT].copy_from_slice(&MAGIC);
        out[VERSION_AT..CLAIM_AT].copy_from_slice(&VERSION.to_be_bytes());
        let claim = match self.claim {
            Claim::Clean => CLEAN,
            Claim::Dirty { .. } => DIRTY,
            Claim::Recovery(_) => RECOVERY,
        };
        out[CLAIM_AT..KEY_GENERATION_AT].copy_from_slice(&claim.to_be_bytes());
        out[KEY_GENERATION_AT..SEQUENCE_AT].copy_from_slice(&self.key.generation.to_be_bytes());
        out[SEQUENCE_AT..SALT_AT].copy_from_slice(&self.sequence.to_be_bytes());
        out[SALT_AT..TARGET_AT].copy_from_slice(&self.key.salt);
        self.target.encode(&mut out, TARGET_AT);
        if let Some(base) = self.base() {
            base.encode(&mut out, BASE_AT);
        }
        match &self.claim {
            Claim::Clean => {}
            Claim::Dirty { between: Between { previous, barrier }, .. } => {
                for (version, at) in [(previous, PREVIOUS_AT), (barrier, BARRIER_AT)] {
                    if let Some(version) = version {
                        version.encode(&mut out, at);
                    }
                }
            }
            Claim::Recovery(recovery) => recovery.encode(&mut out),
        }
        let mac = key.digest(&[], &out[..MAC_AT]);
        out[MAC_AT..].copy_from_slice(&mac);
        out
    }

    /// The durable version below the target; `None` if the record is clean.
    pub fn base(&self) -> Option<Version> {
        match &self.claim {
            Claim::Clean => None,
            Claim::Dirty { base, .. } => Some(*base),
            Claim::Recovery(recovery) => Some(recovery.base),
        }
    }

    /// The highest epoch of a slot that counts.
    pub fn limit(&self) -> u64 {
        match &self.claim {
            Claim::Clean | Claim::Dirty { .. } => self.target.epoch,
            Claim::Recovery(recovery) => recovery.limit,
        }
    }

    /// Whether all values are in the ranges that a writer uses.
    fn in_range(&self) -> bool {
        let Record { sequence, target, claim, .. } = self;
        let between = match claim {
            Claim::Clean => true,
            Claim::Dirty { base, between: Between { previous, barrier } } => {
                let all = [Some(base), barrier.as_ref(), previous.as_ref(), Some(target)];
                let all: Vec<&Version> = all.into_iter().flatten().collect();
                let ascending = all.is_sorted_by(|a, b| a.epoch < b.epoch);
                ascending && all.iter().all(|v| v.in_range()) && (previous.is_some() || barrier.is_none())
            }
            Claim::Recovery(recovery) => recovery.in_range(target),
        };
        *sequence < SEQUENCE_LIMIT && target.in_range() && between
    }
}

impl Recovery {
    fn decode(sector: &[u8; RECORD]) -> Self {
        let indices =
            sector[UNREADABLE_AT..MAC_AT].as_chunks().0.iter().map(|index| u64::from_be_bytes(*index));
        Recovery {
            base: Version::decode(sector, BASE_AT),
            limit: u64::from_be_bytes(field(sector, LIMIT_AT)),
            unreadable: indices.take_while(|index| *index > 0).map(|index| index - 1).collect(),
        }
    }

    /// Encodes everything except the base.
    fn encode(&self, out: &mut [u8; RECORD]) {
        out[LIMIT_AT..UNREADABLE_AT].copy_from_slice(&self.limit.to_be_bytes());
        for (place, index) in
            out[UNREADABLE_AT..MAC_AT].as_chunks_mut::<8>().0.iter_mut().zip(&self.unreadable)
        {
            *place = (index + 1).to_be_bytes();
        }
    }

    fn in_range(&self, target: &Version) -> bool {
        let Recovery { base, limit, unreadable } = self;
        base.in_range()
            && base.epoch <= *limit
            && *limit < target.epoch
            && unreadable.len() <= MOST_UNREADABLE
            && unreadable.is_sorted_by(|a, b| a < b)
            && unreadable.last().is_none_or(|last| *last < layout::chunks(target.size))
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

    /// `None` for all zeros. They encode no version here, because a version between two others has an
    /// epoch above 0.
    fn decode_some(sector: &[u8; RECORD], at: usize) -> Option<Self> {
        let is_there = sector[at..at + VERSION_LEN].iter().any(|byte| *byte != 0);
        is_there.then(|| Version::decode(sector, at))
    }

    fn encode(&self, out: &mut [u8; RECORD], at: usize) {
        let out = &mut out[at..at + VERSION_LEN];
        out[..8].copy_from_slice(&self.epoch.to_be_bytes());
        out[8..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..].copy_from_slice(&self.root);
    }
}

/// The `N` bytes at offset `at`.
fn field<const N: usize>(sector: &[u8; RECORD], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&sector[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::integrity::Integrity;
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
            claim: Claim::Clean,
        }
    }

    fn dirty() -> Record {
        let between = Between { previous: Some(version(9, 5)), barrier: Some(version(8, 900_000)) };
        Record { claim: Claim::Dirty { base: version(7, 77), between }, ..clean() }
    }

    fn recovery(unreadable: Vec<u64>) -> Record {
        let recovery = Recovery { base: version(7, 77), limit: 9, unreadable };
        Record { target: version(10, 1 << 40), claim: Claim::Recovery(recovery), ..clean() }
    }

    fn all() -> [Record; 6] {
        let between = Between { previous: Some(version(9, 5)), barrier: None };
        let one = Record { claim: Claim::Dirty { base: version(7, 77), between }, ..clean() };
        let none =
            Record { claim: Claim::Dirty { base: version(0, 0), between: Between::default() }, ..clean() };
        let most = (1000..).take(MOST_UNREADABLE).collect();
        [clean(), dirty(), one, none, recovery(vec![0, 5]), recovery(most)]
    }

    /// A sector with replaced bytes at `at`, and a MAC that verifies.
    fn forge(record: &Record, at: usize, bytes: &[u8]) -> [u8; RECORD] {
        let mut sector = record.encode(&key());
        sector[at..at + bytes.len()].copy_from_slice(bytes);
        let mac = key().digest(&[], &sector[..MAC_AT]);
        sector[MAC_AT..].copy_from_slice(&mac);
        sector
    }

    #[test]
    fn every_state_survives_a_round_trip() {
        for record in all() {
            let sector = record.encode(&key());
            assert_eq!(Record::decode(&sector, &key()), Ok(record));
            assert_eq!(Record::peek_key(&sector), Ok(KeyId { generation: 3, salt: [2; 32] }));
        }
    }

    #[test]
    fn every_changed_byte_is_refused() {
        for record in all() {
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
            ("version", forge(&clean(), VERSION_AT, &[0, 1])),
            ("state", forge(&clean(), CLAIM_AT, &[0, 3])),
            ("epoch of 2^48", forge(&clean(), TARGET_AT, &EPOCH_LIMIT.to_be_bytes())),
            ("size", forge(&clean(), TARGET_AT + 8, &(layout::MAX_SIZE + 1).to_be_bytes())),
            ("base size", forge(&dirty(), BASE_AT + 8, &u64::MAX.to_be_bytes())),
            ("base epoch equal", forge(&dirty(), BASE_AT, &10u64.to_be_bytes())),
            ("base epoch above", forge(&dirty(), BASE_AT, &11u64.to_be_bytes())),
            ("sequence", forge(&clean(), SEQUENCE_AT, &SEQUENCE_LIMIT.to_be_bytes())),
            ("base in a clean record", forge(&clean(), BASE_AT, &[1])),
            ("previous not below the target", forge(&dirty(), PREVIOUS_AT, &10u64.to_be_bytes())),
            ("previous without an epoch", forge(&all()[3], PREVIOUS_AT + 47, &[1])),
            ("barrier not below the previous", forge(&dirty(), BARRIER_AT, &9u64.to_be_bytes())),
            ("barrier not above the base", forge(&dirty(), BARRIER_AT, &7u64.to_be_bytes())),
            ("barrier without a previous", forge(&dirty(), PREVIOUS_AT, &[0; VERSION_LEN])),
            ("limit below the base", forge(&recovery(vec![]), LIMIT_AT, &6u64.to_be_bytes())),
            ("limit not below the target", forge(&recovery(vec![]), LIMIT_AT, &10u64.to_be_bytes())),
            ("chunks that descend", forge(&recovery(vec![3, 8]), UNREADABLE_AT, &20u64.to_be_bytes())),
            ("a chunk twice", forge(&recovery(vec![3, 8]), UNREADABLE_AT + 8, &4u64.to_be_bytes())),
            ("a chunk behind a gap", forge(&recovery(vec![3]), UNREADABLE_AT + 23, &[9])),
            (
                "a chunk past the end",
                forge(&recovery(vec![3]), UNREADABLE_AT, &((1u64 << 28) + 1).to_be_bytes()),
            ),
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
                let claim = u16::from(sector[CLAIM_AT] % 3);
                sector[CLAIM_AT..KEY_GENERATION_AT].copy_from_slice(&claim.to_be_bytes());
                let mac = key().digest(&[], &sector[..MAC_AT]);
                sector[MAC_AT..].copy_from_slice(&mac);
            }
            if let Ok(record) = Record::decode(&sector, &key()) {
                prop_assert_eq!(record.encode(&key()), sector);
            }
        }
    }
}
