//! Symbolic links. A target that does not fit in a link of the store is kept in an internal file of the
//! vault. The file is durable before the link is created, and is removed after it. So a crash can leave
//! an orphaned file, but never a link without its target.

use super::{Dir, Kind, NewNode, Pin, Stat, StoredName, Vault, make::just_made, names::read_up_to};
use content::{Damage, Error, Result};
use format::{
    link::{self, LinkError, LongLink},
    name::LINKS,
};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};
use store::{BackingFile, DirFile, StoreDir};

impl Vault {
    /// Creates a symbolic link.
    ///
    /// # Errors
    /// `NameTooLong`; EEXIST if the name is taken; otherwise the store's error.
    pub fn symlink(
        &self,
        parent: &Dir,
        name: &OsStr,
        target: &OsStr,
        node: NewNode,
    ) -> Result<(StoredName, Stat)> {
        let made = match self.keys().links.encode(target.as_bytes()) {
            Ok(text) => self.make_link(parent, name, &text, node),
            Err(LinkError::TooLong(_)) => Err(Errno::NAMETOOLONG.into()),
            Err(LinkError::Random(e)) => Err(e.into()),
        };
        let (stored, stat) = match made {
            // Some stores accept less than Linux does.
            Err(Error::Store(e)) if e.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                self.make_long_link(parent, name, target, node)?
            }
            other => other?,
        };
        Ok((stored, Stat { size: target.len() as u64, ..stat }))
    }

    fn make_link(&self, parent: &Dir, name: &OsStr, text: &str, node: NewNode) -> Result<(StoredName, Stat)> {
        let (stored, raw) = self.make(parent, name, node, |stored| {
            parent.store.symlink(OsStr::new(text), stored)?;
            just_made(&parent.store, stored)
        })?;
        Ok((stored, self.present(&raw)?))
    }

    fn make_long_link(
        &self,
        parent: &Dir,
        name: &OsStr,
        target: &OsStr,
        node: NewNode,
    ) -> Result<(StoredName, Stat)> {
        self.writable()?;
        let (long, sealed) = self.keys().links.encode_long(target.as_bytes()).map_err(|e| match e {
            LinkError::TooLong(_) => Error::NameTooLong,
            LinkError::Random(e) => e.into(),
        })?;
        let dir = self.make_own_dir(LINKS)?;
        let file = long.file_name();
        let made = put(&dir, &file, &sealed)
            .map_err(Error::from)
            .and_then(|()| self.make_link(parent, name, &long.text(), node));
        made.inspect_err(|_| {
            // Report the first error. An orphaned file does no harm; a link without its target would.
            if self.is_absent(parent, name, &long) {
                let _ = dir.unlink(&file);
            }
        })
    }

    /// Whether no link with that name leads to this target, as far as the store reports.
    fn is_absent(&self, parent: &Dir, name: &OsStr, long: &LongLink) -> bool {
        let Ok(place) = self.place(parent, name) else { return false };
        match parent.store.readlink(&place.stored.0) {
            Ok(text) => *text != *long.text(),
            Err(e) => matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `Damaged`; `NotSupported` for a link that a later version created; otherwise the store's error.
    pub fn readlink(&self, parent: &Dir, name: &StoredName) -> Result<OsString> {
        let look = || self.target_of(parent, name);
        self.compared_entry(parent, name, look, |target| self.identity_of_link(target))
    }

    /// Like `readlink`, but without consulting the anchor.
    pub(super) fn target_of(&self, parent: &Dir, name: &StoredName) -> Result<OsString> {
        let text = parent.store.readlink(&name.0)?;
        let damage = |reason| Damage { what: parent.stored_path(&name.0), reason };
        let target = match LongLink::parse(text.as_bytes()) {
            Some(long) => match self.long_target(&long) {
                Ok(target) => target,
                // The link was removed after its text was read, and its target with it.
                Err(_) if parent.store.readlink(&name.0)? != text => return Err(Errno::NOENT.into()),
                Err(Error::Store(e)) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(damage("the file with the link's target is missing").into());
                }
                Err(Error::Damaged(_)) => {
                    return Err(damage("the file with the link's target does not authenticate").into());
                }
                Err(e) => return Err(e),
            },
            None if link::is_reserved(text.as_bytes()) => {
                return Err(Error::NotSupported("the form of a link's target, which a later version made"));
            }
            None => {
                let target = self.keys.open(|keys| keys.open_link(text.as_bytes()));
                target.map_err(|_| damage("link target does not authenticate"))?
            }
        };
        Ok(OsString::from_vec(target))
    }

    fn long_target(&self, long: &LongLink) -> Result<Vec<u8>> {
        let dir = self.root.store.open_dir(OsStr::new(LINKS))?;
        let name = long.file_name();
        let file = DirFile::new(dir.open_file(&name, OFlags::RDONLY)?);
        let sealed = read_up_to(&file, link::LONG_MAX + 1)?;
        let opened = self.keys.open(|keys| keys.open_long_target(long, &sealed));
        Ok(opened.map_err(|_| Damage { what: String::new(), reason: "does not authenticate" })?)
    }

    /// Sets the size of a link with a long target, which the stored text contains; `text` reads it.
    pub(super) fn with_target_len(
        &self,
        stat: Stat,
        text: impl FnOnce() -> Result<OsString>,
    ) -> Result<Stat> {
        if stat.kind != Kind::Symlink || stat.size > 0 {
            return Ok(stat); // no target in the usual form is empty
        }
        let size = LongLink::parse(text()?.as_bytes()).map_or(0, |long| long.target_len() as u64);
        Ok(Stat { size, ..stat })
    }

    /// Called after a link was removed from `dir`. If it was the last one with a long target, removes
    /// the target's file.
    pub(super) fn link_went(&self, pin: &Pin, dir: &StoreDir) {
        let text = pin.text().unwrap_or_default();
        let Some(long) = LongLink::parse(text.as_bytes()).filter(|_| pin.links().is_ok_and(|n| n == 0))
        else {
            return;
        };
        // Sync first, so that a power cut cannot bring back the link without its target.
        let removed = self
            .with_access(&dir.itself(), 0o500, || dir.sync())
            .and_then(|()| self.root.store.open_dir(OsStr::new(LINKS))?.unlink(&long.file_name()));
        if let Err(e) = removed {
            log::warn!("cannot remove the stored target of a deleted symbolic link: {e}");
        }
    }

    /// The directory of long targets, and the files in it that no link refers to, which a crash left.
    /// `None` if there is no such directory.
    ///
    /// # Errors
    /// The store's error, also if not all links can be read; EOPNOTSUPP if a later version created one
    /// of the links, because any file may be its target.
    pub fn unlinked_targets(&self) -> Result<Option<(Dir, Vec<OsString>)>> {
        self.left_in(LINKS, &mut |dir, entry| {
            if entry.kind != FileType::Symlink {
                return Ok(Vec::new());
            }
            let text = dir.readlink(&entry.name)?;
            match LongLink::parse(text.as_bytes()) {
                Some(long) => Ok(vec![long.file_name()]),
                None if link::is_reserved(text.as_bytes()) => Err(Errno::OPNOTSUPP.into()),
                None => Ok(Vec::new()),
            }
        })
    }
}

/// Writes a file durably to the directory of long targets. Anyone who may enter the directory may read
/// it: it is encrypted.
fn put(dir: &StoreDir, name: &OsStr, sealed: &[u8]) -> io::Result<()> {
    let file = DirFile::new(dir.create_file(name, 0o644)?);
    file.write_at(sealed, 0)?;
    file.sync_data()?;
    dir.sync()
}
