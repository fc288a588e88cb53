//! A directory whose id is under the former key: names, links and attributes in it are put under the present one before
//! anybody uses it.
//!
//! The id goes last. Until it is in place, whoever opens the directory begins again: what is done already is not done twice.

use super::attributes;
use crate::{
    format::{
        dir_id::DirId,
        link::LongLink,
        name::{Class, DIR_ID_NAME},
        xattr::Owner,
    },
    store::{Listed, Node},
    vault::{
        Dir, Error, Result, Vault,
        config_file::{in_place, write_temporary},
        keys::{Former, Keys},
        names::{read_small, temporary_name},
        xattr_owner::special,
    },
};
use rustix::fs::{FileType, Stat, Timespec};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};

/// A directory that is being renewed.
struct Renewal<'a> {
    vault: &'a Vault,
    dir: &'a Dir,
    id: DirId,
    present: Arc<Keys>,
    former: &'a Keys,
}

/// An entry whose name is under the former key.
struct OldName {
    stored: OsString,
    new: OsString,
    /// Content of the new name's sidecar.
    sidecar: Option<Vec<u8>>,
}

impl Vault {
    /// Puts a directory under the present key, durably, but for what its files hold and what is below it.
    ///
    /// # Errors
    /// The store's. What is done already stays.
    pub(in crate::vault) fn renew_dir(&self, dir: &Dir, former: &Former) -> Result<()> {
        let _alone = self.renewing.lock();
        let present = self.keys();
        let own = OsStr::new(DIR_ID_NAME);
        let renewal = Renewal { vault: self, dir, id: *dir.id()?, present, former: &former.keys };
        let renewed = self.with_access(&dir.store.itself(), 0o700, || {
            if renewal.present.dir_ids.decode(&read_small(dir, own)?).is_ok() {
                return Ok(()); // another thread was faster
            }
            renewal.run().map_err(io::Error::from)
        });
        Ok(renewed?)
    }
}

impl Renewal<'_> {
    fn run(&self) -> Result<()> {
        let before = self.dir.store.itself().stat()?;
        let listed = self.dir.store.list()?;
        let names: Vec<OldName> = listed.iter().filter_map(|entry| self.old_name(entry)).collect();
        let mut beside = self.prepare_sidecars(&names)?;
        for entry in listed.iter().filter(|entry| self.vault.is_entry(&entry.name)) {
            beside |= self.renew_node(entry)?;
        }
        beside |= self.renew_attributes(&self.dir.store.itself(), Owner::Dir(&self.id))?;
        for OldName { stored, new, .. } in &names {
            self.dir.store.rename_new(stored, &self.dir.store, new)?;
        }
        self.remove_old_sidecars(&listed)?;
        self.sync(beside)?;
        let like = self.dir.store.node(OsStr::new(DIR_ID_NAME))?;
        let id = write_temporary(&self.dir.store, &self.present.dir_ids.encode(&self.id), Some(&like))?;
        in_place(&self.dir.store, &id, DIR_ID_NAME)?;
        Ok(set_times(&self.dir.store.itself(), &before)?)
    }

    /// The new form of a name; `None` if it has that, or does not authenticate (then logged).
    fn old_name(&self, entry: &Listed) -> Option<OldName> {
        let stored = entry.name.as_bytes();
        if !self.present.names.depend_on_directory() || !self.vault.is_entry(&entry.name) {
            return None;
        }
        let long = self.present.names.classify(stored) == Class::Long;
        let sidecar = long.then(|| read_small(self.dir, &sidecar_of(&entry.name)).unwrap_or_default());
        if self.present.names.decode(&self.id, stored, sidecar.as_deref()).is_ok() {
            return None;
        }
        let new = match self.former.names.decode(&self.id, stored, sidecar.as_deref()) {
            Ok(plain) => self.present.names.encode(&self.id, &plain),
            Err(e) => Err(e),
        };
        match new {
            Ok(new) => Some(OldName {
                stored: entry.name.clone(),
                new: OsString::from_vec(new.stored),
                sidecar: new.sidecar,
            }),
            Err(e) => {
                self.complain(&entry.name, &e.to_string());
                None
            }
        }
    }

    /// Puts the sidecars of long names in place, durably, before the names change.
    fn prepare_sidecars(&self, names: &[OldName]) -> Result<bool> {
        let mut any = false;
        for OldName { new, sidecar, .. } in names {
            if let Some(content) = sidecar {
                self.vault.write_small(self.dir, &sidecar_of(new), content)?;
                any = true;
            }
        }
        if any {
            self.vault.make_names_durable()?;
        }
        Ok(any)
    }

    /// Also those that a crash left behind.
    fn remove_old_sidecars(&self, listed: &[Listed]) -> Result<()> {
        for Listed { name, .. } in listed.iter().filter(|entry| self.vault.is_sidecar(&entry.name)) {
            let content = read_small(self.dir, name)?;
            if self.former.names.is_sidecar(name.as_bytes(), &content) {
                self.dir.store.unlink(name)?;
            }
        }
        Ok(())
    }

    /// Whether more than the directory itself changed.
    fn renew_node(&self, entry: &Listed) -> Result<bool> {
        let node = || self.dir.store.node(&entry.name);
        match entry.kind {
            FileType::Directory => Ok(false), // with itself
            FileType::Symlink => self.renew_link(&entry.name),
            _ if !self.dir.store.has_xattrs(&entry.name)? => Ok(false),
            FileType::RegularFile => match self.vault.stored_salt(&node()?)? {
                Some(salt) => self.renew_attributes(&node()?, Owner::File(&salt)),
                None => Ok(false),
            },
            _ => {
                let node = node()?;
                match special(&node.stat()?) {
                    Some(known) => self.renew_attributes(&node, Owner::Special(&known)),
                    None => Ok(false),
                }
            }
        }
    }

    /// A link cannot be changed: another one takes its place. Long targets are not in the link, which stays.
    fn renew_link(&self, name: &OsStr) -> Result<bool> {
        let text = self.dir.store.readlink(name)?;
        if LongLink::parse(text.as_bytes()).is_some() {
            return self.renew_attributes(&self.dir.store.node(name)?, Owner::Link(text.as_bytes()));
        }
        if self.present.links.decode(text.as_bytes()).is_ok() {
            return Ok(false);
        }
        let Ok(target) = self.former.links.decode(text.as_bytes()) else {
            self.complain(name, "its target does not authenticate");
            return Ok(false);
        };
        let new = self.present.links.encode(&target).map_err(|e| Error::Store(io::Error::other(e)))?;
        let temporary = temporary_name()?;
        self.dir.store.symlink(OsStr::new(&new), &temporary)?;
        let replaced = self.furnish_link(name, &text, &temporary, &new);
        replaced.inspect_err(|_| drop(self.dir.store.unlink(&temporary)))?;
        Ok(true)
    }

    /// Gives the new link what the old one has, and its name.
    fn furnish_link(&self, name: &OsStr, text: &OsStr, temporary: &OsStr, new: &str) -> Result<()> {
        let (old, made) = (self.dir.store.node(name)?, self.dir.store.node(temporary)?);
        let stat = old.stat()?;
        match made.chown(Some(stat.st_uid), Some(stat.st_gid)) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e.into()),
            _ => {}
        }
        let keys = (&self.former.xattrs, &self.present.xattrs);
        attributes::copy(&old, Owner::Link(text.as_bytes()), &made, Owner::Link(new.as_bytes()), keys)?;
        set_times(&made, &stat)?;
        Ok(self.dir.store.rename(temporary, &self.dir.store, name)?)
    }

    fn renew_attributes(&self, node: &Node, owner: Owner) -> Result<bool> {
        attributes::renew(node, owner, (&self.former.xattrs, &self.present.xattrs))
    }

    fn sync(&self, beside: bool) -> Result<()> {
        if beside && self.vault.root.store.sync_all()? {
            return Ok(());
        }
        Ok(self.dir.store.sync()?)
    }

    fn complain(&self, stored: &OsStr, reason: &str) {
        let path = self.dir.stored_path(stored);
        self.vault.complain(format!("{path}: stays as it is, which is under no key of the vault: {reason}"));
    }
}

/// Gives a node the times that `stat` says.
fn set_times(node: &Node, stat: &Stat) -> io::Result<()> {
    let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    node.set_times(time(stat.st_atime, stat.st_atime_nsec), time(stat.st_mtime, stat.st_mtime_nsec))
}

fn sidecar_of(stored: &OsStr) -> OsString {
    OsString::from_vec(crate::format::name::sidecar_name(stored.as_bytes()))
}
