//! The configuration as JSON: parsing into checked values, and writing.

use super::{
    config::{
        ConfigError, FORMER_MAX, FormerKey, GENERATION_LIMIT, SLOTS_MAX, Settings, TEXT_MAX, VAULT_ID,
        VERSION, VaultConfig,
    },
    former_list::{LIST_ID, ListId},
    key_slot::{Kdf, KeySlot, SALT, SlotError, WRAPPED, check_cost, check_label},
    name::NameMode,
    printable::printable,
};
use crypto::{cipher::Cipher, integrity::Integrity, kdf::Argon2Cost};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

#[derive(Deserialize)]
struct Probe {
    format: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigText {
    format: u32,
    vault_id: Hex<VAULT_ID>,
    generation: u64,
    cipher: String,
    integrity: String,
    names: String,
    key_generation: u32,
    former_keys: Vec<FormerText>,
    next_slot: u32,
    slots: Vec<SlotText>,
    mac: Hex<32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormerText {
    generation: u32,
    wrapped: Hex<WRAPPED>,
    list: Hex<LIST_ID>,
    items: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotText {
    id: u32,
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    kdf: KdfText,
    wrapped: Hex<WRAPPED>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum KdfText {
    Password { memory_kib: u32, passes: u32, lanes: u32, salt: Hex<SALT> },
    KeyFile { salt: Hex<SALT> },
    Recovery { salt: Hex<SALT> },
    PasswordAndKeyFile { memory_kib: u32, passes: u32, lanes: u32, salt: Hex<SALT> },
}

impl VaultConfig {
    /// Parses a configuration. Only its form is checked; `unlock` verifies who wrote it.
    ///
    /// # Errors
    /// `UnknownVersion`, `Damaged`, or `Slot` with `CostTooHigh`, `CostTooLow` or `BadLabel`.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        if text.len() > TEXT_MAX {
            return Err(damaged(format!("{} bytes are more than a configuration has", text.len())));
        }
        // Check the version first: the fields of another version are unknown to this program.
        let probe: Probe = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        if probe.format != u64::from(VERSION) {
            return Err(ConfigError::UnknownVersion(probe.format));
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        let text: ConfigText = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        let settings = Settings {
            cipher: by_name("cipher", &text.cipher, &Cipher::ALL, Cipher::name)?,
            integrity: by_name("integrity", &text.integrity, &Integrity::ALL, Integrity::name)?,
            names: by_name("names", &text.names, &NameMode::ALL, NameMode::name)?,
        };
        let slots: Vec<KeySlot> = text.slots.into_iter().map(KeySlot::try_from).collect::<Result<_, _>>()?;
        check_ids(&slots, text.next_slot)?;
        let former = text.former_keys.into_iter().map(|key| FormerKey {
            generation: key.generation,
            wrapped: key.wrapped.0,
            list: ListId { id: key.list.0, items: key.items },
        });
        let config = VaultConfig {
            id: text.vault_id.0,
            generation: text.generation,
            settings,
            key_generation: text.key_generation,
            former: former.collect(),
            next_slot: text.next_slot,
            slots,
            mac: text.mac.0,
        };
        check_generations(&config)?;
        // Compare with the form that would be written: serde also accepts an array in place of an
        // object, and null for a missing label.
        let same = serde_json::to_value(ConfigText::from(&config)).is_ok_and(|written| written == value);
        if same { Ok(config) } else { Err(damaged("fields are not in the form that they have".to_owned())) }
    }

    /// The JSON text to store.
    pub fn to_json(&self) -> String {
        // invariant: strings, numbers and lists of them always serialise
        let json = serde_json::to_string_pretty(&ConfigText::from(self)).expect("plain data"); // invariant: string keys
        json + "\n"
    }
}

impl From<&VaultConfig> for ConfigText {
    fn from(config: &VaultConfig) -> Self {
        ConfigText {
            format: VERSION,
            vault_id: Hex(config.id),
            generation: config.generation,
            cipher: config.settings.cipher.name().to_owned(),
            integrity: config.settings.integrity.name().to_owned(),
            names: config.settings.names.name().to_owned(),
            key_generation: config.key_generation,
            former_keys: config.former.iter().map(FormerText::from).collect(),
            next_slot: config.next_slot,
            slots: config.slots.iter().map(SlotText::from).collect(),
            mac: Hex(config.mac),
        }
    }
}

impl From<&FormerKey> for FormerText {
    fn from(key: &FormerKey) -> Self {
        FormerText {
            generation: key.generation,
            wrapped: Hex(key.wrapped),
            list: Hex(key.list.id),
            items: key.list.items,
        }
    }
}

impl TryFrom<SlotText> for KeySlot {
    type Error = SlotError;

    fn try_from(text: SlotText) -> Result<Self, SlotError> {
        check_label(text.label.as_deref())?;
        let kdf = match text.kdf {
            KdfText::Password { memory_kib, passes, lanes, salt } => {
                Kdf::Password { salt: salt.0, cost: check_cost(Argon2Cost { memory_kib, passes, lanes })? }
            }
            KdfText::KeyFile { salt } => Kdf::KeyFile { salt: salt.0 },
            KdfText::Recovery { salt } => Kdf::Recovery { salt: salt.0 },
            KdfText::PasswordAndKeyFile { memory_kib, passes, lanes, salt } => {
                let cost = check_cost(Argon2Cost { memory_kib, passes, lanes })?;
                Kdf::PasswordAndKeyFile { salt: salt.0, cost }
            }
        };
        let SlotText { id, created, label, .. } = text;
        Ok(KeySlot { id, created, label, kdf, wrapped: text.wrapped.0 })
    }
}

impl From<&KeySlot> for SlotText {
    fn from(slot: &KeySlot) -> Self {
        let kdf = match slot.kdf {
            Kdf::Password { salt, cost: Argon2Cost { memory_kib, passes, lanes } } => {
                KdfText::Password { memory_kib, passes, lanes, salt: Hex(salt) }
            }
            Kdf::KeyFile { salt } => KdfText::KeyFile { salt: Hex(salt) },
            Kdf::Recovery { salt } => KdfText::Recovery { salt: Hex(salt) },
            Kdf::PasswordAndKeyFile { salt, cost: Argon2Cost { memory_kib, passes, lanes } } => {
                KdfText::PasswordAndKeyFile { memory_kib, passes, lanes, salt: Hex(salt) }
            }
        };
        let KeySlot { id, created, label, wrapped, .. } = slot.clone();
        SlotText { id, created, label, kdf, wrapped: Hex(wrapped) }
    }
}

/// Checks the number of slots, and that ids ascend up to `next`, so that none occurs twice.
fn check_ids(slots: &[KeySlot], next: u32) -> Result<(), ConfigError> {
    if slots.is_empty() || slots.len() > SLOTS_MAX {
        return Err(damaged(format!("{} key slots, a vault has 1 to {SLOTS_MAX}", slots.len())));
    }
    let ids = slots.iter().map(|slot| slot.id).chain([next]);
    if slots[0].id == 0 || !ids.is_sorted_by(|a, b| a < b) {
        return Err(damaged("key slot ids do not rise".to_owned()));
    }
    Ok(())
}

/// Checks that the configuration's generation is in range, and that the generations of former keys
/// ascend and stay below the current one.
fn check_generations(config: &VaultConfig) -> Result<(), ConfigError> {
    if config.generation == 0 || config.generation >= GENERATION_LIMIT {
        return Err(damaged(format!("generation {} is out of range", config.generation)));
    }
    if config.former.len() > FORMER_MAX {
        let found = config.former.len();
        return Err(damaged(format!("{found} former keys, a vault has at most {FORMER_MAX}")));
    }
    let generations = config.former.iter().map(|key| key.generation).chain([config.key_generation]);
    if !generations.is_sorted_by(|a, b| a < b) {
        return Err(damaged("generations of former keys do not rise".to_owned()));
    }
    Ok(())
}

fn by_name<T: Copy>(
    field: &str,
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, ConfigError> {
    let known = all.iter().copied().find(|value| name(*value) == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
        damaged(format!("{field} {text:?} is none of {}", names.join(", ")))
    })
}

/// The message may quote the configuration, which anyone could have written, so control characters are
/// replaced before it reaches a terminal.
fn damaged(what: String) -> ConfigError {
    ConfigError::Damaged { what: printable(&what) }
}

/// `N` bytes, written as lower-case hexadecimal digits.
struct Hex<const N: usize>([u8; N]);

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Hex).ok_or_else(|| de::Error::custom(format!("expected {} lower-case hex digits", 2 * N)))
    }
}
