//! Key slots: the master key, wrapped under what a password, a key file or a recovery key gives.

use super::recovery_key::RecoveryKey;
use crate::crypto::{
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

/// Bytes of a slot's salt.
pub const SALT: usize = 32;
/// Bytes of a wrapped master key.
pub const WRAPPED: usize = 32 + SivKey::OVERHEAD;
/// Bytes that a key file may have.
pub const KEY_FILE_LEN: RangeInclusive<usize> = 16..=1 << 20;
/// Longest label, in bytes.
pub const LABEL_MAX: usize = 64;
/// What a password costs unless `init` measures something better: 256 MiB, three passes, four lanes.
pub const DEFAULT_COST: Argon2Cost = Argon2Cost { memory_kib: 256 << 10, passes: 3, lanes: 4 };
/// The most that a configuration may ask for: 4 GiB, so that a forged one cannot exhaust the machine.
pub const MAX_COST: Argon2Cost = Argon2Cost { memory_kib: 4 << 20, passes: 64, lanes: 64 };

/// Why a slot cannot be made or tried.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// A password slot asks for more than any vault needs.
    #[error("a key slot asks for {value} Argon2 {what}, more than the limit of {limit}")]
    CostTooHigh {
        /// Which number.
        what: &'static str,
        /// The number found.
        value: u32,
        /// The highest number allowed.
        limit: u32,
    },
    /// A password slot has a cost below what Argon2 defines.
    #[error("a key slot has no valid Argon2 cost: at least one pass, one lane and 8 KiB a lane")]
    CostTooLow,
    /// A key file that is too short to be a key, or too long.
    #[error("a key file has 16 bytes to 1 MiB, this one has {0} bytes")]
    KeyFileSize(usize),
    /// A label that is too long or has control characters.
    #[error("a label has at most 64 bytes and no control characters")]
    BadLabel,
    /// Argon2 failed, for lack of memory for example.
    #[error("argon2id: {0}")]
    Kdf(String),
    /// A slot asks for more memory than the machine can spare.
    #[error(transparent)]
    TooMuchMemory(#[from] TooMuchMemory),
    /// The kernel has no random bytes.
    #[error("no random bytes: {0}")]
    Random(io::Error),
}

/// What a slot opens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// A password.
    Password,
    /// A file of random bytes.
    KeyFile,
    /// A printed key.
    Recovery,
    /// A password and a file of random bytes, neither of which is enough.
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

/// The secret that opens a slot, or that a new one shall open with.
#[derive(Clone, Copy)]
pub enum SlotSecret<'a> {
    /// A password (no trailing newline).
    Password(&'a [u8]),
    /// Content of a key file.
    KeyFile(&'a [u8]),
    /// A recovery key, parsed.
    Recovery(&'a RecoveryKey),
    /// A password, and the content of a key file.
    PasswordAndKeyFile(&'a [u8], &'a [u8]),
}

impl SlotSecret<'_> {
    /// The kind of slot that it opens.
    pub fn kind(&self) -> SlotKind {
        match self {
            SlotSecret::Password(_) => SlotKind::Password,
            SlotSecret::KeyFile(_) => SlotKind::KeyFile,
            SlotSecret::Recovery(_) => SlotKind::Recovery,
            SlotSecret::PasswordAndKeyFile(..) => SlotKind::PasswordAndKeyFile,
        }
    }
}

/// A slot to be made.
#[derive(Clone, Copy)]
pub struct NewSlot<'a> {
    /// What will open it.
    pub secret: SlotSecret<'a>,
    /// What a password shall cost; the other kinds ignore it.
    pub cost: Argon2Cost,
    /// When, in seconds since 1970.
    pub created: u64,
    /// A word for people: at most 64 bytes, no control characters.
    pub label: Option<&'a str>,
}

/// A key slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    /// Unique in the vault, never used again.
    pub id: u32,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// A word for people.
    pub label: Option<String>,
    /// How its key is derived.
    pub kdf: Kdf,
    /// The master key, sealed.
    pub wrapped: [u8; WRAPPED],
}

/// How the key of a slot is derived from the secret that opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kdf {
    /// Argon2id (RFC 9106) of a password.
    Password {
        /// Random.
        salt: [u8; SALT],
        /// Within `MAX_COST`.
        cost: Argon2Cost,
    },
    /// KMAC256 of a key file's content, the salt its key.
    KeyFile {
        /// Random.
        salt: [u8; SALT],
    },
    /// KMAC256 of a recovery key, the salt its key.
    Recovery {
        /// Random.
        salt: [u8; SALT],
    },
    /// KMAC256 of a key file's content, its key Argon2id of a password.
    PasswordAndKeyFile {
        /// Random.
        salt: [u8; SALT],
        /// Within `MAX_COST`.
        cost: Argon2Cost,
    },
}

impl KeySlot {
    /// What opens it.
    pub fn kind(&self) -> SlotKind {
        match self.kdf {
            Kdf::Password { .. } => SlotKind::Password,
            Kdf::KeyFile { .. } => SlotKind::KeyFile,
            Kdf::Recovery { .. } => SlotKind::Recovery,
            Kdf::PasswordAndKeyFile { .. } => SlotKind::PasswordAndKeyFile,
        }
    }

    /// What trying a password for it costs, if it opens with one.
    pub fn cost(&self) -> Option<Argon2Cost> {
        match self.kdf {
            Kdf::Password { cost, .. } | Kdf::PasswordAndKeyFile { cost, .. } => Some(cost),
            Kdf::KeyFile { .. } | Kdf::Recovery { .. } => None,
        }
    }

    /// Wraps `master` under a new slot.
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
        let key = kdf.key(&new.secret)?.expect("a key of its kind"); // invariant: made for this secret
        let sealed = wrapping(&key).seal(&[&context(vault, id, &kdf)], master.expose());
        let mut wrapped = [0; WRAPPED];
        wrapped.copy_from_slice(&sealed);
        Ok(KeySlot { id, created: new.created, label: new.label.map(str::to_owned), kdf, wrapped })
    }

    /// The master key, if `secret` opens this slot.
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
    /// Kind, cost and salt as bytes: part of what the wrapping and the configuration's MAC bind.
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

/// Argon2id of a password, if the machine has the memory: nothing has authenticated the cost.
fn stretch(password: &[u8], salt: &[u8; SALT], cost: Argon2Cost) -> Result<Secret<32>, SlotError> {
    check_memory(cost.memory_kib)?;
    argon2id(password, salt, cost).map_err(SlotError::Kdf)
}

fn check_key_file(content: &[u8]) -> Result<(), SlotError> {
    if KEY_FILE_LEN.contains(&content.len()) { Ok(()) } else { Err(SlotError::KeyFileSize(content.len())) }
}

/// A uniform key from a secret that has the entropy but not the shape: KMAC256 under the salt.
fn extract(salt: &[u8; SALT], custom: &[u8], secret: &[u8]) -> Secret<32> {
    Secret::new_with(|out| MacKey::new(Mac::Kmac256, salt, custom).mac(&[secret], out))
}

fn wrapping(key: &Secret<32>) -> SivKey {
    SivKey::new(Cipher::Aes256, key)
}

/// What a wrapped key is bound to: moved to another vault, slot or set of parameters it does not open.
fn context(vault: &[u8; 16], id: u32, kdf: &Kdf) -> Vec<u8> {
    [b"warpcrypt v2 key slot", &vault[..], &id.to_be_bytes(), &kdf.encode()].concat()
}

/// Refuses a cost that would exhaust the machine, and one that Argon2 does not define.
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

/// Refuses a label that would spoil a terminal.
pub(super) fn check_label(label: Option<&str>) -> Result<(), SlotError> {
    match label {
        Some(text) if text.len() > LABEL_MAX || text.chars().any(char::is_control) => {
            Err(SlotError::BadLabel)
        }
        _ => Ok(()),
    }
}
