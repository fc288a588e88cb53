//! The tables of an anchor, in a single-file transactional database.
//!
//! After an error the database is reopened, because its engine refuses all further operations. Before
//! that, everything is written again, because a failed sync may have lost data.

use super::entry::{AnchoredIdentity, BOUND, Salt, decode_bound, encode_bound};
use content::Bound;
use format::dir_id::{DirId, ID};
use parking_lot::Mutex;
use redb::{
    Builder, ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction,
};
use std::{
    fmt, io,
    ops::{Bound::Excluded, Bound::Included, Bound::Unbounded},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use store::BackingFile;

/// Bytes of memory for the database's page cache.
const CACHE: usize = 16 << 20;
/// Unit in bytes of rewriting the file. Small, so that holes of the file are not filled.
const PIECE: usize = 4096;

const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
const FILES: TableDefinition<&Salt, &[u8; BOUND]> = TableDefinition::new("files");
const DIRECTORIES: TableDefinition<&[u8; ID], u8> = TableDefinition::new("directories");
const NAMES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("names");

/// The anchor's knowledge of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirState {
    /// Nothing.
    Unknown,
    /// All of its names are recorded.
    Known,
    /// The names recorded are those from before a change that began since.
    Changing,
}

const KNOWN: u8 = 0;
const CHANGING: u8 = 1;

/// The database. `open` is empty after an error, until the next use.
pub(super) struct Database {
    file: Arc<dyn BackingFile>,
    open: Mutex<Option<Arc<redb::Database>>>,
}

/// A read transaction, with a consistent view.
pub(super) struct Reader(ReadTransaction);

/// The tables in a write transaction.
pub(super) struct Writer<'a> {
    about: Table<'a, &'static str, &'static [u8]>,
    files: Table<'a, &'static Salt, &'static [u8; BOUND]>,
    directories: Table<'a, &'static [u8; ID], u8>,
    names: Table<'a, &'static [u8], &'static [u8]>,
}

impl Database {
    /// Opens the database in `file`, or creates it in an empty one.
    ///
    /// # Errors
    /// The file's; `InvalidData` if it is not an anchor.
    pub(super) fn open(file: Arc<dyn BackingFile>) -> io::Result<Self> {
        let database = Database { open: Mutex::new(Some(open(&file)?)), file };
        database.write(|_| Ok(()))?;
        Ok(database)
    }

    /// # Errors
    /// The file's, or those of `read`.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Reader) -> io::Result<T>) -> io::Result<T> {
        let database = self.database()?;
        let result = database.begin_read().map_err(failed).and_then(|transaction| read(&Reader(transaction)));
        result.inspect_err(|_| self.close(&database))
    }

    /// Writes durably and atomically.
    ///
    /// # Errors
    /// The file's, or those of `write`. After an error the data may have been written nevertheless.
    pub(super) fn write<T>(&self, write: impl FnOnce(&mut Writer) -> io::Result<T>) -> io::Result<T> {
        let database = self.database()?;
        commit(&database, write).inspect_err(|_| self.close(&database))
    }

    fn database(&self) -> io::Result<Arc<redb::Database>> {
        let mut current = self.open.lock();
        if let Some(database) = &*current {
            return Ok(database.clone());
        }
        write_again(&*self.file)?;
        Ok(current.insert(open(&self.file)?).clone())
    }

    /// Closes the database. The next user opens it again.
    fn close(&self, database: &Arc<redb::Database>) {
        self.open.lock().take_if(|current| Arc::ptr_eq(current, database));
    }
}

fn open(file: &Arc<dyn BackingFile>) -> io::Result<Arc<redb::Database>> {
    let open = || Builder::new().set_cache_size(CACHE).create_with_backend(Backend(file.clone()));
    // The engine panics on some malformed files instead of returning an error.
    let opened = catch_unwind(AssertUnwindSafe(open)).map_err(|_| malformed())?;
    Ok(Arc::new(opened.map_err(failed)?))
}

fn commit<T>(database: &redb::Database, write: impl FnOnce(&mut Writer) -> io::Result<T>) -> io::Result<T> {
    let transaction = database.begin_write().map_err(failed)?;
    let value = write(&mut Writer::of(&transaction)?)?;
    transaction.commit().map_err(failed)?;
    Ok(value)
}

/// Writes everything again, and syncs. A sync that succeeds says nothing about data that an earlier one
/// lost.
fn write_again(file: &dyn BackingFile) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while let Some(data) = file.next_data(at)? {
        let read = file.read_at(&mut piece, data)?;
        if read == 0 {
            break;
        }
        file.write_at(&piece[..read], data)?;
        at = data + read as u64;
    }
    file.sync_data()
}

/// Passes the file's errors through, and converts others to text.
fn failed(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(e) => e,
        other => io::Error::other(other.to_string()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed entry")
}

fn state(value: Option<u8>) -> io::Result<DirState> {
    match value {
        None => Ok(DirState::Unknown),
        Some(KNOWN) => Ok(DirState::Known),
        Some(CHANGING) => Ok(DirState::Changing),
        Some(_) => Err(malformed()),
    }
}

impl Reader {
    pub(super) fn about(&self, what: &str) -> io::Result<Option<Vec<u8>>> {
        let table = self.0.open_table(ABOUT).map_err(failed)?;
        Ok(table.get(what).map_err(failed)?.map(|value| value.value().to_vec()))
    }

    pub(super) fn bound(&self, salt: &Salt) -> io::Result<Option<Bound>> {
        let table = self.0.open_table(FILES).map_err(failed)?;
        let Some(value) = table.get(salt).map_err(failed)? else { return Ok(None) };
        decode_bound(*salt, value.value()).ok_or_else(malformed).map(Some)
    }

    pub(super) fn directory(&self, id: &DirId) -> io::Result<DirState> {
        let table = self.0.open_table(DIRECTORIES).map_err(failed)?;
        state(table.get(&id.0).map_err(failed)?.map(|value| value.value()))
    }

    /// Number of directories that were being changed when a process stopped.
    pub(super) fn changing(&self) -> io::Result<usize> {
        let table = self.0.open_table(DIRECTORIES).map_err(failed)?;
        let all = table.iter().map_err(failed)?;
        Ok(all.filter(|entry| entry.as_ref().is_ok_and(|(_, value)| value.value() == CHANGING)).count())
    }

    /// The identity recorded under a sealed name.
    pub(super) fn name(&self, sealed: &[u8]) -> io::Result<Option<AnchoredIdentity>> {
        let table = self.0.open_table(NAMES).map_err(failed)?;
        let Some(value) = table.get(sealed).map_err(failed)? else { return Ok(None) };
        AnchoredIdentity::decode(value.value()).ok_or_else(malformed).map(Some)
    }

    /// All names of a directory, sealed.
    pub(super) fn names(&self, id: &DirId) -> io::Result<Vec<Vec<u8>>> {
        let table = self.0.open_table(NAMES).map_err(failed)?;
        let end = after(id);
        let until = end.as_ref().map_or(Unbounded, |end| Excluded(&end[..]));
        let all = table.range::<&[u8]>((Included(&id.0[..]), until)).map_err(failed)?;
        all.map(|entry| Ok(entry.map_err(failed)?.0.value().to_vec())).collect()
    }
}

/// The first directory id after `id`; `None` if `id` is the highest.
fn after(id: &DirId) -> Option<[u8; ID]> {
    u128::from_be_bytes(id.0).checked_add(1).map(u128::to_be_bytes)
}

impl<'a> Writer<'a> {
    fn of(transaction: &'a WriteTransaction) -> io::Result<Self> {
        Ok(Writer {
            about: transaction.open_table(ABOUT).map_err(failed)?,
            files: transaction.open_table(FILES).map_err(failed)?,
            directories: transaction.open_table(DIRECTORIES).map_err(failed)?,
            names: transaction.open_table(NAMES).map_err(failed)?,
        })
    }

    pub(super) fn set_about(&mut self, what: &str, value: &[u8]) -> io::Result<()> {
        self.about.insert(what, value).map_err(failed)?;
        Ok(())
    }

    /// Raises the bound of a file. Keeps the recorded bound if the new one is not higher.
    pub(super) fn raise(&mut self, bound: &Bound) -> io::Result<()> {
        let salt = bound.key.salt;
        let present = self.files.get(&salt).map_err(failed)?;
        let present = present.map(|value| decode_bound(salt, value.value()).ok_or_else(malformed));
        if present.transpose()?.is_none_or(|present| present.order() < bound.order()) {
            self.files.insert(&salt, &encode_bound(bound)).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn forget_file(&mut self, salt: &Salt) -> io::Result<()> {
        self.files.remove(salt).map_err(failed)?;
        Ok(())
    }

    /// Sets the state of a directory.
    pub(super) fn set_directory(&mut self, id: &DirId, state: DirState) -> io::Result<()> {
        match state {
            DirState::Unknown => self.directories.remove(&id.0).map(drop),
            DirState::Known => self.directories.insert(&id.0, KNOWN).map(drop),
            DirState::Changing => self.directories.insert(&id.0, CHANGING).map(drop),
        }
        .map_err(failed)
    }

    /// Sets the identity under a sealed name, or removes the name.
    pub(super) fn set_name(&mut self, sealed: &[u8], identity: Option<&AnchoredIdentity>) -> io::Result<()> {
        match identity {
            Some(identity) => self.names.insert(sealed, &identity.encode()[..]).map(drop),
            None => self.names.remove(sealed).map(drop),
        }
        .map_err(failed)
    }

    /// Removes all names of a directory.
    pub(super) fn clear_names(&mut self, id: &DirId) -> io::Result<()> {
        let end = after(id);
        let until = end.as_ref().map_or(Unbounded, |end| Excluded(&end[..]));
        self.names.retain_in::<&[u8], _>((Included(&id.0[..]), until), |_, _| false).map_err(failed)
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.about.retain(|_, _| false).map_err(failed)?;
        self.files.retain(|_, _| false).map_err(failed)?;
        self.directories.retain(|_, _| false).map_err(failed)?;
        self.names.retain(|_, _| false).map_err(failed)
    }
}

/// Adapts the file to the database engine's interface.
struct Backend(Arc<dyn BackingFile>);

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.read_at(out, offset)? == out.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let grows = len > self.0.len()?;
        self.0.set_len(len)?;
        // The engine's header also stores the length. After a crash the engine accepts a file that is
        // longer, but not one that is shorter.
        if grows { self.0.sync_data() } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}
