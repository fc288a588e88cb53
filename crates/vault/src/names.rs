//! Names of one directory: encoding, decoding, and the sidecars that long names need.
//!
//! A sidecar is created before its name and removed after it, so a sidecar without a name is a harmless
//! leftover. All changes of long names hold one lock. Without it, a removal could delete the sidecar of
//! a name that was created again meanwhile.

use super::{
    Dir, StoredName, Vault,
    keys::{KeyRing, NamespaceKeys},
};
use content::{Error, Result};
use format::{
    dir_id::DirId,
    former_list::Listed as Accepted,
    name::{Class, LONG, LOST, NameError, TEMPORARY, sidecar_name},
};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};
use store::{BackingFile, DirFile, Listed, StoreDir};

/// Larger than any sidecar or id file, in bytes.
const SMALL: usize = 1024;
/// Maximum number of complaints to remember.
const TOLD_MOST: usize = 4096;

/// A plaintext name and its stored form in a directory.
pub(super) struct StoredPlace {
    /// The plaintext name.
    pub name: OsString,
    /// The name in the store.
    pub stored: StoredName,
    sidecar: Option<Vec<u8>>,
}

/// Meaning of a name in the store.
pub(super) enum NameOf {
    /// One of the vault's own files, or a leftover.
    Own(Class),
    /// The name of an entry in plaintext, or the reason why it does not authenticate.
    Entry(std::result::Result<OsString, String>),
    /// The name of an entry whose sidecar cannot be read. This is no evidence of damage.
    Unread(String),
}

/// Result of checking the encrypted names in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamesIn {
    /// There are none.
    None,
    /// At least one authenticates.
    Authentic,
    /// None of them authenticates.
    Foreign,
}

/// Checks the encrypted names in a directory under the assumption that its id is `id`.
///
/// # Errors
/// The store's, if no name authenticates: a name that cannot be read might.
pub(super) fn names_in(keys: &KeyRing, dir: &Dir, id: &DirId) -> io::Result<NamesIn> {
    let present = keys.present();
    if !present.names.depend_on_directory() {
        return Ok(NamesIn::None);
    }
    let mut found = Ok(NamesIn::None);
    for entry in dir.store.list()?.iter().filter(|entry| present.names.has_form(entry.name.as_bytes())) {
        let name = entry.name.as_bytes();
        let sidecar = match present.names.classify(name) {
            Class::Entry => None,
            Class::Long => match read_small(dir, OsStr::from_bytes(&sidecar_name(name))) {
                Err(e) if e.kind() == io::ErrorKind::NotFound || is_link(&e) => Some(Vec::new()),
                Ok(sidecar) => Some(sidecar),
                Err(e) => {
                    found = Err(e);
                    continue;
                }
            },
            Class::Temporary | Class::Own => continue,
        };
        if keys.open(|keys| keys.open_name(id, name, sidecar.as_deref())).is_ok() {
            return Ok(NamesIn::Authentic);
        }
        found = found.map(|_| NamesIn::Foreign);
    }
    found
}

impl Vault {
    /// The place of `name` in `dir`. ENOENT if the directory never had an id, because then it cannot
    /// contain any name.
    pub(super) fn place(&self, dir: &Dir, name: &OsStr) -> Result<StoredPlace> {
        let place = self.place_under(&self.keys(), dir, name)?;
        // A directory that was not renewed may have names under both keys.
        match self.keys.former().filter(|_| self.read_only() || self.why_left(dir).is_some()) {
            Some(former) if dir.store.stat(&place.stored.0).is_err() => {
                let old = self.place_under(&former.keys, dir, name)?;
                Ok(if former.keys.accept(Accepted::Name, old.stored.0.as_bytes()) { old } else { place })
            }
            Some(_) | None => Ok(place),
        }
    }

    fn place_under(&self, keys: &NamespaceKeys, dir: &Dir, name: &OsStr) -> Result<StoredPlace> {
        let encoded = keys.names.encode(dir.id()?, name.as_bytes()).map_err(|e| match e {
            NameError::TooLong => Error::NameTooLong,
            _ => Error::Invalid("not a file name"),
        })?;
        let stored = StoredName(OsString::from_vec(encoded.stored));
        Ok(StoredPlace { name: name.to_owned(), stored, sidecar: encoded.sidecar })
    }

    /// Classifies and decodes a name in the store.
    pub(super) fn name_of_entry(&self, dir: &Dir, entry: &Listed) -> NameOf {
        let stored = entry.name.as_bytes();
        let sidecar = match self.keys().names.classify(stored) {
            class @ (Class::Temporary | Class::Own) => return NameOf::Own(class),
            Class::Entry => None,
            Class::Long => match read_small(dir, OsStr::from_bytes(&sidecar_name(stored))) {
                Ok(sidecar) => Some(sidecar),
                Err(e) if e.kind() == io::ErrorKind::NotFound || is_link(&e) => {
                    return NameOf::Entry(Err(e.to_string()));
                }
                Err(e) => return NameOf::Unread(e.to_string()),
            },
        };
        let name = dir.id().map_err(|e| e.to_string()).and_then(|id| {
            let decode = |keys: &NamespaceKeys| keys.open_name(id, stored, sidecar.as_deref());
            self.keys.open(decode).map_err(|e| e.to_string())
        });
        NameOf::Entry(name.map(OsString::from_vec))
    }

    /// Decodes the stored name that is contained in a stray one. Synchronization programs give such
    /// names to copies.
    pub(super) fn named_after(&self, dir: &Dir, stray: &OsStr) -> Option<OsString> {
        let id = dir.id().ok()?;
        let keys = self.keys();
        if !keys.names.depend_on_directory() {
            return None; // Any name could be a stored one.
        }
        let candidates = keys.names.stored_names_in(stray.as_bytes());
        candidates.filter(|stored| stored != stray.as_bytes()).find_map(|stored| {
            let sidecar = match stored.starts_with(LONG.as_bytes()) {
                true => Some(read_small(dir, OsStr::from_bytes(&sidecar_name(&stored))).ok()?),
                false => None,
            };
            let decoded =
                self.keys.open(|keys: &NamespaceKeys| keys.open_name(id, &stored, sidecar.as_deref()));
            decoded.ok().map(OsString::from_vec)
        })
    }

    /// The plaintext name of an entry. `None` if it is not an entry, or does not authenticate, which is
    /// logged.
    pub(super) fn plain_name(&self, dir: &Dir, entry: &Listed) -> Option<OsString> {
        match self.name_of_entry(dir, entry) {
            NameOf::Own(_) => None,
            NameOf::Entry(Ok(name)) => Some(name),
            // It was removed after it was listed, together with its sidecar.
            NameOf::Entry(Err(_)) | NameOf::Unread(_) if dir.store.stat(&entry.name).is_err() => None,
            NameOf::Entry(Err(reason)) | NameOf::Unread(reason) => {
                let complaint =
                    format!("{}: left out of the listing: {reason}", dir.stored_path(&entry.name));
                // Asked last, because it may try hundreds of names.
                if !self.told.lock().contains(&complaint) && self.is_foreign(dir, &entry.name) {
                    tell_once(&self.told_of_strays, complaint);
                } else {
                    self.complain(complaint);
                }
                None
            }
        }
    }

    /// Whether an entry whose name does not authenticate belongs to another program. Either no vault
    /// could have written the name, or a suffix that was added to an entry's name happens to have the
    /// right length.
    pub(super) fn is_foreign(&self, dir: &Dir, stored: &OsStr) -> bool {
        !self.keys().names.has_form(stored.as_bytes()) || self.named_after(dir, stored).is_some()
    }

    /// Number of distinct reasons for leaving entries out of listings, among the complaints still
    /// remembered. Files of other programs do not count.
    pub fn left_out(&self) -> usize {
        self.told.lock().len()
    }

    /// The complaints still remembered, sorted and limited to `most`, and how many there are in all.
    /// They contain stored paths.
    pub fn complaints(&self, most: usize) -> (Vec<String>, usize) {
        let told = self.told.lock();
        let mut some = Vec::from_iter(told.iter().cloned());
        drop(told);
        some.sort_unstable();
        let count = some.len();
        some.truncate(most);
        (some, count)
    }

    /// Whether a stored name belongs to an entry, and is neither one of the vault's own nor a leftover.
    pub(super) fn is_entry(&self, stored: &OsStr) -> bool {
        matches!(self.keys().names.classify(stored.as_bytes()), Class::Entry | Class::Long)
    }

    /// Takes the lock of long names if any of `places` is long.
    pub(super) fn lock_long(&self, places: &[&StoredPlace]) -> Option<MutexGuard<'_, ()>> {
        places.iter().any(|place| place.is_long()).then(|| self.long_names.lock())
    }

    /// Puts in place what a name depends on before the name is created: the id of its directory, and the
    /// sidecar. The caller holds the guard of `lock_long` until the name exists.
    pub(super) fn prepare(&self, dir: &Dir, place: &StoredPlace) -> Result<()> {
        self.put_ids_back(&dir.store)?;
        let Some(content) = &place.sidecar else { return Ok(()) };
        let name = place.sidecar_name();
        match read_small(dir, &name) {
            // The sidecar's name may not be durable: see `note_small`.
            Ok(present) if present == *content && self.is_shared() => {
                self.pending.sync_file(&dir.store, &name)?
            }
            Ok(present) if present == *content => self.note_met(&dir.store, &name, content),
            Ok(_) | Err(_) => self.write_small(dir, &name, content)?,
        }
        Ok(())
    }

    /// Removes the sidecar of a place that is now free. The caller holds the guard of `lock_long`.
    pub(super) fn clear(&self, dir: &Dir, place: &StoredPlace) {
        if !place.is_long() {
            return;
        }
        match dir.store.unlink(&place.sidecar_name()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!("{}: sidecar left behind: {e}", dir.stored_path(&place.stored.0));
            }
            _ => {}
        }
    }

    /// Writes one of the vault's small files into `dir` atomically, replacing an existing one.
    pub(super) fn write_small(&self, dir: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
        let temporary = temporary_name()?;
        let written = self
            .make_small(dir, &temporary, content)
            // Synced before the rename, because others that find the file under its name do not sync it
            // again.
            .and_then(
                |()| if self.is_shared() { self.pending.sync_file(&dir.store, &temporary) } else { Ok(()) },
            )
            .and_then(|()| dir.store.rename(&temporary, &dir.store, name));
        if let Err(e) = written {
            // The first error counts. A leftover is hidden and is removed with the directory.
            let _ = dir.store.unlink(&temporary);
            return Err(e);
        }
        self.note_small(&dir.store, name, content)
    }

    /// Records that one of the vault's small files is not durable yet. In a shared vault it is synced at
    /// once, because other machines do not know that it must be durable before they confirm what depends
    /// on it.
    pub(super) fn note_small(&self, dir: &Arc<StoreDir>, name: &OsStr, content: &[u8]) -> io::Result<()> {
        if self.is_shared() {
            return self.pending.sync_file(dir, name);
        }
        self.pending.add(dir, name.to_owned(), content);
        Ok(())
    }

    /// Creates a small file where there is none, without noting that it is not durable yet. Its content
    /// is not secret, and every user who may enter the directory needs it: files made by root must be
    /// usable by a user who mounts the vault next.
    pub(super) fn make_small(&self, dir: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
        DirFile::new(dir.store.create_file(name, 0o644)?).write_at(content, 0)
    }

    /// Logs why a listing leaves something out, once for each reason.
    pub(super) fn complain(&self, complaint: String) {
        tell_once(&self.told, complaint);
    }
}

impl StoredPlace {
    /// Whether the name needs a sidecar.
    pub(super) fn is_long(&self) -> bool {
        self.sidecar.is_some()
    }

    fn sidecar_name(&self) -> OsString {
        OsString::from_vec(sidecar_name(self.stored.0.as_bytes()))
    }
}

/// Logs a complaint unless it was logged before.
fn tell_once(told: &Mutex<HashSet<String>>, complaint: String) {
    let mut told = told.lock();
    if told.len() >= TOLD_MOST {
        told.clear();
    }
    if !told.contains(&complaint) {
        log::warn!("{complaint}");
        told.insert(complaint);
    }
}

/// Whether a file could not be opened because it is a symbolic link.
pub(super) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Reads one of the vault's small files.
pub(super) fn read_small(dir: &Dir, name: &OsStr) -> io::Result<Vec<u8>> {
    read_opened(&DirFile::new(dir.store.open_file(name, OFlags::RDONLY)?))
}

/// Reads one of the vault's small files through an open descriptor.
pub(super) fn read_opened(file: &DirFile) -> io::Result<Vec<u8>> {
    read_up_to(file, SMALL)
}

/// The first `most` bytes of an open file.
///
/// # Errors
/// The store's, and for anything but a regular file.
pub(super) fn read_up_to(file: &DirFile, most: usize) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&*file.fd())?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = vec![0; most];
    let n = file.read_at(&mut content, 0)?;
    content.truncate(n);
    Ok(content)
}

/// A new name for a file or directory that is not in place yet.
pub(super) fn temporary_name() -> io::Result<OsString> {
    random_name(TEMPORARY)
}

/// A name that begins with `prefix`. 96 random bits make it unique.
pub(super) fn random_name(prefix: &str) -> io::Result<OsString> {
    let mut random = [0; 12];
    crypto::random::fill(&mut random)?;
    Ok((prefix.to_owned() + &data_encoding::HEXLOWER.encode(&random)).into())
}

/// Whether this directory holds data that was set aside.
pub(super) fn is_set_aside(entry: &Listed) -> bool {
    entry.kind == FileType::Directory && entry.name.as_bytes().starts_with(LOST.as_bytes())
}
