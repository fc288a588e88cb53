//! Renewing a directory whose id is under the former key: its names, links and attributes are put under
//! the present key before the directory is used.
//!
//! The id is replaced last. Until then, every process that opens the directory starts over, and skips
//! what is already done. A directory that the store does not allow to be renewed is used as it is, under
//! both keys. Entries under the former key cannot be moved out of it.

use super::attributes::{self, BothKeys};
use crate::{
    Dir, StoredName, Vault,
    config_file::{in_place, write_temporary},
    keys::{Former, NamespaceKeys},
    names::{read_small, temporary_name},
    xattr_owner::special,
};
use content::{Error, Result};
use format::{
    dir_id::DirId,
    link::LongLink,
    name::{Class, DIR_ID_NAME},
    xattr::Owner,
};
use rustix::{
    fs::{FileType, Stat, Timespec},
    io::Errno,
};
use std::{
    cell::{Cell, RefCell},
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};
use store::{Listed, Node};

/// A directory that is being renewed.
struct Renewal<'a> {
    vault: &'a Vault,
    dir: &'a Dir,
    id: DirId,
    present: Arc<NamespaceKeys>,
    former: &'a NamespaceKeys,
    /// Stored name of the entry in progress, for error reports; empty if none.
    at: RefCell<OsString>,
}

/// Why a directory could not be put under the present key.
#[derive(Clone)]
pub(crate) struct WhyLeft {
    /// Stored name of the entry that failed; empty for the directory itself.
    pub name: OsString,
    pub reason: String,
}

/// An entry whose name is under the former key.
struct OldName {
    stored: OsString,
    new: OsString,
    /// Content of the new name's sidecar.
    sidecar: Option<Vec<u8>>,
}

impl Vault {
    /// Durably puts a directory under the present key, except for the contents of its files and what is
    /// below it. If the store refuses any of it, the directory is added to `left`. It is not retried,
    /// because users of the open directory rely on its present stored names.
    pub(crate) fn renew_dir(&self, dir: &Dir, id: &DirId, former: &Former) {
        let _alone = self.renewing.lock();
        if self.left.lock().contains_key(id) {
            return;
        }
        let own = OsStr::new(DIR_ID_NAME);
        let renewal = Renewal::new(self, dir, id, former);
        let itself = dir.store.itself();
        let times = itself.stat();
        let is_done = || io::Result::Ok(renewal.present.dir_ids.decode(&read_small(dir, own)?).is_ok());
        let (begun, sidecars) = (Cell::new(false), Cell::new(false));
        let step = |work: &dyn Fn() -> Result<()>| {
            self.with_access(&itself, 0o700, || match is_done()? {
                true => Ok(()), // another thread was faster
                false => {
                    begun.set(true);
                    work().map_err(io::Error::from)
                }
            })
        };
        let durable = || match sidecars.get() {
            true => self.make_names_durable().map_err(io::Error::from),
            false => Ok(()),
        };
        // Sidecars are made durable while no permission bits are changed, because that takes locks that
        // precede the lock of the bits.
        let renewed = step(&|| renewal.prepare_sidecars(&sidecars))
            .and_then(|()| durable())
            .and_then(|()| step(&|| renewal.run()));
        // Only the owner may set times. For other users the renewal counts anyway.
        if begun.get()
            && let Err(e) = times.and_then(|stat| set_times(&itself, &stat))
        {
            log::debug!("{}: its times are those of a rotation: {e}", dir.stored_path(OsStr::new("")));
        }
        if let Err(e) = renewed {
            let left = WhyLeft { name: renewal.at.take(), reason: e.to_string() };
            let place = dir.stored_path(&left.name);
            log::warn!("{place}: keeps its directory under the old key for now: {e}");
            self.left.lock().insert(*id, left);
        }
    }

    /// Why a directory could not be put under the present key; `None` if it was, or did not have to be.
    pub(crate) fn why_left(&self, dir: &Dir) -> Option<WhyLeft> {
        self.left.lock().get(dir.id.as_ref()?).cloned()
    }

    /// Puts the attributes of a node under the present key before they change. They may still be under
    /// the former one in a directory that could not be renewed.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn renew_attributes(&self, node: &Node, owner: Owner) -> Result<()> {
        let Some(former) = self.keys.former() else { return Ok(()) };
        // Do not take the lock for a new node: its creator may hold locks that come later in the lock
        // order.
        if !self.with_access(node, 0o400, || Ok(attributes::any(node, owner, &former.keys)?))? {
            return Ok(());
        }
        let _alone = self.renewing.lock();
        self.renew_attributes_alone(node, owner, (&former.keys, &self.keys()))
    }

    /// Puts the attributes of a node under the present key. The caller holds `renewing`.
    fn renew_attributes_alone(&self, node: &Node, owner: Owner, keys: BothKeys) -> Result<()> {
        // On Linux, setting attributes in `user.` needs write permission to the file, even for its
        // owner.
        Ok(self.with_access(node, 0o600, || Ok(attributes::renew(node, owner, keys)?))?)
    }

    /// Refuses to move an entry to another directory while its target or attributes are under the former
    /// key and cannot be renewed. There, nobody would try the former key, and a rotation could end and
    /// forget it. After EXDEV, programs copy instead.
    ///
    /// # Errors
    /// EXDEV; the store's.
    pub(crate) fn may_go(&self, dir: &Dir, name: &StoredName, to: &Dir) -> Result<()> {
        let former = self.keys.former().filter(|_| dir.id != to.id && self.why_left(dir).is_some());
        let (Some(former), Some(id)) = (former, &dir.id) else { return Ok(()) };
        let _alone = self.renewing.lock();
        let renewal = Renewal::new(self, dir, id, &former);
        let kind = FileType::from_raw_mode(dir.store.stat(&name.0)?.st_mode);
        let entry = Listed { name: name.0.clone(), kind, ino: 0 };
        // Durably, because nobody repeats this in the new directory.
        let renewed = || renewal.renew_node(&entry).and_then(|beside| renewal.sync(beside));
        match renewal.is_old_link(&entry)? || renewed().is_err() {
            true => Err(Errno::XDEV.into()),
            false => Ok(()),
        }
    }
}

impl<'a> Renewal<'a> {
    fn new(vault: &'a Vault, dir: &'a Dir, id: &DirId, former: &'a Former) -> Self {
        let (present, former) = (vault.keys(), &former.keys);
        Renewal { vault, dir, id: *id, present, former, at: RefCell::default() }
    }

    fn run(&self) -> Result<()> {
        let listed = self.dir.store.list()?;
        let names = listed.iter().filter_map(|entry| self.old_name(entry).transpose());
        let names = names.collect::<Result<Vec<OldName>>>()?;
        let mut beside = false;
        for entry in listed.iter().filter(|entry| self.vault.is_entry(&entry.name)) {
            self.at.replace(entry.name.clone());
            beside |= self.renew_node(entry)?;
        }
        self.at.take();
        self.renew_attributes(&self.dir.store.itself(), Owner::Dir(&self.id))?;
        for OldName { stored, new, .. } in &names {
            self.at.replace(stored.clone());
            self.dir.store.rename_new(stored, &self.dir.store, new)?;
        }
        self.at.take();
        self.remove_old_sidecars(&listed)?;
        self.sync(beside)?;
        if self.vault.keys.former().is_some_and(|former| former.has_damaged_list()) {
            return Err(Error::Store(io::Error::other(
                "the list of what is accepted under the former key is damaged",
            )));
        }
        let like = self.dir.store.node(OsStr::new(DIR_ID_NAME))?;
        let id = write_temporary(&self.dir.store, &self.present.dir_ids.encode(&self.id), Some(&like))?;
        Ok(in_place(&self.dir.store, &id, DIR_ID_NAME)?)
    }

    /// The new form of a name; `None` if it already has that form, or does not authenticate, which is
    /// logged.
    ///
    /// # Errors
    /// The store's, because a name that cannot be read may be under the former key.
    fn old_name(&self, entry: &Listed) -> Result<Option<OldName>> {
        let stored = entry.name.as_bytes();
        if !self.present.names.depend_on_directory() || !self.vault.is_entry(&entry.name) {
            return Ok(None);
        }
        self.at.replace(entry.name.clone());
        let sidecar = match self.present.names.classify(stored) {
            Class::Long => match read_small(self.dir, &sidecar_of(&entry.name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
                read => Some(read?),
            },
            Class::Entry | Class::Temporary | Class::Own => None,
        };
        if self.present.names.decode(&self.id, stored, sidecar.as_deref()).is_ok() {
            return Ok(None);
        }
        let new = match self.former.open_name(&self.id, stored, sidecar.as_deref()) {
            Ok(plain) => self.present.names.encode(&self.id, &plain),
            Err(e) => Err(e),
        };
        match new {
            Ok(new) => Ok(Some(OldName {
                stored: entry.name.clone(),
                new: OsString::from_vec(new.stored),
                sidecar: new.sidecar,
            })),
            Err(e) => {
                self.complain(&entry.name, &e.to_string());
                Ok(None)
            }
        }
    }

    /// Puts the sidecars of long names in place before the names change. Sets `any` if there are some.
    fn prepare_sidecars(&self, any: &Cell<bool>) -> Result<()> {
        let is_long = |entry: &&Listed| self.present.names.classify(entry.name.as_bytes()) == Class::Long;
        for entry in self.dir.store.list()?.iter().filter(is_long) {
            if let Some(OldName { new, sidecar: Some(content), .. }) = self.old_name(entry)? {
                any.set(true);
                self.vault.write_small(self.dir, &sidecar_of(&new), &content)?;
            }
        }
        self.at.take();
        Ok(())
    }

    /// Removes sidecars under the former key, including those that a crash left behind.
    fn remove_old_sidecars(&self, listed: &[Listed]) -> Result<()> {
        for Listed { name, .. } in listed.iter().filter(|entry| self.vault.is_sidecar(&entry.name)) {
            let content = read_small(self.dir, name)?;
            if self.former.names.is_sidecar(name.as_bytes(), &content) {
                self.dir.store.unlink(name)?;
            }
        }
        Ok(())
    }

    /// Renews one entry. Returns whether something other than the directory itself changed, now or in an
    /// earlier attempt that may not be durable.
    fn renew_node(&self, entry: &Listed) -> Result<bool> {
        let node = || self.dir.store.node(&entry.name);
        match entry.kind {
            FileType::Directory => Ok(false), // renewed when it is opened
            FileType::Symlink => self.renew_link(&entry.name).map(|()| true),
            _ if !self.dir.store.has_xattrs(&entry.name)? => Ok(false),
            FileType::RegularFile => match self.vault.stored_salt(&node()?)? {
                Some(salt) => self.renew_attributes(&node()?, Owner::File(&salt)).map(|()| true),
                None => Ok(false),
            },
            _ => {
                let node = node()?;
                match special(&node.stat()?) {
                    Some(known) => self.renew_attributes(&node, Owner::Special(&known)).map(|()| true),
                    None => Ok(false),
                }
            }
        }
    }

    /// Whether the entry is a link whose text is under the former key.
    fn is_old_link(&self, entry: &Listed) -> Result<bool> {
        if entry.kind != FileType::Symlink {
            return Ok(false);
        }
        let text = self.dir.store.readlink(&entry.name)?;
        Ok(LongLink::parse(text.as_bytes()).is_none() && self.former.open_link(text.as_bytes()).is_ok())
    }

    /// Replaces a link by a new one, because links cannot be changed. A link with a long target stays,
    /// because the target is not in the link.
    fn renew_link(&self, name: &OsStr) -> Result<()> {
        let text = self.dir.store.readlink(name)?;
        if LongLink::parse(text.as_bytes()).is_some() {
            return self.renew_attributes(&self.dir.store.node(name)?, Owner::Link(text.as_bytes()));
        }
        if self.present.links.decode(text.as_bytes()).is_ok() {
            return Ok(());
        }
        let Ok(target) = self.former.open_link(text.as_bytes()) else {
            self.complain(name, "its target does not authenticate");
            return Ok(());
        };
        let new = self.present.links.encode(&target).map_err(|e| Error::Store(io::Error::other(e)))?;
        let temporary = temporary_name()?;
        self.dir.store.symlink(OsStr::new(&new), &temporary)?;
        let replaced = self.furnish_link(name, &text, &temporary, &new);
        replaced.inspect_err(|_| drop(self.dir.store.unlink(&temporary)))
    }

    /// Gives the new link the old one's owner, attributes and times, and then its name.
    fn furnish_link(&self, name: &OsStr, text: &OsStr, temporary: &OsStr, new: &str) -> Result<()> {
        let (old, made) = (self.dir.store.node(name)?, self.dir.store.node(temporary)?);
        let stat = old.stat()?;
        match made.chown(Some(stat.st_uid), Some(stat.st_gid)) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e.into()),
            _ => {}
        }
        let keys = (self.former, &*self.present);
        attributes::copy(&old, Owner::Link(text.as_bytes()), &made, Owner::Link(new.as_bytes()), keys)?;
        set_times(&made, &stat)?;
        Ok(self.dir.store.rename(temporary, &self.dir.store, name)?)
    }

    fn renew_attributes(&self, node: &Node, owner: Owner) -> Result<()> {
        self.vault.renew_attributes_alone(node, owner, (self.former, &*self.present))
    }

    fn sync(&self, beside: bool) -> Result<()> {
        if beside && self.vault.root.store.sync_all()? {
            return Ok(());
        }
        Ok(self.dir.store.sync()?)
    }

    fn complain(&self, stored: &OsStr, reason: &str) {
        let path = self.dir.stored_path(stored);
        self.vault.complain(format!(
            "{path}: left unchanged; it was not encrypted with any key of the vault: {reason}"
        ));
    }
}

/// Sets the access and modification times of a node to those in `stat`.
fn set_times(node: &Node, stat: &Stat) -> io::Result<()> {
    let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    node.set_times(time(stat.st_atime, stat.st_atime_nsec), time(stat.st_mtime, stat.st_mtime_nsec))
}

fn sidecar_of(stored: &OsStr) -> OsString {
    OsString::from_vec(format::name::sidecar_name(stored.as_bytes()))
}
