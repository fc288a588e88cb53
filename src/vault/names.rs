//! Names of one directory: encoding, decoding, and the sidecars that long names need.
//!
//! A sidecar is in place before its name and goes after it, so one without a name is a harmless
//! left-over. All changes of long names happen under one lock: without it a removal could take away the
//! sidecar of a name that was made again meanwhile.

use super::{
    Dir, Error, Result, StoredName, Vault,
    keys::{KeyRing, Keys},
};
use crate::{
    format::{
        dir_id::DirId,
        former_list::Listed as Accepted,
        name::{Class, LONG, LOST, NameError, TEMPORARY, sidecar_name, stored_names_in},
    },
    store::{BackingFile, DirFile, Listed, StoreDir},
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

/// More than any sidecar or id file has.
const SMALL: usize = 1024;
/// Complaints remembered at most.
const TOLD_MOST: usize = 4096;

/// A plaintext name's place in a directory.
pub(super) struct Place {
    /// The name.
    pub name: OsString,
    /// The name in the store.
    pub stored: StoredName,
    sidecar: Option<Vec<u8>>,
}

/// What a name in the store is.
pub(super) enum NameOf {
    /// The vault's own, or a left-over.
    Own(Class),
    /// That of an entry: in plaintext, or why it does not authenticate.
    Entry(std::result::Result<OsString, String>),
    /// That of an entry whose sidecar cannot be read: nothing says that it is damaged.
    Unread(String),
}

/// The encrypted names in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamesIn {
    /// There are none.
    None,
    /// One authenticates at least.
    Authentic,
    /// None of them authenticates.
    Foreign,
}

/// The encrypted names in a directory, if its id is this one.
///
/// # Errors
/// The store's, if none authenticates: one that cannot be read might.
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
    /// Where `name` stands in `dir`. ENOENT if the directory never had an id, so that nothing can.
    pub(super) fn place(&self, dir: &Dir, name: &OsStr) -> Result<Place> {
        let place = self.place_under(&self.keys(), dir, name)?;
        // A directory that is not renewed may have names under both keys.
        match self.keys.former().filter(|_| self.read_only() || self.why_left(dir).is_some()) {
            Some(former) if dir.store.stat(&place.stored.0).is_err() => {
                let old = self.place_under(&former.keys, dir, name)?;
                Ok(if former.keys.accept(Accepted::Name, old.stored.0.as_bytes()) { old } else { place })
            }
            Some(_) | None => Ok(place),
        }
    }

    fn place_under(&self, keys: &Keys, dir: &Dir, name: &OsStr) -> Result<Place> {
        let encoded = keys.names.encode(dir.id()?, name.as_bytes()).map_err(|e| match e {
            NameError::TooLong => Error::NameTooLong,
            _ => Error::Invalid("not a file name"),
        })?;
        let stored = StoredName(OsString::from_vec(encoded.stored));
        Ok(Place { name: name.to_owned(), stored, sidecar: encoded.sidecar })
    }

    /// What a name in the store is.
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
            let decode = |keys: &Keys| keys.open_name(id, stored, sidecar.as_deref());
            self.keys.open(decode).map_err(|e| e.to_string())
        });
        NameOf::Entry(name.map(OsString::from_vec))
    }

    /// The name whose stored form is a part of a stray one: a program that syncs gave it to a copy.
    pub(super) fn named_after(&self, dir: &Dir, stray: &OsStr) -> Option<OsString> {
        let id = dir.id().ok()?;
        if !self.keys().names.depend_on_directory() {
            return None; // Any name could be one.
        }
        stored_names_in(stray.as_bytes()).filter(|stored| stored != stray.as_bytes()).find_map(|stored| {
            let sidecar = match stored.starts_with(LONG.as_bytes()) {
                true => Some(read_small(dir, OsStr::from_bytes(&sidecar_name(&stored))).ok()?),
                false => None,
            };
            let decoded = self.keys.open(|keys: &Keys| keys.open_name(id, &stored, sidecar.as_deref()));
            decoded.ok().map(OsString::from_vec)
        })
    }

    /// The plaintext name of an entry; `None` for what is no entry, or does not authenticate (then logged).
    pub(super) fn plain_name(&self, dir: &Dir, entry: &Listed) -> Option<OsString> {
        match self.name_of_entry(dir, entry) {
            NameOf::Own(_) => None,
            NameOf::Entry(Ok(name)) => Some(name),
            // Removed since it was listed, with its sidecar.
            NameOf::Entry(Err(_)) | NameOf::Unread(_) if dir.store.stat(&entry.name).is_err() => None,
            NameOf::Entry(Err(reason)) | NameOf::Unread(reason) => {
                let complaint =
                    format!("{}: left out of the listing: {reason}", dir.stored_path(&entry.name));
                // Asked last: it may try hundreds of names.
                if !self.told.lock().contains(&complaint) && self.is_foreign(dir, &entry.name) {
                    tell_once(&self.told_of_strays, complaint);
                } else {
                    self.complain(complaint);
                }
                None
            }
        }
    }

    /// Whether an entry whose name does not authenticate is another program's: no vault could have written the name, or what was
    /// put behind the name of an entry has by chance the length that makes it look like one.
    pub(super) fn is_foreign(&self, dir: &Dir, stored: &OsStr) -> bool {
        !self.keys().names.has_form(stored.as_bytes()) || self.named_after(dir, stored).is_some()
    }

    /// How many reasons to leave something out listings met so far, of those that are still known to be logged. Files of other
    /// programs are none.
    pub fn left_out(&self) -> usize {
        self.told.lock().len()
    }

    /// The complaints that are still known to be logged, at most `most` of them in order, and how many there are. They name stored
    /// paths.
    pub fn complaints(&self, most: usize) -> (Vec<String>, usize) {
        let told = self.told.lock();
        let mut some = Vec::from_iter(told.iter().cloned());
        drop(told);
        some.sort_unstable();
        let count = some.len();
        some.truncate(most);
        (some, count)
    }

    /// Whether a stored name carries an entry: it is neither the vault's own nor a left-over.
    pub(super) fn is_entry(&self, stored: &OsStr) -> bool {
        matches!(self.keys().names.classify(stored.as_bytes()), Class::Entry | Class::Long)
    }

    /// Excludes changes of long names while `places` change, if any is long.
    pub(super) fn lock_long(&self, places: &[&Place]) -> Option<MutexGuard<'_, ()>> {
        places.iter().any(|place| place.is_long()).then(|| self.long_names.lock())
    }

    /// Puts what a name depends on in place before it is made: the id of its directory, the sidecar. The caller holds the guard
    /// until that is done.
    pub(super) fn prepare(&self, dir: &Dir, place: &Place) -> Result<()> {
        self.put_ids_back(&dir.store)?;
        let Some(content) = &place.sidecar else { return Ok(()) };
        let name = place.sidecar_name();
        match read_small(dir, &name) {
            // Its name may not be durable: see `note_small`.
            Ok(present) if present == *content && self.is_shared() => {
                self.pending.sync_file(&dir.store, &name)?
            }
            Ok(present) if present == *content => self.note_met(&dir.store, &name, content),
            Ok(_) | Err(_) => self.write_small(dir, &name, content)?,
        }
        Ok(())
    }

    /// Removes the sidecar of a place that is free now. The caller holds the guard.
    pub(super) fn clear(&self, dir: &Dir, place: &Place) {
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

    /// Puts a small file of the vault's own beside the entries of `dir`, whole, replacing what is there.
    pub(super) fn write_small(&self, dir: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
        let temporary = temporary_name()?;
        let written = self
            .make_small(dir, &temporary, content)
            // Before it has its name: whoever finds it there does not make it durable once more.
            .and_then(
                |()| if self.is_shared() { self.pending.sync_file(&dir.store, &temporary) } else { Ok(()) },
            )
            .and_then(|()| dir.store.rename(&temporary, &dir.store, name));
        if let Err(e) = written {
            // This error counts; a left-over is hidden and goes with the directory.
            let _ = dir.store.unlink(&temporary);
            return Err(e);
        }
        self.note_small(&dir.store, name, content)
    }

    /// Notes that a small file of the vault's own is not durable yet. A shared vault has it durable at once: other machines do not
    /// know that it has to be before they confirm what depends on it.
    pub(super) fn note_small(&self, dir: &Arc<StoreDir>, name: &OsStr, content: &[u8]) -> io::Result<()> {
        if self.is_shared() {
            return self.pending.sync_file(dir, name);
        }
        self.pending.add(dir, name.to_owned(), content);
        Ok(())
    }

    /// Makes a small file where none is; nobody notes that it is not durable yet. What is in it is no secret, and whoever may enter the directory
    /// needs it: root's files must be of use to a user who mounts the vault next.
    pub(super) fn make_small(&self, dir: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
        DirFile::new(dir.store.create_file(name, 0o644)?).write_at(content, 0)
    }

    /// Logs what a directory's listing leaves out, once for each reason.
    pub(super) fn complain(&self, complaint: String) {
        tell_once(&self.told, complaint);
    }
}

impl Place {
    /// Whether the name needs a sidecar.
    pub(super) fn is_long(&self) -> bool {
        self.sidecar.is_some()
    }

    fn sidecar_name(&self) -> OsString {
        OsString::from_vec(sidecar_name(self.stored.0.as_bytes()))
    }
}

/// Logs a complaint, unless that was done before.
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

/// Whether a file could not be opened because a link stands in its place.
pub(super) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Content of a small file of the vault's own.
pub(super) fn read_small(dir: &Dir, name: &OsStr) -> io::Result<Vec<u8>> {
    read_opened(&DirFile::new(dir.store.open_file(name, OFlags::RDONLY)?))
}

/// `read_small` of a file that is open.
pub(super) fn read_opened(file: &DirFile) -> io::Result<Vec<u8>> {
    read_up_to(file, SMALL)
}

/// The first `most` bytes of a small file that is open.
pub(super) fn read_up_to(file: &DirFile, most: usize) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&*file.fd())?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = vec![0; most];
    let n = file.read_at(&mut content, 0)?;
    content.truncate(n);
    Ok(content)
}

/// A new name for something that is not in place yet.
pub(super) fn temporary_name() -> io::Result<OsString> {
    random_name(TEMPORARY)
}

/// A name that begins with `prefix` and that nothing else has.
pub(super) fn random_name(prefix: &str) -> io::Result<OsString> {
    let mut random = [0; 12];
    crate::crypto::random::fill(&mut random)?;
    Ok((prefix.to_owned() + &data_encoding::HEXLOWER.encode(&random)).into())
}

/// Whether this directory holds what was set aside.
pub(super) fn is_set_aside(entry: &Listed) -> bool {
    entry.kind == FileType::Directory && entry.name.as_bytes().starts_with(LOST.as_bytes())
}
