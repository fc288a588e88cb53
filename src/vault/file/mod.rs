//! One file's content over a `BackingFile`: reading, writing, commit, recovery.

use super::{Result, Time};
use crate::{
    crypto::{cipher::Cipher, mac::Integrity, secret::Secret},
    engine::Router,
    store::BackingFile,
};
use std::sync::Arc;

/// What an overwrite survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Everything, a power cut too.
    #[default]
    Strict,
    /// A kill; a power cut may damage chunks that were being overwritten.
    Relaxed,
}

/// What all files of a vault share.
pub struct Context {
    /// Key that file keys are derived from.
    pub contents: Secret<32>,
    /// The vault's cipher.
    pub cipher: Cipher,
    /// The vault's integrity function.
    pub integrity: Integrity,
    /// Where chunks are sealed and opened.
    pub router: Router,
    /// What an overwrite survives.
    pub durability: Durability,
    /// Nothing may be written: recovery stays in memory.
    pub read_only: bool,
}

/// The content of one open file. All methods may be called from several threads.
pub struct File {
    _todo: (),
}

impl File {
    /// Opens what `store` holds, recovering it if a crash left it dirty.
    pub fn open(_store: Arc<dyn BackingFile>, _context: Arc<Context>) -> Result<File> {
        todo!()
    }

    /// Plaintext bytes.
    pub fn size(&self) -> u64 {
        todo!()
    }

    /// The application's modification time, if it differs from the store's.
    pub fn mtime(&self) -> Option<Time> {
        todo!()
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    pub fn read(&self, _offset: u64, _out: &mut [u8]) -> Result<usize> {
        todo!()
    }

    /// Writes all of `data`; buffered until `flush`.
    pub fn write(&self, _offset: u64, _data: &[u8]) -> Result<()> {
        todo!()
    }

    /// Writes all of `data` at the end of the file and returns where that was.
    pub fn append(&self, _data: &[u8]) -> Result<u64> {
        todo!()
    }

    /// Cuts or extends (with a hole).
    pub fn truncate(&self, _size: u64) -> Result<()> {
        todo!()
    }

    /// fallocate(2): reserves; grows the size unless `keep_size`.
    pub fn allocate(&self, _offset: u64, _len: u64, _keep_size: bool) -> Result<()> {
        todo!()
    }

    /// Makes a range read as zeros (a hole where whole chunks allow); never changes the size.
    pub fn punch(&self, _offset: u64, _len: u64) -> Result<()> {
        todo!()
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`.
    pub fn seek(&self, _offset: u64, _data: bool) -> Result<u64> {
        todo!()
    }

    /// Gives the modification time that every later store write restores.
    pub fn set_mtime(&self, _time: Time) -> Result<()> {
        todo!()
    }

    /// Writes what is buffered to the store: survives a kill, not yet a power cut.
    pub fn flush(&self) -> Result<()> {
        todo!()
    }

    /// Flushes and makes durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }

    /// The file's salt, committing an empty header first if it has none: binds xattrs to the file.
    pub fn salt(&self, _create: bool) -> Result<Option<[u8; 32]>> {
        todo!()
    }
}
