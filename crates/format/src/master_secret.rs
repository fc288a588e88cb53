//! The printable master secret: everything needed to open a vault whose configuration is lost.

use super::{
    config::{ConfigError, Settings, VAULT_ID, VaultConfig},
    key_slot::{KeySlot, NewSlot},
    name::NameMode,
    printed::{self, PrintedError},
};
use crypto::{cipher::Cipher, integrity::Integrity, secret::Secret};
use zeroize::Zeroizing;

/// Length of the secret in bytes.
const LEN: usize = 55;
/// Version of the encoding.
const VERSION: u8 = 1;
/// Offset of each part.
const CIPHER_AT: usize = 1;
const INTEGRITY_AT: usize = 2;
const NAMES_AT: usize = 3;
const GENERATION_AT: usize = 4;
const VAULT_AT: usize = 7;
const MASTER_AT: usize = VAULT_AT + VAULT_ID;
/// Upper bound (exclusive) of the key generations that it can express.
const GENERATION_LIMIT: u32 = 1 << 24;

/// Why a text is not a master secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MasterSecretError {
    /// The text has a typo.
    #[error("not a valid master secret: {0}")]
    Printed(#[from] PrintedError),
    /// It contains a value that this version does not know.
    #[error("this master secret was made by a newer version of warpcrypt")]
    Unknown,
}

/// The master key of a vault, with its id and settings. Wiped on drop.
pub struct MasterSecret {
    /// The vault's id.
    pub vault: [u8; VAULT_ID],
    /// The vault's settings.
    pub settings: Settings,
    /// The key generation of `master`.
    pub key_generation: u32,
    /// The master key.
    pub master: Secret<32>,
}

impl MasterSecret {
    /// The master secret of a vault.
    ///
    /// # Errors
    /// `Edited` if `master` is not this vault's master key; `Damaged` if its former key does not open.
    pub fn of(config: &VaultConfig, master: Secret<32>) -> Result<Self, ConfigError> {
        config.verify(&master)?;
        let VaultConfig { id: vault, settings, key_generation, .. } = *config;
        Ok(MasterSecret { vault, settings, key_generation, master })
    }

    /// Creates a configuration with one slot for a vault that lost its own. `generation` must be above
    /// that of every remaining copy. `left` is a remaining copy that authenticates under this key. It
    /// contributes the former key during a rotation, which a master secret does not contain.
    ///
    /// # Errors
    /// If the slot cannot be created.
    pub fn configure(
        &self,
        first: &NewSlot,
        generation: u64,
        left: Option<&VaultConfig>,
    ) -> Result<VaultConfig, ConfigError> {
        let mut config = VaultConfig {
            id: self.vault,
            generation,
            settings: self.settings,
            key_generation: self.key_generation,
            former: left.map_or_else(Vec::new, |left| left.former.clone()),
            next_slot: 2,
            slots: vec![KeySlot::make(1, &self.vault, &self.master, first)?],
            mac: [0; 32],
        };
        config.mac = config.compute_mac(&self.master);
        Ok(config)
    }

    /// The text to print; `None` if the key generation is too high to be expressed.
    pub fn to_text(&self) -> Option<Zeroizing<String>> {
        let mut bytes = Zeroizing::new([0; LEN]);
        bytes[0] = VERSION;
        bytes[CIPHER_AT] = cipher_number(self.settings.cipher);
        bytes[INTEGRITY_AT] = integrity_number(self.settings.integrity);
        bytes[NAMES_AT] = names_number(self.settings.names);
        if self.key_generation >= GENERATION_LIMIT {
            return None;
        }
        bytes[GENERATION_AT..VAULT_AT].copy_from_slice(&self.key_generation.to_be_bytes()[1..]);
        bytes[VAULT_AT..MASTER_AT].copy_from_slice(&self.vault);
        bytes[MASTER_AT..].copy_from_slice(self.master.expose());
        Some(printed::to_text(&*bytes))
    }

    /// Parses a printed text.
    ///
    /// # Errors
    /// `Printed` or `Unknown`.
    pub fn parse(text: &str) -> Result<Self, MasterSecretError> {
        let bytes = printed::parse::<LEN>(text)?;
        let known = Cipher::ALL.into_iter().find(|cipher| cipher_number(*cipher) == bytes[CIPHER_AT]);
        let cipher = known.filter(|_| bytes[0] == VERSION).ok_or(MasterSecretError::Unknown)?;
        let known = Integrity::ALL.into_iter().find(|it| integrity_number(*it) == bytes[INTEGRITY_AT]);
        let integrity = known.ok_or(MasterSecretError::Unknown)?;
        let known = NameMode::ALL.into_iter().find(|names| names_number(*names) == bytes[NAMES_AT]);
        let names = known.ok_or(MasterSecretError::Unknown)?;
        let mut vault = [0; VAULT_ID];
        vault.copy_from_slice(&bytes[VAULT_AT..MASTER_AT]);
        Ok(MasterSecret {
            vault,
            settings: Settings { cipher, integrity, names },
            key_generation: u32::from_be_bytes([0, bytes[4], bytes[5], bytes[6]]),
            master: Secret::new_with(|key| key.copy_from_slice(&bytes[MASTER_AT..])),
        })
    }
}

/// These numbers are permanent; see `docs/format.md`.
fn cipher_number(cipher: Cipher) -> u8 {
    match cipher {
        Cipher::Aes128 => 1,
        Cipher::Aes192 => 2,
        Cipher::Aes256 => 3,
        Cipher::Kuznyechik => 4,
    }
}

fn integrity_number(integrity: Integrity) -> u8 {
    match integrity {
        Integrity::Kmac128 => 1,
        Integrity::Kmac256 => 2,
        Integrity::TurboShake128x4 => 4,
    }
}

fn names_number(names: NameMode) -> u8 {
    match names {
        NameMode::Encrypted => 1,
        NameMode::Plain => 2,
        NameMode::EncryptedShort => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(settings: Settings) -> MasterSecret {
        let master =
            Secret::new_with(|key| key.copy_from_slice(&std::array::from_fn::<u8, 32, _>(|i| i as u8)));
        MasterSecret { vault: [9; VAULT_ID], settings, key_generation: 0x01_02_03, master }
    }

    #[test]
    fn every_kind_of_vault_comes_back() {
        let mut texts = std::collections::HashSet::new();
        for cipher in Cipher::ALL {
            for integrity in Integrity::ALL {
                for names in NameMode::ALL {
                    let secret = secret(Settings { cipher, integrity, names });
                    let text = secret.to_text().unwrap();
                    let back = MasterSecret::parse(&text.to_lowercase().replace('-', " ")).unwrap();
                    assert_eq!(
                        (back.vault, back.settings, back.key_generation),
                        (secret.vault, secret.settings, 0x01_02_03)
                    );
                    assert_eq!(back.master.expose(), secret.master.expose());
                    assert!(texts.insert(text.to_string()));
                }
            }
        }
    }

    #[test]
    fn a_typo_is_named_and_what_is_unknown_is_said() {
        let settings =
            Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names: NameMode::Encrypted };
        let text = secret(settings).to_text().unwrap().to_string();
        assert_eq!(text.split('-').count(), 22);
        let typo = text.replacen(&text[12..13], if &text[12..13] == "7" { "8" } else { "7" }, 1);
        let error = MasterSecret::parse(&typo).err().unwrap().to_string();
        assert!(error.contains("has a typo"), "{error}");
        for at in [0, CIPHER_AT, INTEGRITY_AT, NAMES_AT] {
            let mut bytes = *printed::parse::<LEN>(&text).unwrap();
            bytes[at] = 99;
            let error = MasterSecret::parse(&printed::to_text(&bytes)).err();
            assert_eq!(error, Some(MasterSecretError::Unknown));
        }
        assert!(MasterSecret { key_generation: GENERATION_LIMIT, ..secret(settings) }.to_text().is_none());
    }
}
