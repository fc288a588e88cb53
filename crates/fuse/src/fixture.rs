//! Vaults for the tests of this layer.

use crypto::{cipher::Cipher, integrity::Integrity};
use engine::EngineChoice;
use format::{
    config::Settings,
    key_slot::{DEFAULT_COST, NewSlot, SlotSecret},
    name::NameMode,
};
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use vault::{AnchorUse, OpenOptions, Unlock, Vault};

const KEY: &[u8] = b"0123456789abcdef";

/// An open vault in a temporary directory, which is removed with it.
pub struct Fixture {
    pub vault: Arc<Vault>,
    _dir: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = new_vault();
        Fixture { vault: open(dir.path(), OpenOptions::default()), _dir: dir }
    }
}

/// Creates a vault in a temporary directory.
pub fn new_vault() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names: NameMode::Encrypted };
    let slot = NewSlot { secret: SlotSecret::KeyFile(KEY), cost: DEFAULT_COST, created: 0, label: None };
    Vault::init(dir.path(), settings, &slot).unwrap();
    dir
}

/// Opens the vault shared, with this much patience for locks.
pub fn share(path: &Path, patience: Duration) -> Arc<Vault> {
    open(path, OpenOptions { sharing: Some(patience), ..OpenOptions::default() })
}

/// Opens the vault with a new anchor.
pub fn open_anchored(path: &Path, anchor: &Path) -> Arc<Vault> {
    let anchor = Some(AnchorUse { file: anchor.to_owned(), accept: false });
    let vault = open(path, OpenOptions { anchor, ..OpenOptions::default() });
    vault.take_into_anchor(&mut || true).unwrap();
    vault
}

fn open(path: &Path, options: OpenOptions) -> Arc<Vault> {
    let unlock = Unlock::KeyFile(KEY.to_vec().into());
    Vault::open(path, &unlock, OpenOptions { engine: EngineChoice::Cpu, ..options }).unwrap()
}
