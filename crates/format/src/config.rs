//! The vault's configuration: its settings, and the key slots that open it.
//!
//! It is stored as JSON (`warpcrypt.json`), all of it under a MAC whose key is derived from the master
//! key. A configuration that unlocks was therefore written by a holder of the master key.

use super::{
    former_list::{LIST_ID, ListId},
    key_slot::{KeySlot, NewSlot, SlotError, SlotKind, SlotSecret, WRAPPED},
    keys,
    name::NameMode,
    printed::PrintedError,
};
use crypto::{
    cipher::Cipher,
    integrity::Integrity,
    kdf::subkey,
    mac::{Mac, MacKey},
    random,
    secret::{Secret, ct_eq},
    siv::SivKey,
};
use std::io;
use zeroize::Zeroizing;

/// Version of the format.
pub const VERSION: u32 = 2;
/// Size of a vault id in bytes.
pub const VAULT_ID: usize = 16;
/// Maximum number of key slots.
pub const SLOTS_MAX: usize = 32;
/// Maximum number of former keys: a rotation ends before the next one begins.
pub const FORMER_MAX: usize = 1;
/// Upper bound (exclusive) of a configuration's generation.
pub const GENERATION_LIMIT: u64 = 1 << 63;
/// Maximum length of the text in bytes.
pub const TEXT_MAX: usize = 64 << 10;

/// Why a configuration, or a change to it, is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No slot of this kind opens with the secret.
    #[error("no key slot opens with this {0}: it is the wrong one, or the vault's configuration was edited")]
    WrongSecret(SlotKind),
    /// The vault has no slot of this kind.
    #[error("the vault has no key slot for a {0}")]
    NoSlotOfThatKind(SlotKind),
    /// Written by a program for another format version.
    #[error("the vault has format version {0}; this program reads version {VERSION}")]
    UnknownVersion(u64),
    /// Not a configuration: not JSON, or a field is missing, unknown or out of range.
    #[error("the vault's configuration is damaged: {what}")]
    Damaged {
        /// The defect and its place.
        what: String,
    },
    /// The secret is right, but the MAC does not verify: the configuration was changed without the master
    /// key.
    #[error("the vault's configuration was edited: its authentication code does not match")]
    Edited,
    /// A slot cannot be created or tried.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The text is not a recovery key.
    #[error("not a valid recovery key: {0}")]
    Recovery(#[from] PrintedError),
    /// Without this slot nothing would open the vault.
    #[error("the last key slot cannot be removed")]
    LastSlot,
    /// No slot has this id.
    #[error("the vault has no key slot {0}")]
    NoSuchSlot(u32),
    /// The previous rotation of the master key has not ended.
    #[error("a key rotation is in progress")]
    Rotating,
    /// All slots are in use.
    #[error("the vault already has the maximum number of key slots ({SLOTS_MAX})")]
    TooManySlots,
    /// The kernel provided no random bytes.
    #[error("cannot get random bytes: {0}")]
    Random(io::Error),
}

/// Settings of a vault, chosen when it is created and never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Used in CTR mode for contents, names, link targets and attributes.
    pub cipher: Cipher,
    /// For tags and digests of contents.
    pub integrity: Integrity,
    /// How names are stored.
    pub names: NameMode,
}

/// The master key of an earlier key generation, wrapped under the current master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerKey {
    /// The key generation of this key, below the current one.
    pub generation: u32,
    /// The wrapped key.
    pub wrapped: [u8; WRAPPED],
    /// The list of what is accepted under it.
    pub list: ListId,
}

impl FormerKey {
    /// Wraps the master key `former` of key generation `generation` under `master`, for the vault with
    /// the id `vault`.
    pub fn wrap(
        master: &Secret<32>,
        vault: &[u8; VAULT_ID],
        generation: u32,
        former: &Secret<32>,
        list: ListId,
    ) -> Self {
        let sealed = former_key(master).seal(&[&former_context(vault, generation)], former.expose());
        let mut wrapped = [0; WRAPPED];
        wrapped.copy_from_slice(&sealed);
        FormerKey { generation, wrapped, list }
    }

    fn open(&self, master: &Secret<32>, vault: &[u8; VAULT_ID]) -> Option<Secret<32>> {
        let opened = former_key(master).open(&[&former_context(vault, self.generation)], &self.wrapped);
        let former = Zeroizing::new(opened.ok()?);
        Some(Secret::new_with(|out| out.copy_from_slice(&former)))
    }
}

fn former_key(master: &Secret<32>) -> SivKey {
    SivKey::new(Cipher::Aes256, &subkey(master, keys::FORMER))
}

fn former_context(vault: &[u8; VAULT_ID], generation: u32) -> Vec<u8> {
    [b"warpcrypt v2 former master key", &vault[..], &generation.to_be_bytes()].concat()
}

/// A vault's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultConfig {
    pub(super) id: [u8; VAULT_ID],
    /// Increases with every change.
    pub(super) generation: u64,
    pub(super) settings: Settings,
    pub(super) key_generation: u32,
    pub(super) former: Vec<FormerKey>,
    /// The id of the next slot. Ids are never reused.
    pub(super) next_slot: u32,
    pub(super) slots: Vec<KeySlot>,
    pub(super) mac: [u8; 32],
}

impl VaultConfig {
    /// Creates the configuration of a new vault, with a random id, a random master key and one slot.
    /// Returns it with the master key.
    ///
    /// # Errors
    /// If the slot cannot be created (cost, label, key file, memory, random bytes).
    pub fn create(settings: Settings, first: &NewSlot) -> Result<(Self, Secret<32>), ConfigError> {
        let master = random_key()?;
        let mut id = [0; VAULT_ID];
        random::fill(&mut id).map_err(ConfigError::Random)?;
        let slots = vec![KeySlot::make(1, &id, &master, first)?];
        let mut config = VaultConfig {
            id,
            generation: 1,
            settings,
            key_generation: 0,
            former: Vec::new(),
            next_slot: 2,
            slots,
            mac: [0; 32],
        };
        config.mac = config.compute_mac(&master);
        Ok((config, master))
    }

    /// Generates a new master key. Returns it with the new configuration, which the caller must write.
    /// The only slot of that configuration keeps the id and label of `slot`, and opens with the secret
    /// in `new`. The current master key becomes its former key until `end_rotation`; nothing is accepted
    /// under that key before `accept` is called.
    ///
    /// # Errors
    /// `Rotating`; `Edited` if `master` is not this vault's master key; `NoSuchSlot`; any error of
    /// creating a slot; `Random`.
    pub fn rotate(
        &self,
        master: &Secret<32>,
        slot: u32,
        new: &NewSlot,
    ) -> Result<(Self, Secret<32>), ConfigError> {
        self.verify(master)?;
        let Some(key_generation) = self.key_generation.checked_add(1).filter(|_| self.former.is_empty())
        else {
            return Err(ConfigError::Rotating);
        };
        let old = self.slots.iter().find(|old| old.id == slot).ok_or(ConfigError::NoSuchSlot(slot))?;
        let next = random_key()?;
        let new = NewSlot { label: old.label.as_deref(), ..*new };
        let mut config = VaultConfig {
            key_generation,
            former: vec![FormerKey::wrap(
                &next,
                &self.id,
                self.key_generation,
                master,
                ListId { id: [0; LIST_ID], items: 0 },
            )],
            slots: vec![KeySlot::make(slot, &self.id, &next, &new)?],
            ..self.clone()
        };
        config.changed(&next);
        Ok((config, next))
    }

    /// Sets the list of what is accepted under the former key. Called before the configuration is first
    /// written, so the generation stays the same.
    pub fn accept(&mut self, master: &Secret<32>, list: ListId) {
        for key in &mut self.former {
            key.list = list;
        }
        self.mac = self.compute_mac(master);
    }

    /// The list of what is accepted under the former key, if there is a former key.
    pub fn former_list(&self) -> Option<ListId> {
        self.former.last().map(|key| key.list)
    }

    /// Whether a rotation is under way: parts of the vault may still be under the former master key.
    pub fn is_rotating(&self) -> bool {
        !self.former.is_empty()
    }

    /// Forgets the former master key. Called when nothing is under it any more. The caller must write
    /// the new configuration.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key.
    pub fn end_rotation(&mut self, master: &Secret<32>) -> Result<(), ConfigError> {
        self.verify(master)?;
        self.former.clear();
        self.changed(master);
        Ok(())
    }

    /// Raises the generation above `other`, the generation of another configuration of this vault.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key.
    pub fn outdate(&mut self, master: &Secret<32>, other: u64) -> Result<(), ConfigError> {
        self.verify(master)?;
        self.generation = self.generation.max(other);
        self.changed(master);
        Ok(())
    }

    /// The vault's id.
    pub fn id(&self) -> &[u8; VAULT_ID] {
        &self.id
    }

    /// Starts at 1 and increases with every change. Of two configurations, the one with the higher
    /// generation is newer.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The key generation of the contents key that new files are encrypted under.
    pub fn key_generation(&self) -> u32 {
        self.key_generation
    }

    /// The former master key and its key generation, if there is one and it opens under `master`.
    pub fn former(&self, master: &Secret<32>) -> Option<(u32, Secret<32>)> {
        let key = self.former.last()?;
        Some((key.generation, key.open(master, &self.id)?))
    }

    /// The vault's settings. Do not trust them before `unlock` has succeeded.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The key slots, by ascending id.
    pub fn slots(&self) -> &[KeySlot] {
        &self.slots
    }

    /// Recovers the master key: tries every slot of the secret's kind, then verifies the whole
    /// configuration.
    ///
    /// # Errors
    /// `WrongSecret`, `NoSlotOfThatKind`, `Edited`, `Damaged` or `Slot`.
    pub fn unlock(&self, secret: &SlotSecret) -> Result<Secret<32>, ConfigError> {
        self.unlock_slot(secret).map(|(_, master)| master)
    }

    /// Like `unlock`, but also returns the id of the slot that opened.
    ///
    /// # Errors
    /// As `unlock`.
    pub fn unlock_slot(&self, secret: &SlotSecret) -> Result<(u32, Secret<32>), ConfigError> {
        let kind = secret.kind();
        let mut error = ConfigError::NoSlotOfThatKind(kind);
        for slot in self.slots.iter().filter(|slot| slot.kind() == kind) {
            if let Some(master) = slot.open(&self.id, secret)? {
                self.verify(&master)?;
                return Ok((slot.id, master));
            }
            error = ConfigError::WrongSecret(kind);
        }
        Err(error)
    }

    /// Adds a slot and returns its id. The caller must write the new configuration.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key; any error of creating a slot;
    /// `TooManySlots`.
    pub fn add(&mut self, master: &Secret<32>, new: &NewSlot) -> Result<u32, ConfigError> {
        self.verify(master)?;
        let id = self.next_slot;
        if self.slots.len() >= SLOTS_MAX || id == u32::MAX {
            return Err(ConfigError::TooManySlots);
        }
        self.slots.push(KeySlot::make(id, &self.id, master, new)?);
        self.next_slot = id + 1;
        self.changed(master);
        Ok(id)
    }

    /// Changes the secret of a slot; id and label stay. The caller must write the new configuration.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key; `NoSuchSlot`; any error of creating a slot.
    pub fn replace(&mut self, master: &Secret<32>, id: u32, new: &NewSlot) -> Result<(), ConfigError> {
        self.verify(master)?;
        let slot = self.slots.iter_mut().find(|slot| slot.id == id).ok_or(ConfigError::NoSuchSlot(id))?;
        let label = slot.label.clone();
        *slot = KeySlot::make(id, &self.id, master, &NewSlot { label: label.as_deref(), ..*new })?;
        self.changed(master);
        Ok(())
    }

    /// Removes a slot. The caller must write the new configuration. A copy of the old one still opens
    /// with the slot's secret.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key; `NoSuchSlot`; `LastSlot`.
    pub fn remove(&mut self, master: &Secret<32>, id: u32) -> Result<(), ConfigError> {
        self.verify(master)?;
        let at = self.removable(id)?;
        self.slots.remove(at);
        self.changed(master);
        Ok(())
    }

    /// The index of a slot, if it may be removed. Needs no key.
    ///
    /// # Errors
    /// `NoSuchSlot`; `LastSlot`.
    pub fn removable(&self, id: u32) -> Result<usize, ConfigError> {
        let at = self.slots.iter().position(|slot| slot.id == id).ok_or(ConfigError::NoSuchSlot(id))?;
        if self.slots.len() == 1 { Err(ConfigError::LastSlot) } else { Ok(at) }
    }

    /// Whether the MAC verifies, so that a holder of this master key wrote the configuration.
    pub fn is_authentic(&self, master: &Secret<32>) -> bool {
        ct_eq(&self.compute_mac(master), &self.mac)
    }

    pub(super) fn verify(&self, master: &Secret<32>) -> Result<(), ConfigError> {
        if !self.is_authentic(master) {
            return Err(ConfigError::Edited);
        }
        match self.former.iter().find(|key| key.open(master, &self.id).is_none()) {
            Some(key) => {
                let what = format!("the former key of generation {} does not open", key.generation);
                Err(ConfigError::Damaged { what })
            }
            None => Ok(()),
        }
    }

    fn changed(&mut self, master: &Secret<32>) {
        self.generation += 1;
        self.mac = self.compute_mac(master);
    }

    pub(super) fn compute_mac(&self, master: &Secret<32>) -> [u8; 32] {
        let key = subkey(master, keys::CONFIG);
        MacKey::new(Mac::Kmac256, key.expose(), b"warpcrypt v2 configuration").digest(&[&self.canonical()])
    }

    /// The MAC's input: everything but the MAC. Numbers are big-endian; variable-length parts are
    /// length-prefixed.
    fn canonical(&self) -> Vec<u8> {
        let mut out = VERSION.to_be_bytes().to_vec();
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.generation.to_be_bytes());
        put(&mut out, self.settings.cipher.name().as_bytes());
        put(&mut out, self.settings.integrity.name().as_bytes());
        put(&mut out, self.settings.names.name().as_bytes());
        out.extend_from_slice(&self.key_generation.to_be_bytes());
        out.extend_from_slice(&(self.former.len() as u32).to_be_bytes());
        for key in &self.former {
            out.extend_from_slice(&key.generation.to_be_bytes());
            out.extend_from_slice(&key.wrapped);
            out.extend_from_slice(&key.list.id);
            out.extend_from_slice(&key.list.items.to_be_bytes());
        }
        out.extend_from_slice(&self.next_slot.to_be_bytes());
        out.extend_from_slice(&(self.slots.len() as u32).to_be_bytes());
        for slot in &self.slots {
            out.extend_from_slice(&slot.id.to_be_bytes());
            out.extend_from_slice(&slot.created.to_be_bytes());
            out.push(slot.label.is_some().into());
            put(&mut out, slot.label.as_deref().unwrap_or_default().as_bytes());
            put(&mut out, &slot.kdf.encode());
            out.extend_from_slice(&slot.wrapped);
        }
        out
    }
}

fn random_key() -> Result<Secret<32>, ConfigError> {
    let mut filled = Ok(());
    let key = Secret::new_with(|key| filled = random::fill(key));
    filled.map_err(ConfigError::Random)?;
    Ok(key)
}

/// Appends the length of `bytes` (32 bits, big-endian), then `bytes`.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
