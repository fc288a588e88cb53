//! Comparing names in the store with those in the anchor, and writing changes to the anchor.

use super::{
    Anchor, Changing, Compared,
    changes::{Looked, Settled},
    entry::{AnchoredIdentity, Found},
};
use crate::{Dir, Kind, OpenFile, StoredName, Vault, attr::key, names::NameOf, xattr_owner::special};
use content::{Bound, Error, Refused, Result};
use format::{dir_id::DirId, record::Record};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    sync::Arc,
};
use store::{BackingFile, DirFile, Listed, Node};

/// If a single directory has more changed names than this, the whole store is synced, if it supports
/// that.
const FEW: usize = 16;

impl Vault {
    /// Repeats `look` until its result, as interpreted by `found`, can be compared with the anchor and
    /// matches it.
    ///
    /// # Errors
    /// `Refused` if it does not match; those of `look`.
    pub(crate) fn compared<T>(
        &self,
        dir: &Dir,
        name: &OsStr,
        look: impl Fn() -> Result<T>,
        found: impl Fn(&Result<T>) -> Option<Found>,
    ) -> Result<T> {
        let (Some(anchor), Some(id)) = (&self.anchor, &dir.id) else { return look() };
        loop {
            let since = anchor.changes();
            let result = look();
            let Some(found) = found(&result) else { return result };
            match anchor.compare(id, name, &found, since)? {
                Compared::Fine => return result,
                Compared::Again => {}
                Compared::Otherwise(mismatch) => {
                    let place = self.place(dir, name)?;
                    let place = Some(dir.stored_path(&place.stored.0));
                    return Err(Error::Refused(Refused { place, mismatch }));
                }
            }
        }
    }

    /// Compares the node under an entry with the anchor, as `compared` does for a name.
    ///
    /// # Errors
    /// As there. Also EIO if the name does not authenticate, because there is nothing to compare with.
    pub(crate) fn compared_entry<T>(
        &self,
        dir: &Dir,
        stored: &StoredName,
        look: impl Fn() -> Result<T>,
        identity: impl Fn(&T) -> Result<Option<AnchoredIdentity>>,
    ) -> Result<T> {
        let Some(name) = self.anchored_name(dir, stored)? else { return look() };
        let found = |looked: &Result<T>| Some(Found::Identity(identity(looked.as_ref().ok()?).ok()??));
        self.compared(dir, &name, look, found)
    }

    /// The identity of a link with this target, if there is an anchor.
    pub(crate) fn identity_of_link(&self, target: &OsStr) -> Result<Option<AnchoredIdentity>> {
        let Some(anchor) = &self.anchor else { return Ok(None) };
        Ok(Some(AnchoredIdentity::Link(anchor.keys()?.target(target))))
    }

    /// The plaintext of a stored name, if there is an anchor to compare it with.
    ///
    /// # Errors
    /// EIO if the name does not authenticate.
    fn anchored_name(&self, dir: &Dir, stored: &StoredName) -> Result<Option<OsString>> {
        if self.anchor.is_none() {
            return Ok(None);
        }
        let entry = Listed { name: stored.0.clone(), kind: FileType::Unknown, ino: 0 };
        match self.name_of_entry(dir, &entry) {
            NameOf::Entry(Ok(name)) => Ok(Some(name)),
            NameOf::Entry(Err(reason)) | NameOf::Unread(reason) => {
                self.complain(format!("{}: {reason}", dir.stored_path(&stored.0)));
                Err(Errno::IO.into())
            }
            NameOf::Own(_) => Ok(None),
        }
    }

    /// The identity that the anchor has under a name. It may be outdated.
    fn anchored(&self, dir: &Dir, name: &OsStr) -> Option<AnchoredIdentity> {
        self.kept_anchor()?.under(dir.id.as_ref()?, name).ok()?
    }

    /// Begins a change of a name, if there is an anchor. Call it before taking a lock. Dropping the
    /// returned value ends the change.
    ///
    /// # Errors
    /// The anchor's. Then nothing may be changed.
    pub(crate) fn changing(&self, dir: &Dir, name: &OsStr) -> Result<Option<Changing<'_>>> {
        let Some(anchor) = self.kept_anchor() else { return Ok(None) };
        if anchor.is_crowded() {
            self.anchor_names(None)?;
        }
        anchor.begin(dir.id()?, &dir.store, name).map(Some)
    }

    /// Called before an entry may get another identity because nothing has been committed to it so far.
    pub(crate) fn changing_entry(&self, dir: &Dir, stored: &StoredName) -> Result<()> {
        match self.anchored_name(dir, stored)? {
            Some(name) => self.changing(dir, &name).map(drop),
            None => Ok(()),
        }
    }

    /// The anchor, if it may be written to while the vault is in use.
    fn kept_anchor(&self) -> Option<&Arc<Anchor>> {
        self.anchor.as_ref().filter(|anchor| anchor.is_made() && !self.read_only())
    }

    /// Called after a directory was opened. If the anchor knows nothing of it, the directory is
    /// scheduled to be read.
    pub(crate) fn met(&self, dir: &Dir) -> Result<()> {
        let (Some(anchor), Some(id)) = (self.kept_anchor(), &dir.id) else { return Ok(()) };
        if anchor.is_crowded()
            && let Err(e) = self.anchor_names(None)
        {
            log::debug!("changes cannot be brought to the anchor: {e}"); // the next change reports it
        }
        anchor.meet(id, &dir.store)
    }

    /// Writes the durable records of files to the anchor.
    ///
    /// # Errors
    /// The anchor's.
    pub(crate) fn anchor_files(&self) -> Result<()> {
        self.kept_anchor().map_or(Ok(()), |anchor| anchor.commit())
    }

    /// Makes changed directories durable, all of them or one, and records their names in the anchor. A
    /// directory that is being changed right now is left for the next time.
    ///
    /// # Errors
    /// The store's, and the anchor's.
    pub(crate) fn anchor_names(&self, only: Option<&Dir>) -> Result<()> {
        let Some(anchor) = self.kept_anchor() else { return Ok(()) };
        let only = only.map(|dir| dir.id().copied()).transpose()?;
        let settled = anchor.settled(only.as_ref());
        let few = only.is_some() && settled.iter().all(|s| s.names.as_ref().is_some_and(|n| n.len() <= FEW));
        let each = few || !self.can_sync_store();
        let mut looked = Vec::new();
        for settled in settled {
            match self.look(anchor, settled, each) {
                Ok(found) => looked.push(found),
                Err(e) => log::debug!("a changed directory is left to be looked at again: {e}"),
            }
        }
        anchor.keep(&looked, || {
            if each {
                self.make_names_durable()?;
                looked.iter().try_for_each(|looked| self.sync_of(&looked.settled))?;
            } else {
                self.sync_store()?;
            }
            Ok(())
        })
    }

    fn sync_of(&self, settled: &Settled) -> Result<()> {
        let node = settled.store.itself();
        Ok(self.with_access(&node, 0o500, || settled.store.sync())?)
    }

    /// Reads the nodes under the changed names of a directory. A file to which nothing was committed
    /// gets an identity. If `each`, the files are also synced one by one.
    fn look(&self, anchor: &Anchor, settled: Settled, each: bool) -> Result<Looked> {
        let dir = Dir { store: settled.store.clone(), id: Some(settled.id) };
        let keys = anchor.keys()?;
        let names: Vec<OsString> = match &settled.names {
            Some(sealed) => sealed.iter().filter_map(|sealed| keys.open(&settled.id, sealed)).collect(),
            None => self.entries_of(&dir)?.into_iter().map(|(name, _)| name).collect(),
        };
        let look = |name: OsString| {
            let stored = self.place(&dir, &name)?.stored;
            let identity = self.identity_at(anchor, &dir, &stored, &mut |stored| {
                self.committed_identity(&dir, stored, each)
            })?;
            Ok((keys.seal(&settled.id, &name), identity))
        };
        let names = names.into_iter().map(look).collect::<Result<_>>()?;
        Ok(Looked { settled, names })
    }

    /// The entries of a directory whose names authenticate.
    pub(super) fn entries_of(&self, dir: &Dir) -> Result<Vec<(OsString, StoredName)>> {
        let listed = self.with_access(&dir.store.itself(), 0o500, || dir.store.list())?;
        let name = |entry: Listed| match self.name_of_entry(dir, &entry) {
            NameOf::Entry(Ok(name)) => Some((name, StoredName(entry.name))),
            NameOf::Entry(Err(_)) | NameOf::Unread(_) | NameOf::Own(_) => None,
        };
        Ok(listed.into_iter().filter_map(name).collect())
    }

    /// The identity of the node under a stored name, where `file` determines that of a file. `None` if
    /// the name does not exist.
    ///
    /// # Errors
    /// The store's. A node that is damaged or that this process may not read is `Any`.
    pub(super) fn identity_at(
        &self,
        anchor: &Anchor,
        dir: &Dir,
        stored: &StoredName,
        file: &mut dyn FnMut(&StoredName) -> Result<AnchoredIdentity>,
    ) -> Result<Option<AnchoredIdentity>> {
        let node = match dir.store.node(&stored.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            node => node?,
        };
        let raw = node.stat()?;
        let known = match Kind::from_store(FileType::from_raw_mode(raw.st_mode)) {
            None => Ok(AnchoredIdentity::Any),
            Some(Kind::File) => file(stored),
            Some(Kind::Dir) => self.with_id(dir.store.open_dir(&stored.0)?).map(|dir| match dir.id {
                Some(id) => AnchoredIdentity::Dir(id),
                None => AnchoredIdentity::Any,
            }),
            Some(Kind::Symlink) => self
                .target_of(dir, stored)
                .and_then(|target| Ok(AnchoredIdentity::Link(anchor.keys()?.target(&target)))),
            Some(Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice) => {
                Ok(special(&raw).map_or(AnchoredIdentity::Any, AnchoredIdentity::Special))
            }
        };
        match known {
            Ok(identity) => Ok(Some(identity)),
            // A node that this process may not access is irrelevant to it.
            Err(Error::Store(e)) if e.kind() != io::ErrorKind::PermissionDenied => Err(e.into()),
            Err(_) => Ok(Some(AnchoredIdentity::Any)),
        }
    }

    /// The identity of a file. Gives it one if it has none.
    fn committed_identity(&self, dir: &Dir, stored: &StoredName, each: bool) -> Result<AnchoredIdentity> {
        let node = dir.store.node(&stored.0)?;
        if self.files.get(key(&node.stat()?)).is_none()
            && let Some(newest) = self.newest_record(&node, each)?
        {
            return Ok(AnchoredIdentity::File(Some(newest.key.salt)));
        }
        let open = self.open_stored(dir, stored, true)?;
        let identified = open.file.salt(true).and_then(|salt| {
            if each && open.file.durable().is_none() {
                self.files.sync(&open)?;
            }
            Ok(AnchoredIdentity::File(salt))
        });
        self.files.release(open);
        identified
    }

    /// The newest record of a file in the store. If `sync`, it is made durable.
    pub(super) fn newest_record(&self, node: &Node, sync: bool) -> Result<Option<Bound>> {
        let file = self.with_access(node, 0o400, || node.reopen(OFlags::RDONLY))?;
        let file = Arc::new(DirFile::quiet(file));
        let newest = content::newest_record(file.clone(), self.files.context().clone())?;
        if sync {
            file.sync_data()?;
        }
        Ok(newest)
    }

    /// Called after the last name of a file, which was `name`, was removed. A file that is not open is
    /// forgotten only if the anchor has it under that name, because the records of another file may have
    /// been copied there.
    pub(crate) fn file_went(&self, node: &Node, dir: &Dir, name: &OsStr) {
        let Some(anchor) = self.kept_anchor() else { return };
        let anchored = self.anchored(dir, name);
        let salt = node.stat().ok().and_then(|raw| match self.files.get(key(&raw)) {
            Some(open) => open.file.salt(false).ok().flatten(),
            None => {
                let records = self.stored_records(node).ok()?;
                let keys = records.iter().map(Record::peek_key);
                keys.flatten()
                    .map(|key| key.salt)
                    .find(|salt| anchored == Some(AnchoredIdentity::File(Some(*salt))))
            }
        });
        // A bound that stays in the anchor is useless but harmless.
        if let Some(salt) = salt {
            anchor.file_went(salt);
        }
    }

    /// Called after a directory with that name was removed. It is forgotten if the anchor has it there,
    /// or if it was changed.
    pub(crate) fn directory_went(&self, id: &DirId, parent: &Dir, name: &OsStr) {
        if let Some(anchor) = self.kept_anchor() {
            anchor.directory_went(id, self.anchored(parent, name) == Some(AnchoredIdentity::Dir(*id)));
        }
    }

    /// Called when a file without a name may have got one.
    pub(crate) fn file_came_back(&self, open: &OpenFile) {
        if let (Some(anchor), Ok(Some(salt))) = (self.kept_anchor(), open.file.salt(false)) {
            anchor.file_came_back(&salt);
        }
    }

    /// Whether the anchor has more than `names` names in a directory.
    pub(crate) fn anchor_has_more(&self, dir: &Dir, names: usize) -> bool {
        let (Some(anchor), Some(id)) = (&self.anchor, &dir.id) else { return false };
        anchor.number_of_names(id).is_ok_and(|number| number > names)
    }

    /// Names that the anchor has in a directory, but the store does not.
    ///
    /// # Errors
    /// The store's.
    pub fn lost_names(&self, dir: &Dir) -> Result<Vec<(OsString, PathBuf, Refused)>> {
        let (Some(anchor), Some(id)) = (&self.anchor, &dir.id) else { return Ok(Vec::new()) };
        let mut lost = Vec::new();
        for name in anchor.names(id)?.unwrap_or_default() {
            let stored = self.place(dir, &name)?.stored;
            if dir.store.stat(&stored.0).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
                && let Err(Error::Refused(refused)) =
                    self.compared(dir, &name, || Ok(()), |_| Some(Found::Nothing))
            {
                lost.push((name, dir.path_in_store(&stored.0), refused));
            }
        }
        Ok(lost)
    }
}
