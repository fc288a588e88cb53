//! Key slots: the master key, wrapped under a key derived from a password, a key file, both, or a recovery
//! key.

use super::recovery_key::RecoveryKey;
use crypto::{
    cipher::Cipher,
    kdf::{Argon2Cost, argon2id},
    mac::{Mac, MacKey},
    machine::{TooMuchMemory, check_memory},
    random,
    secret::Secret,
    siv::SivKey,
};
use std::{fmt, io, ops::RangeInclusive};
use zeroize::Zeroizing;

/// Size of a slot's salt in bytes.
pub const SALT: usize = 32;
/// Size of a wrapped master key in bytes.
pub const WRAPPED: usize = 32 + SivKey::OVERHEAD;
/// Allowed length of a key file in bytes.
pub const KEY_FILE_LEN: RangeInclusive<usize> = 16..=1 << 20;
/// Maximum length of a label in bytes.
pub const LABEL_MAX: usize = 64;
/// Argon2 cost of a password unless `init` measures a better one: 256 MiB, three passes, four lanes.
pub const DEFAULT_COST: Argon2Cost = Argon2Cost { memory_kib: 256 << 10, passes: 3, lanes: 4 };
/// Highest cost that a configuration may request, with 4 GiB of memory, so that a forged configuration
/// cannot exhaust the machine.
pub const MAX_COST: Argon2Cost = Argon2Cost { memory_kib: 4 << 20, passes: 64, lanes: 64 };

/// Why a slot cannot be created or tried.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The Argon2 cost is above `MAX_COST`.
    #[error("a key slot asks for {value} Argon2 {what}, more than the limit of {limit}")]
    CostTooHigh {
        /// The parameter in question.
        what: &'static str,
        /// Its value.
        value: u32,
        /// Its maximum.
        limit: u32,
    },
    /// The Argon2 cost is below the minimum that Argon2 defines.
    #[error("a key slot has no valid Argon2 cost: at least one pass, one lane and 8 KiB a lane")]
    CostTooLow,
    /// A key file that is too short or too long.
    #[error("a key file has 16 bytes to 1 MiB, this one has {0} bytes")]
    KeyFileSize(usize),
    /// A label that is too long or contains control characters.
    #[error("a label has at most 64 bytes and no control characters")]
    BadLabel,
    /// Argon2 failed, for example for lack of memory.
    #[error("argon2id: {0}")]
    Kdf(String),
    /// The Argon2 cost requires more memory than the machine can spare.
    #[error(transparent)]
    TooMuchMemory(#[from] TooMuchMemory),
    /// The kernel provided no random bytes.
    #[error("no random bytes: {0}")]
    Random(io::Error),
}

/// Kinds of secret that open a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// A password.
    Password,
    /// A key file.
    KeyFile,
    /// A recovery key.
    Recovery,
    /// A password and a key file, both of which are required.
    PasswordAndKeyFile,
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            SlotKind::Password => "password",
            SlotKind::KeyFile => "key file",
            SlotKind::Recovery => "recovery key",
            SlotKind::PasswordAndKeyFile => "password and key file",
        })
    }
}

/// A secret that opens a slot, or that a new slot is created for.
#[derive(Clone, Copy)]
pub enum SlotSecret<'a> {
    /// A password, without trailing newline.
    Password(&'a [u8]),
    /// Content of a key file.
    KeyFile(&'a [u8]),
    /// A parsed recovery key.
    Recovery(&'a RecoveryKey),
    /// A password, and the content of a key file.
    PasswordAndKeyFile(&'a [u8], &'a [u8]),
}

impl SlotSecret<'_> {
    /// The kind of slot that this secret opens.
    pub fn kind(&self) -> SlotKind {
        match self {
            SlotSecret::Password(_) => SlotKind::Password,
            SlotSecret::KeyFile(_) => SlotKind::KeyFile,
            SlotSecret::Recovery(_) => SlotKind::Recovery,
            SlotSecret::PasswordAndKeyFile(..) => SlotKind::PasswordAndKeyFile,
        }
    }
}

/// Parameters of a new slot.
#[derive(Clone, Copy)]
pub struct NewSlot<'a> {
    /// The secret that will open it.
    pub secret: SlotSecret<'a>,
    /// Argon2 cost of a password; ignored for slots without one.
    pub cost: Argon2Cost,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// Description for users: at most 64 bytes, no control characters.
    pub label: Option<&'a str>,
}

/// A key slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    /// Unique in the vault, never reused.
    pub id: u32,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// Description for users.
    pub label: Option<String>,
    /// Derivation of the wrapping key.
    pub kdf: Kdf,
    /// The wrapped master key.
    pub wrapped: [u8; WRAPPED],
}

/// Derivation of a slot's wrapping key from the secret that opens the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kdf {
    /// Argon2id (RFC 9106) of a password.
    Password {
        /// Random bytes.
        salt: [u8; SALT],
        /// At most `MAX_COST`.
        cost: Argon2Cost,
    },
    /// KMAC256 of a key file's content, with the salt as the key.
    KeyFile {
        /// Random bytes.
        salt: [u8; SALT],
    },
    /// KMAC256 of a recovery key, with the salt as the key.
    Recovery {
        /// Random bytes.
        salt: [u8; SALT],
    },
    /// KMAC256 of a key file's content, with Argon2id of a password as the key.
    PasswordAndKeyFile {
        /// Random bytes.
        salt: [u8; SALT],
        /// At most `MAX_COST`.
        cost: Argon2Cost,
    },
}

impl KeySlot {
    /// The kind of secret that opens this slot.
    pub fn kind(&self) -> SlotKind {
        match self.kdf {
            Kdf::Password { .. } => SlotKind::Password,
            Kdf::KeyFile { .. } => SlotKind::KeyFile,
            Kdf::Recovery { .. } => SlotKind::Recovery,
            Kdf::PasswordAndKeyFile { .. } => SlotKind::PasswordAndKeyFile,
        }
    }

    /// The Argon2 cost of trying a password; `None` if the slot has none.
    pub fn cost(&self) -> Option<Argon2Cost> {
        match self.kdf {
            Kdf::Password { cost, .. } | Kdf::PasswordAndKeyFile { cost, .. } => Some(cost),
            Kdf::KeyFile { .. } | Kdf::Recovery { .. } => None,
        }
    }

    /// Creates a slot that wraps `master`.
    pub(super) fn make(
        id: u32,
        vault: &[u8; 16],
        master: &Secret<32>,
        new: &NewSlot,
    ) -> Result<Self, SlotError> {
        check_label(new.label)?;
        let mut salt = [0; SALT];
        random::fill(&mut salt).map_err(SlotError::Random)?;
        let kdf = match new.secret {
            SlotSecret::Password(_) => Kdf::Password { salt, cost: check_cost(new.cost)? },
            SlotSecret::KeyFile(_) => Kdf::KeyFile { salt },
            SlotSecret::Recovery(_) => Kdf::Recovery { salt },
            SlotSecret::PasswordAndKeyFile(..) => {
                Kdf::PasswordAndKeyFile { salt, cost: check_cost(new.cost)? }
            }
        };
        let key = kdf.key(&new.secret)?.expect("a key of its kind"); // invariant: KDF of this secret
        let sealed = wrapping(&key).seal(&[&context(vault, id, &kdf)], master.expose());
        let mut wrapped = [0; WRAPPED];
        wrapped.copy_from_slice(&sealed);
        Ok(KeySlot { id, created: new.created, label: new.label.map(str::to_owned), kdf, wrapped })
    }

    /// The master key; `None` if `secret` does not open this slot.
    pub(super) fn open(
        &self,
        vault: &[u8; 16],
        secret: &SlotSecret,
    ) -> Result<Option<Secret<32>>, SlotError> {
        let Some(key) = self.kdf.key(secret)? else { return Ok(None) };
        let opened = wrapping(&key).open(&[&context(vault, self.id, &self.kdf)], &self.wrapped);
        let Ok(master) = opened.map(Zeroizing::new) else { return Ok(None) };
        Ok(Some(Secret::new_with(|out| out.copy_from_slice(&master))))
    }
}

impl Kdf {
    /// Kind, cost and salt as bytes. Both the wrapping and the configuration's MAC cover them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, cost, salt) = match self {
            Kdf::Password { salt, cost } => (1, Some(cost), salt),
            Kdf::KeyFile { salt } => (2, None, salt),
            Kdf::Recovery { salt } => (3, None, salt),
            Kdf::PasswordAndKeyFile { salt, cost } => (4, Some(cost), salt),
        };
        let mut out = vec![kind];
        for number in cost.into_iter().flat_map(|cost| [cost.memory_kib, cost.passes, cost.lanes]) {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(salt);
        out
    }

    /// The wrapping key; `None` if the secret is of another kind.
    fn key(&self, secret: &SlotSecret) -> Result<Option<Secret<32>>, SlotError> {
        Ok(Some(match (self, secret) {
            (Kdf::Password { salt, cost }, SlotSecret::Password(password)) => stretch(password, salt, *cost)?,
            (Kdf::KeyFile { salt }, SlotSecret::KeyFile(content)) => {
                check_key_file(content)?;
                extract(salt, b"warpcrypt v2 key file", content)
            }
            (Kdf::PasswordAndKeyFile { salt, cost }, SlotSecret::PasswordAndKeyFile(password, content)) => {
                check_key_file(content)?;
                let stretched = stretch(password, salt, *cost)?;
                extract(stretched.expose(), b"warpcrypt v2 password and key file", content)
            }
            (Kdf::Recovery { salt }, SlotSecret::Recovery(key)) => {
                extract(salt, b"warpcrypt v2 recovery key", key.expose())
            }
            _ => return Ok(None),
        }))
    }
}

/// Argon2id of a password. Checks first that the machine has the memory, because the cost is not
/// authenticated at this point.
fn stretch(password: &[u8], salt: &[u8; SALT], cost: Argon2Cost) -> Result<Secret<32>, SlotError> {
    check_memory(cost.memory_kib)?;
    argon2id(password, salt, cost).map_err(SlotError::Kdf)
}

fn check_key_file(content: &[u8]) -> Result<(), SlotError> {
    if KEY_FILE_LEN.contains(&content.len()) { Ok(()) } else { Err(SlotError::KeyFileSize(content.len())) }
}

/// Derives a uniform key from a secret with enough entropy, by KMAC256 under the salt.
fn extract(salt: &[u8; SALT], custom: &[u8], secret: &[u8]) -> Secret<32> {
    Secret::new_with(|out| MacKey::new(Mac::Kmac256, salt, custom).mac(&[secret], out))
}

fn wrapping(key: &Secret<32>) -> SivKey {
    SivKey::new(Cipher::Aes256, key)
}

/// The associated data of a wrapped key: in another vault or slot, or with other parameters, it
/// does not open.
fn context(vault: &[u8; 16], id: u32, kdf: &Kdf) -> Vec<u8> {
    [b"warpcrypt v2 key slot", &vault[..], &id.to_be_bytes(), &kdf.encode()].concat()
}

/// Refuses a cost that would exhaust the machine, and one that Argon2 does not allow.
pub(super) fn check_cost(cost: Argon2Cost) -> Result<Argon2Cost, SlotError> {
    for (what, value, limit) in [
        ("memory (KiB)", cost.memory_kib, MAX_COST.memory_kib),
        ("passes", cost.passes, MAX_COST.passes),
        ("lanes", cost.lanes, MAX_COST.lanes),
    ] {
        if value > limit {
            return Err(SlotError::CostTooHigh { what, value, limit });
        }
    }
    if cost.passes == 0 || cost.lanes == 0 || cost.memory_kib < 8 * cost.lanes {
        return Err(SlotError::CostTooLow);
    }
    Ok(cost)
}

/// Refuses a label that is too long or could disturb a terminal.
pub(super) fn check_label(label: Option<&str>) -> Result<(), SlotError> {
    match label {
        Some(text) if text.len() > LABEL_MAX || text.chars().any(char::is_control) => {
            Err(SlotError::BadLabel)
        }
        _ => Ok(()),
    }
}
