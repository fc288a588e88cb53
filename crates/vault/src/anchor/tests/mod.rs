//! An anchor whose disk fails and loses power, next to a store that does so too.

mod crashes;
mod database;
mod locked;

use super::{Anchor, Anew, Owner, database::DirState};
use crate::{Unlock, Vault};
use crypto::{cipher::Cipher, integrity::Integrity, secret::Secret};
use format::{
    config::{Settings, VaultConfig},
    dir_id::DirId,
    key_slot::{DEFAULT_COST, NewSlot, SlotSecret},
    name::NameMode,
};
use std::{path::Path, sync::Arc, sync::atomic::Ordering};
use store::{Failure, FaultyFile};

const KEY: &[u8] = b"0123456789abcdef";
const DIR: DirId = DirId([7; 16]);

/// A small deterministic random number generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }

    fn failure(&mut self) -> Failure {
        let errno = libc::EIO;
        let all = [
            Failure::Errno(libc::ENOSPC),
            Failure::Errno(errno),
            Failure::Partial(errno),
            Failure::Landed(errno),
            Failure::Lost(errno),
            Failure::Torn(errno, 3),
        ];
        all[self.below(6) as usize]
    }
}

/// The configuration and the master key of a new vault.
fn owner() -> (VaultConfig, Secret<32>) {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names: NameMode::Encrypted };
    let slot = NewSlot { secret: SlotSecret::KeyFile(KEY), cost: DEFAULT_COST, created: 0, label: None };
    Vault::init(dir.path(), settings, &slot).unwrap();
    let (config, _, master) =
        Vault::unlock_config(dir.path(), &Unlock::KeyFile(KEY.to_vec().into())).unwrap();
    (config, master)
}

fn open(file: &Arc<FaultyFile>, (config, master): &(VaultConfig, Secret<32>)) -> Anchor {
    Anchor::over(file.clone(), (Path::new("anchor"), true), &Owner { config, master }).unwrap()
}

/// An anchor that knows one directory, which is empty.
fn made(file: &Arc<FaultyFile>, known: &(VaultConfig, Secret<32>)) -> Anchor {
    let anchor = open(file, known);
    let Anew { keys, about } = Anew::of(&Owner { config: &known.0, master: &known.1 }).unwrap();
    *anchor.keys.write() = Some(keys);
    anchor
        .database
        .write(|writer| {
            about.iter().try_for_each(|(what, value)| writer.set_about(what, value))?;
            writer.set_directory(&DIR, DirState::Known)
        })
        .unwrap();
    anchor.made.store(true, Ordering::Relaxed);
    anchor
}
