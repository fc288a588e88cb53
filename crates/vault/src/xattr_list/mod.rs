//! Lists of attributes: attributes that a node's store has no room for, in one of the vault's own files.
//!
//! A list is replaced as a whole, and the replacement is durable when the call returns. An attribute in
//! the list takes precedence over one on the node with the same name, so an attribute can move into the
//! list in two steps. The file's name is derived from the owner's identity. Nothing on the node refers
//! to it, because there is no room on the node.

mod on_store;
mod rules;

use super::names::temporary_name;
use content::{Damage, Error, Result};
use crypto::AuthError;
use format::{
    name::LISTS,
    xattr::XattrKeys,
    xattr_list::{ListOwner, NAMES_MAX, XattrList},
};
use rules::{ListRule, holds};
use rustix::{fs::XattrFlags, io::Errno};
use std::{
    ffi::{OsStr, OsString},
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// The errors by which a store says that it has no room for an attribute.
const FULL: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::TOOBIG];

/// The two places for attributes: a node of the store, and the directory of lists.
trait Places {
    /// Stored value of an attribute of the node.
    fn attribute(&self, stored: &OsStr) -> io::Result<Option<Vec<u8>>>;
    /// Sets an attribute of the node.
    fn set_attribute(&self, stored: &OsStr, value: &[u8], flags: XattrFlags) -> io::Result<()>;
    /// Removes an attribute of the node; false if there is none.
    fn remove_attribute(&self, stored: &OsStr) -> io::Result<bool>;
    /// Upper bound for the total length of the names of the node's attributes, each with a terminating
    /// zero byte.
    fn names_len(&self) -> io::Result<usize>;
    /// Makes the node's attributes durable.
    fn sync_attributes(&self) -> io::Result<()>;
    /// Whether the node has a name.
    fn is_linked(&self) -> io::Result<bool>;
    /// Content of a file in the directory; `None` if there is none.
    fn read(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>>;
    /// Whether a list under the former key is accepted.
    fn accept_former(&self, sealed: &[u8]) -> bool;
    /// Creates a file.
    fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<()>;
    /// Makes the content of a file durable.
    fn sync(&self, name: &OsStr) -> io::Result<()>;
    /// Renames a file, replacing any file under the new name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes a file; false if there is none.
    fn unlink(&self, name: &OsStr) -> io::Result<bool>;
    /// Makes the names in the directory durable.
    fn sync_names(&self) -> io::Result<()>;
}

/// An attribute: its plaintext name, and its stored name on the node.
#[derive(Clone, Copy)]
pub(super) struct Attribute<'a> {
    pub name: &'a OsStr,
    pub stored: &'a OsStr,
}

/// The attributes of a file or directory.
struct Attributes<'a, P> {
    places: P,
    keys: &'a XattrKeys,
    /// The former keys, if the list may still be under them.
    former: Option<&'a XattrKeys>,
    owner: ListOwner,
    /// Whether names of lists may not be durable, because a change failed or was interrupted.
    uncertain: &'a AtomicBool,
}

impl<P: Places> Attributes<'_, P> {
    /// The list, if there is one.
    fn list(&self) -> Result<Option<XattrList>> {
        for (keys, is_former) in
            std::iter::once((self.keys, false)).chain(self.former.map(|keys| (keys, true)))
        {
            let name = keys.list_name(&self.owner);
            if let Some(sealed) = self.places.read(OsStr::new(&name))? {
                let damage = |_| Damage {
                    what: format!("{LISTS}/{name}"),
                    reason: "the list of attributes does not authenticate",
                };
                let list = keys.decode_list(&self.owner, &sealed);
                let accepted = !is_former || self.places.accept_former(&sealed);
                return Ok(Some(
                    list.and_then(|list| accepted.then_some(list).ok_or(AuthError)).map_err(damage)?,
                ));
            }
        }
        Ok(None)
    }

    /// Sets an attribute on the node. Returns false if the node has no room for it, or if the list
    /// already has it.
    fn set_on_node(&self, attribute: Attribute, value: &[u8], flags: XattrFlags) -> Result<bool> {
        let name = attribute.name.as_encoded_bytes();
        self.make_certain()?;
        if let Some(list) = self.list()?
            && (list.get(name).is_some() || !self.has_room_for_name(&list, name)?)
        {
            return Ok(false);
        }
        let value = self.keys.encode_value(self.owner.owner(), name, value)?;
        match self.places.set_attribute(attribute.stored, &value, flags) {
            Err(e) if Errno::from_io_error(&e).is_some_and(|e| FULL.contains(&e)) => Ok(false),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NODATA) => Err(Error::NoAttribute),
            set => Ok(set.map(|()| true)?),
        }
    }

    /// Sets an attribute in the list.
    fn set_in_list(&self, attribute: Attribute, value: &[u8], flags: XattrFlags) -> Result<()> {
        let name = attribute.name.as_encoded_bytes();
        self.make_certain()?;
        let mut list = self.list()?.unwrap_or_default();
        let is_on_node = self.places.attribute(attribute.stored)?.is_some();
        let exists = is_on_node || list.get(name).is_some();
        if exists && flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EXIST.into());
        }
        if !exists && flags.contains(XattrFlags::REPLACE) {
            return Err(Error::NoAttribute);
        }
        let has_room = exists || self.has_room_for_name(&list, name)?;
        // A node without a name cannot have a list, because nothing would remove it later.
        if !has_room || !self.places.is_linked()? || !list.insert(name, value) {
            return Err(Errno::NOSPC.into());
        }
        if !holds(ListRule::ListFirst) && is_on_node {
            self.places.remove_attribute(attribute.stored)?;
        }
        self.put(&list)?;
        if is_on_node {
            // If the removal fails, the attribute that remains on the node is ignored.
            let _ = self.places.remove_attribute(attribute.stored);
        }
        Ok(())
    }

    /// Whether the kernel can list one more name.
    fn has_room_for_name(&self, list: &XattrList, name: &[u8]) -> Result<bool> {
        Ok(list.names_len() + self.places.names_len()? + name.len() < NAMES_MAX)
    }

    /// Removes an attribute.
    fn remove(&self, attribute: Attribute) -> Result<()> {
        self.make_certain()?;
        let mut list = self.list()?.unwrap_or_default();
        if !list.remove(attribute.name.as_encoded_bytes()) {
            return match self.places.remove_attribute(attribute.stored)? {
                true => Ok(()),
                false => Err(Error::NoAttribute),
            };
        }
        // Remove an older value on the node, which would become visible again. Sync even if there is
        // none, because an earlier removal may not be durable.
        if holds(ListRule::OlderValueFirst) {
            self.places.remove_attribute(attribute.stored)?;
            if holds(ListRule::SyncOlderValue) {
                self.places.sync_attributes()?;
            }
        }
        self.put(&list)
    }

    /// Makes the present names of lists durable, so that no removed list can come back and no present
    /// one can vanish. Later steps rely on this.
    fn make_certain(&self) -> Result<()> {
        if holds(ListRule::CertainFirst) && self.uncertain.load(Ordering::Relaxed) {
            self.sync_names()?;
        }
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        self.places.sync_names()?;
        self.uncertain.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Durably puts the list in place, under the present keys.
    fn put(&self, list: &XattrList) -> Result<()> {
        if list.is_empty() {
            return self.remove_list();
        }
        let sealed = self.keys.encode_list(&self.owner, list)?;
        let (temporary, name) = (temporary_name()?, OsString::from(self.keys.list_name(&self.owner)));
        let placed = self.places.write(&temporary, &sealed).and_then(|()| {
            if holds(ListRule::ContentFirst) {
                self.places.sync(&temporary)?;
            }
            self.uncertain.store(true, Ordering::Relaxed);
            self.places.rename(&temporary, &name)
        });
        placed.inspect_err(|_| drop(self.places.unlink(&temporary)))?;
        if holds(ListRule::NamesFirst) {
            self.sync_names()?;
        }
        if let Some(former) = self.former {
            self.places.unlink(OsStr::new(&former.list_name(&self.owner)))?;
        }
        Ok(())
    }

    /// Durably removes the list.
    fn remove_list(&self) -> Result<()> {
        self.uncertain.store(true, Ordering::Relaxed);
        if let Some(former) = self.former {
            self.places.unlink(OsStr::new(&former.list_name(&self.owner)))?;
            // Sync even if it was already gone, because that removal may not be durable. The list under
            // the present keys must be removed only afterwards, because it takes precedence while it
            // exists.
            if holds(ListRule::PresentLast) {
                self.places.sync_names()?;
            }
        }
        self.places.unlink(OsStr::new(&self.keys.list_name(&self.owner)))?;
        self.sync_names()
    }
}

#[cfg(test)]
mod tests;
