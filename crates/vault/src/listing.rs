//! Listing directories piece by piece: starting to list a million entries takes no longer than listing
//! ten.
//!
//! Positions are the store's own, so continuing from one gives the store's guarantee: every entry that
//! exists throughout is returned exactly once, whatever else is added or removed meanwhile.

use super::{Dir, Kind, StoredName, Vault, anchor::Found};
use content::{Error, Mismatch, Result};
use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
};
use store::{DirStream, Listed, is_dots};

/// One entry of a listing, which includes "." and "..".
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// Plaintext name.
    pub name: OsString,
    /// Stored name.
    pub stored: StoredName,
    /// Type.
    pub kind: Kind,
    /// Inode number in the store.
    pub ino: u64,
    /// Position after this entry.
    pub next: u64,
}

impl DirEntry {
    /// Whether the entry is "." or "..".
    pub fn is_dots(&self) -> bool {
        is_dots(&self.name)
    }
}

/// A directory being listed.
pub struct Listing {
    dir: Arc<Dir>,
    stream: DirStream,
    /// The last piece read, and the position before it.
    piece: Vec<DirEntry>,
    from: u64,
    /// Since the start: the number of stored names with an entry's form, and of those that were listed.
    names: (usize, usize),
}

impl Vault {
    /// Starts listing a directory.
    ///
    /// # Errors
    /// The store's.
    pub fn read_dir(&self, dir: Arc<Dir>) -> Result<Listing> {
        let stream = self.with_access(&dir.store.itself(), 0o500, || dir.store.stream())?;
        Ok(Listing { dir, stream, piece: Vec::new(), from: 0, names: (0, 0) })
    }

    /// Lists all entries except "." and "..".
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self, dir: &Arc<Dir>) -> Result<Vec<DirEntry>> {
        let mut listing = self.read_dir(dir.clone())?;
        let (mut all, mut position) = (Vec::new(), 0);
        loop {
            let piece = self.entries(&mut listing, position)?;
            let Some(last) = piece.last() else { return Ok(all) };
            position = last.next;
            all.extend(piece.iter().filter(|entry| !entry.is_dots()).cloned());
        }
    }

    /// Calls `each` for every entry of a directory by its stored name, whether that authenticates or
    /// not.
    ///
    /// # Errors
    /// The store's.
    pub fn each_child(&self, dir: &Dir, each: &mut dyn FnMut(StoredName, Kind, u64)) -> Result<()> {
        self.scan(dir, &mut |entry| {
            if let Some(kind) = Kind::from_store(entry.kind) {
                each(StoredName(entry.name), kind, entry.ino);
            }
            false
        })
    }

    /// Finds the stored name of an inode in a directory; `None` if no name that authenticates has it.
    ///
    /// # Errors
    /// The store's.
    pub fn child(&self, dir: &Dir, inode: u64) -> Result<Option<StoredName>> {
        let mut child = None;
        self.scan(dir, &mut |entry| {
            if entry.ino == inode && self.plain_name(dir, &entry).is_some() {
                child = Some(StoredName(entry.name));
            }
            child.is_some()
        })?;
        Ok(child)
    }

    /// Reads a directory piece by piece until `end` returns true for an entry.
    fn scan(&self, dir: &Dir, end: &mut dyn FnMut(Listed) -> bool) -> Result<()> {
        let mut stream = self.with_access(&dir.store.itself(), 0o500, || dir.store.stream())?;
        loop {
            let listed = stream.next(&dir.store)?;
            let is_last = listed.is_empty();
            let mut entries = listed.into_iter().map(|(_, entry)| entry);
            let is_entry = |e: &Listed| !is_dots(&e.name) && self.is_entry(&e.name);
            if is_last || entries.any(|entry| is_entry(&entry) && end(entry)) {
                return Ok(());
            }
        }
    }

    /// Returns some of the entries after `position`, and none at the end. 0 rereads from the start.
    /// Names that do not authenticate are logged and left out.
    ///
    /// # Errors
    /// The store's.
    pub fn entries<'a>(&self, listing: &'a mut Listing, position: u64) -> Result<&'a [DirEntry]> {
        let at = match listing.piece.iter().position(|entry| entry.next == position) {
            _ if position == 0 => None,
            Some(before) => Some(before + 1),
            None => (position == listing.from).then_some(0),
        };
        match at {
            Some(at) if at < listing.piece.len() => return Ok(&listing.piece[at..]),
            Some(_) => {}
            None => {
                listing.stream.seek(position)?;
                listing.names = (0, 0);
            }
        }
        self.read_piece(listing, position)?;
        Ok(&listing.piece)
    }

    fn read_piece(&self, listing: &mut Listing, position: u64) -> Result<()> {
        listing.piece.clear();
        listing.from = position;
        while listing.piece.is_empty() {
            let listed = listing.stream.next(&listing.dir.store)?;
            if listed.is_empty() {
                self.judge(listing);
                break;
            }
            for (next, entry) in listed {
                listing.names.0 += usize::from(!is_dots(&entry.name) && self.is_entry(&entry.name));
                let Some(kind) = Kind::from_store(entry.kind) else { continue };
                let Some(name) = self.name_of(&listing.dir, &entry) else { continue };
                if !self.is_listed(&listing.dir, &name, kind) {
                    continue;
                }
                listing.names.1 += usize::from(!is_dots(&name));
                let (stored, ino) = (StoredName(entry.name), entry.ino);
                listing.piece.push(DirEntry { name, stored, kind, ino, next });
            }
        }
        Ok(())
    }

    fn name_of(&self, dir: &Dir, entry: &Listed) -> Option<OsString> {
        if is_dots(&entry.name) {
            return Some(entry.name.clone());
        }
        // A directory without an id never had durable entries.
        dir.id.as_ref().and_then(|_| self.plain_name(dir, entry))
    }

    /// Whether an entry agrees with the anchor. Logs one that the anchor does not have.
    fn is_listed(&self, dir: &Dir, name: &OsStr, kind: Kind) -> bool {
        if is_dots(name) {
            return true;
        }
        if self.compared(dir, name, || Ok(()), |_| Some(Found::Kind(kind))).is_ok() {
            return true;
        }
        // It may have been removed since it was listed.
        let look = || self.place(dir, name).map(|place| dir.store.stat(&place.stored.0).is_ok());
        let found = |there: &Result<bool>| matches!(there, Ok(true)).then_some(Found::Kind(kind));
        match self.compared(dir, name, look, found) {
            Err(Error::Refused(refused)) if matches!(refused.mismatch, Mismatch::Added(_)) => {
                self.complain(format!("{}; left out of the listing", refused.at(String::new)));
                false
            }
            Ok(_) | Err(_) => true, // any use beyond its name reports the error
        }
    }

    /// Called at the end. Complains if none of the names authenticates: individual ones may be damaged,
    /// but not all.
    fn judge(&self, listing: &mut Listing) {
        let (carried, shown) = std::mem::take(&mut listing.names);
        if self.anchor_has_more(&listing.dir, shown) {
            let lost = self.lost_names(&listing.dir).unwrap_or_default();
            lost.into_iter().for_each(|(_, _, refused)| self.complain(refused.at(String::new)));
        }
        if carried > 0 && shown == 0 && listing.dir.id.is_some() {
            let path = listing.dir.stored_path(OsStr::new(""));
            self.complain(format!(
                "{path}: none of its {carried} names authenticates: its id file may belong to another directory"
            ));
        }
    }
}
