//! Beginning a rotation: listing everything that will be accepted under the former key. The list is
//! durable before the configuration refers to it, and nothing is added later. An attacker who has the
//! former key and can write to the store therefore cannot create anything that is accepted.

use super::{Step, read_up_to};
use crate::{
    Dir, StoredName, Vault,
    config_file::like,
    descent::{Visitor, descend},
    former_list::{remove_others, write},
    names::{NameOf, read_small},
    xattr_owner::{common_name, is_other},
};
use content::Result;
use crypto::secret::Secret;
use format::{
    config::VaultConfig,
    former_list::{Item, ListKeys, Listed as Kind},
    link::LONG_MAX,
    name::{DIR_ID_NAME, LINKS, LISTS},
    record::{RECORD, Record, RecordError},
    xattr_list::SEALED_MAX,
};
use rustix::fs::{FileType, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    sync::Arc,
};
use store::{DirFile, Listed, Node, StoreDir};

/// Result of listing.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// The list is complete, and the new configuration, which refers to it, can be written.
    Listed,
    /// Something would be lost, as reported. Nothing has changed.
    Refused,
    /// The caller asked to stop. Nothing has changed.
    Stopped,
}

/// A walk through the vault before a rotation.
struct FormerListing<'a> {
    vault: &'a Vault,
    keys: ListKeys,
    items: Vec<Item>,
    report: &'a mut dyn FnMut(Step) -> bool,
    refused: bool,
    /// The walk is below an entry whose name does not authenticate. Losing such entries does not matter.
    foreign: bool,
}

struct ListingStopped;

type Told = std::result::Result<(), ListingStopped>;

impl Vault {
    /// Lists what stays accepted under the present key once `config`, with its key `master`, is the
    /// vault's. Nobody may write to the vault meanwhile. Files that a crash left unfinished are
    /// recovered if this vault is open for writing, and otherwise prevent the rotation. `report` gets
    /// `Step::Left` for everything that prevents the rotation, and returns whether to continue.
    ///
    /// # Errors
    /// The store's.
    pub fn list_for_rotation(
        &self,
        config: &mut VaultConfig,
        master: &Secret<32>,
        report: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Begun> {
        let (keys, items) = (ListKeys::derive(master), Vec::new());
        let mut listing = FormerListing { vault: self, keys, items, report, refused: false, foreign: false };
        if descend(&mut listing, &self.root).is_err() {
            return Ok(Begun::Stopped);
        }
        if listing.refused {
            return Ok(Begun::Refused);
        }
        listing.add_all_in(LINKS, Kind::LongTarget, LONG_MAX)?;
        listing.add_all_in(LISTS, Kind::Attributes, SEALED_MAX)?;
        let store = &self.root.store;
        config.accept(master, write(store, &listing.keys, listing.items, like(store)?.as_ref())?);
        // Left by earlier attempts to begin a rotation.
        remove_others(store, config)?;
        Ok(Begun::Listed)
    }
}

impl Visitor for FormerListing<'_> {
    type Stop = ListingStopped;

    fn visit(&mut self, dir: &Arc<Dir>) -> std::result::Result<Vec<OsString>, ListingStopped> {
        let mut inner = Vec::new();
        let itself = dir.store.itself();
        let own = self.vault.with_access(&itself, 0o500, || {
            let id = match read_small(dir, OsStr::new(DIR_ID_NAME)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
                read => read?,
            };
            Ok((id, dir.store.list()?))
        });
        let listed = match own {
            Ok((id, listed)) => {
                self.add(Kind::Directory, &id);
                listed
            }
            Err(e) => {
                self.refuse(dir, OsStr::new(""), &e.to_string())?;
                return Ok(inner);
            }
        };
        if let Err(e) = self.attributes(&itself) {
            self.refuse(dir, OsStr::new(""), &e.to_string())?;
        }
        for entry in listed.iter().filter(|entry| self.vault.is_entry(&entry.name)) {
            match self.vault.name_of_entry(dir, entry) {
                NameOf::Own(_) => {}
                NameOf::Unread(reason) => self.refuse(dir, &entry.name, &reason)?,
                NameOf::Entry(Ok(_)) if entry.kind == FileType::Directory => {
                    self.add(Kind::Name, entry.name.as_bytes());
                    inner.push(entry.name.clone());
                }
                NameOf::Entry(Ok(_)) => {
                    self.add(Kind::Name, entry.name.as_bytes());
                    self.entry(dir, entry)?;
                }
                NameOf::Entry(Err(_)) => self.without_a_name(dir, entry, &mut inner)?,
            }
        }
        self.tell(Step::Directory)?;
        Ok(inner)
    }

    fn open(
        &mut self,
        dir: &Arc<Dir>,
        name: OsString,
    ) -> std::result::Result<Option<Arc<Dir>>, ListingStopped> {
        match self.vault.open_dir(dir, &StoredName(name.clone())) {
            Ok(inner) => Ok(Some(inner)),
            Err(e) => self.refuse(dir, &name, &e.to_string()).map(|()| None),
        }
    }

    fn lost(&mut self, dir: &Arc<Dir>, error: io::Error) -> Told {
        self.refuse(dir, OsStr::new(""), &error.to_string())
    }
}

impl FormerListing<'_> {
    /// Handles an entry whose name may be damaged. Its content is the vault's if it authenticates.
    fn without_a_name(&mut self, dir: &Arc<Dir>, entry: &Listed, inner: &mut Vec<OsString>) -> Told {
        let outer = std::mem::replace(&mut self.foreign, true);
        match entry.kind {
            FileType::Directory if outer => inner.push(entry.name.clone()),
            // A nested walk. There is never a third level.
            FileType::Directory => {
                if let Some(foreign) = self.open(dir, entry.name.clone())? {
                    descend(self, &foreign)?;
                }
            }
            _ => self.entry(dir, entry)?,
        }
        self.foreign = outer;
        Ok(())
    }

    /// Lists an entry that is not a directory.
    fn entry(&mut self, dir: &Dir, entry: &Listed) -> Told {
        let added = match entry.kind {
            FileType::Symlink => dir.store.readlink(&entry.name).map_err(Into::into).map(|text| {
                self.add(Kind::Link, text.as_bytes());
            }),
            FileType::RegularFile => self.file(dir, entry),
            _ => Ok(()),
        };
        let mut attributes = || {
            if dir.store.has_xattrs(&entry.name)? {
                self.attributes(&dir.store.node(&entry.name)?)?;
            }
            Ok(())
        };
        match added.and_then(|()| attributes()) {
            Ok(()) => Ok(()),
            // Removed since it was listed.
            Err(_) if dir.store.stat(&entry.name).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) => {
                Ok(())
            }
            Err(e) => self.refuse(dir, &entry.name, &e.to_string()),
        }
    }

    fn file(&mut self, dir: &Dir, entry: &Listed) -> Result<()> {
        let node = dir.store.node(&entry.name)?;
        let record = match self.newest(&node)? {
            Some((_, record)) if record.base().is_some() && !self.vault.read_only() => {
                // Opening the file for writing recovers it.
                let open = self.vault.open_file(dir, &StoredName(entry.name.clone()), true)?;
                open.file.flush()?;
                let stored = self.vault.files().store_all().map_err(|(_, e)| e);
                self.vault.files().release(open);
                stored?;
                self.newest(&node)?
            }
            found => found,
        };
        match record {
            Some((_, record)) if record.base().is_some() => Err(io::Error::other(
                "was left unfinished by a crash: read it through a mount for writing, which recovers it",
            )
            .into()),
            Some((sector, _)) => {
                self.add(Kind::File, &sector);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The newest record of a stored file; `None` if nothing was ever committed.
    fn newest(&self, node: &Node) -> Result<Option<([u8; RECORD], Record)>> {
        let sectors = self.vault.stored_records(node)?;
        let keys = &self.vault.files().context().keys;
        let mut newest: Option<([u8; RECORD], Record)> = None;
        for sector in sectors {
            let record = match Record::peek_key(&sector) {
                Err(RecordError::Empty) => continue,
                Err(e) => Err(e),
                Ok(id) => match keys.of_file(id) {
                    Some(derive) => Record::decode(&sector, &derive().1.record),
                    None => Err(RecordError::Forged),
                },
            };
            let record =
                record.map_err(|e| io::Error::other(format!("{e}: `warpcrypt check --repair` mends it")))?;
            if newest.as_ref().is_none_or(|(_, other)| other.sequence < record.sequence) {
                newest = Some((sector, record));
            }
        }
        Ok(newest)
    }

    fn attributes(&mut self, node: &Node) -> Result<()> {
        let others = is_other(node)?;
        let stored = self.vault.with_access(node, 0o400, || {
            let names = node.list_xattr()?;
            let own = names.into_iter().filter_map(|name| Some((common_name(&name, others)?, name)));
            own.map(|(common, name)| Ok((common, node.get_xattr(&name)?))).collect::<io::Result<Vec<_>>>()
        })?;
        for (name, value) in stored {
            self.add(Kind::AttributeName, &name);
            if let Some(value) = value {
                self.add(Kind::Attribute, &value);
            }
        }
        Ok(())
    }

    fn add_all_in(&mut self, own_dir: &str, kind: Kind, most: usize) -> Result<()> {
        let Some(dir) = self.vault.own_dir(own_dir)? else { return Ok(()) };
        for entry in dir.list()?.iter().filter(|entry| entry.kind == FileType::RegularFile) {
            let content = read(&dir, &entry.name, most)?;
            self.add(kind, &content);
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind, stored: &[u8]) {
        self.items.push(self.keys.item(kind, stored));
    }

    fn refuse(&mut self, dir: &Dir, name: &OsStr, reason: &str) -> Told {
        if self.foreign {
            return Ok(());
        }
        self.refused = true;
        self.tell(Step::Left(dir.path_in_store(name), reason.to_owned()))
    }

    fn tell(&mut self, step: Step) -> Told {
        if (self.report)(step) { Ok(()) } else { Err(ListingStopped) }
    }
}

fn read(dir: &StoreDir, name: &OsStr, most: usize) -> io::Result<Vec<u8>> {
    read_up_to(&DirFile::new(dir.open_file(name, OFlags::RDONLY)?), most + 1)
}
