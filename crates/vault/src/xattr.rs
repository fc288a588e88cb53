//! Extended attributes: name and value encrypted, bound to the file.
//!
//! The store keeps every namespace under `user.`, so that the owner needs no privilege there. Attributes
//! of links and special files are kept under `trusted.`, because Linux allows them nothing else. Of
//! `system.` only POSIX ACLs are supported. Attributes of a file or directory that the store has no room
//! for are kept in a list (`xattr_list`).

use super::{
    Target, Vault,
    acl::AclKind,
    attr::key,
    keys::NamespaceKeys,
    xattr_list::Attribute,
    xattr_owner::{Identity, common_name, is_other},
};
use content::{Damage, Error, Result};
use rustix::{fs::XattrFlags, io::Errno};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};
use store::Node;

/// The value of an attribute.
enum FoundAttribute {
    InList(Vec<u8>),
    /// Sealed.
    OnNode(Vec<u8>),
}

impl Vault {
    /// Value of an attribute. `name` includes the namespace ("user.x").
    ///
    /// # Errors
    /// `NoAttribute`; `Damaged` if the value does not authenticate; else the store's.
    pub fn get_xattr(&self, target: Target, name: &OsStr) -> Result<Vec<u8>> {
        refuse_system(name)?;
        self.renew_target(&target)?;
        let node = target.node()?;
        let value = match self.find_value(&target, &node, name)? {
            FoundAttribute::InList(value) => value,
            // The lock of lists is not held here: finding the identity may take locks that precede it.
            FoundAttribute::OnNode(sealed) => {
                // If a crash took the identity that the value was bound to, the attribute counts as
                // absent.
                let identity = self.identity(&target, &node, false)?.ok_or(Error::NoAttribute)?;
                let opened = self.open_value(&target, &identity, name, &sealed);
                // The node may have got this identity just now, and lost the attributes bound to the
                // previous one.
                if opened.is_err() && self.stored_value(&node, name)?.as_ref() != Some(&sealed) {
                    return self.get_xattr(target, name);
                }
                opened?
            }
        };
        match AclKind::of(name) {
            Some(which) => self.present_acl(which, target, value),
            None => Ok(value),
        }
    }

    fn find_value(&self, target: &Target, node: &Node, name: &OsStr) -> Result<FoundAttribute> {
        let (_shared, list) = self.list_of(target, node)?;
        if let Some(value) = list.as_ref().and_then(|list| list.get(name.as_bytes())) {
            return Ok(FoundAttribute::InList(value.to_vec()));
        }
        match self.stored_value(node, name) {
            Ok(value) => value.map(FoundAttribute::OnNode).ok_or(Error::NoAttribute),
            // A store without extended attributes has none of ours.
            Err(Error::Store(e)) if e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                Err(Error::NoAttribute)
            }
            Err(e) => Err(e),
        }
    }

    /// Checks that the value of an attribute, if it still exists, authenticates for a node with this
    /// identity. Without an identity there is nothing to check.
    ///
    /// # Errors
    /// `Damaged` if it does not; else the store's.
    pub(super) fn check_attribute(
        &self,
        target: &Target,
        identity: Option<&Identity>,
        name: &OsStr,
    ) -> Result<()> {
        match self.find_value(target, &target.node()?, name) {
            Ok(FoundAttribute::InList(_)) | Err(Error::NoAttribute) => Ok(()),
            Ok(FoundAttribute::OnNode(sealed)) => match identity {
                Some(identity) => self.open_value(target, identity, name, &sealed).map(drop),
                None => Ok(()),
            },
            Err(e) => Err(e),
        }
    }

    /// Decrypts a sealed value of a node with this identity.
    fn open_value(
        &self,
        target: &Target,
        identity: &Identity,
        name: &OsStr,
        sealed: &[u8],
    ) -> Result<Vec<u8>> {
        let damage = || Damage { what: describe(target), reason: "attribute does not authenticate" };
        let decode = |keys: &NamespaceKeys| keys.open_attribute(identity.owner(), name.as_bytes(), sealed);
        Ok(self.keys.open(decode).map_err(|_| damage())?)
    }

    /// Whether the store has any attribute for the target. If it has none, neither has the vault.
    pub fn has_xattrs(&self, target: Target) -> Result<bool> {
        let on_node = match target {
            Target::Entry(dir, name) => dir.store.has_xattrs(&name.0)?,
            Target::Dir(_) | Target::File(_) => target.node()?.has_xattrs()?,
        };
        Ok(on_node || self.has_list(&target)?)
    }

    /// Sets an attribute; `create`/`replace` as XATTR_CREATE and XATTR_REPLACE.
    ///
    /// # Errors
    /// `NotSupported` for a name outside the namespaces of xattr(7), and for an ACL of a link or special
    /// file. EPERM for another `user.` name of a link or special file. `Invalid` for a namespace alone,
    /// and for a malformed ACL. `NameTooLong`. `NoAttribute` and EEXIST as the flags demand. ENOSPC or
    /// E2BIG for a value that the store cannot hold.
    pub fn set_xattr(
        &self,
        target: Target,
        name: &OsStr,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.writable()?;
        if let Some(which) = AclKind::of(name) {
            return self.set_acl(which, target, name, value);
        }
        check_namespace(name)?;
        let mut flags = XattrFlags::empty();
        flags.set(XattrFlags::CREATE, create);
        flags.set(XattrFlags::REPLACE, replace);
        self.store_xattr(target, name, value, flags)
    }

    /// Sets an attribute, whether it exists or not.
    pub(super) fn put_xattr(&self, target: Target, name: &OsStr, value: &[u8]) -> Result<()> {
        self.store_xattr(target, name, value, XattrFlags::empty())
    }

    fn store_xattr(&self, target: Target, name: &OsStr, value: &[u8], flags: XattrFlags) -> Result<()> {
        self.renew_target(&target)?;
        let node = target.node()?;
        let stored = self.stored_attribute(&node, name)?.ok_or(Error::NameTooLong)?;
        let identity =
            self.identity(&target, &node, true)?.ok_or(Error::NotSupported("attributes of this file"))?;
        identity.allows(name)?;
        self.renew_attributes(&node, identity.owner())?;
        let attribute = Attribute { name, stored: OsStr::new(&stored) };
        if self.set_attribute(&node, &identity, attribute, value, flags)?.is_some() {
            self.files.changed(key(&node.stat()?));
            return Ok(());
        }
        let value = self.keys().xattrs.encode_value(identity.owner(), name.as_bytes(), value)?;
        node.set_xattr(OsStr::new(&stored), &value, flags).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::NODATA) => Error::NoAttribute,
            _ => e.into(),
        })?;
        self.files.changed(key(&node.stat()?));
        Ok(())
    }

    /// The stored names of the vault's attributes, each with its plaintext name, or `None` if it does
    /// not authenticate.
    pub(super) fn attribute_names(&self, target: Target) -> Result<Vec<(OsString, Option<OsString>)>> {
        let node = target.node()?;
        let stored = node.list_xattr()?;
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let others = is_other(&node)?;
        let decoded = |stored: OsString| {
            let common = common_name(&stored, others)?;
            let name = self.keys.open(|keys| keys.open_attribute_name(&common));
            Some((stored, name.ok().map(OsString::from_vec)))
        };
        Ok(stored.into_iter().filter_map(decoded).collect())
    }

    /// Names of the attributes. Those that are not the vault's or do not authenticate are left out.
    pub fn list_xattr(&self, target: Target) -> Result<Vec<OsString>> {
        // Read before the list, because an attribute may move into the list meanwhile.
        let mut on_node = self.attribute_names(target)?;
        if !on_node.is_empty() {
            on_node = match target.node().and_then(|node| self.identity(&target, &node, false)) {
                Ok(None) => Vec::new(), // They were bound to an identity that a crash took.
                // A directory may have got its id just now, and lost the attributes bound to the
                // previous one.
                Ok(Some(_)) | Err(_) => self.attribute_names(target)?,
            };
        }
        let (_shared, list) = self.list_of(&target, &target.node()?)?;
        let list = list.unwrap_or_default();
        let mut names: Vec<_> = list.names().map(|name| OsStr::from_bytes(name).to_owned()).collect();
        for (stored, name) in on_node {
            match name {
                // An interrupted rotation can also leave an attribute on the node twice.
                Some(name) if list.get(name.as_bytes()).is_some() || names.contains(&name) => {}
                Some(name) => names.push(name),
                None => self.complain(format!(
                    "{}: attribute {stored:?} left out of the listing: its name does not authenticate",
                    describe(&target)
                )),
            }
        }
        Ok(names)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute` if there is none; else the store's.
    pub fn remove_xattr(&self, target: Target, name: &OsStr) -> Result<()> {
        self.writable()?;
        refuse_system(name)?;
        self.renew_target(&target)?;
        let node = target.node()?;
        if self.is_rotating()
            && let Some(identity) = self.identity(&target, &node, false)?
        {
            self.renew_attributes(&node, identity.owner())?;
        }
        let stored = self.stored_attribute(&node, name)?.ok_or(Error::NoAttribute)?;
        let attribute = Attribute { name, stored: OsStr::new(&stored) };
        if self.remove_attribute(&target, &node, attribute)?.is_none()
            && !node.remove_xattr(attribute.stored)?
        {
            return Err(Error::NoAttribute);
        }
        self.files.changed(key(&node.stat()?));
        Ok(())
    }
}

/// The target's path in the store, for a log line.
fn describe(target: &Target) -> String {
    match target {
        Target::Dir(dir) => dir.stored_path(OsStr::new("")),
        Target::Entry(dir, name) => dir.stored_path(&name.0),
        Target::File(file) => format!("inode {}", file.key.1),
    }
}

/// Rejects new names that no other filesystem would accept, because the kernel passes every name on to
/// FUSE.
fn check_namespace(name: &OsStr) -> Result<()> {
    refuse_system(name)?;
    let inside =
        ["user.", "trusted.", "security."].iter().find_map(|n| name.as_bytes().strip_prefix(n.as_bytes()));
    match inside {
        None => Err(Error::NotSupported("attributes in no namespace")),
        Some([]) => Err(Error::Invalid("attribute without a name")),
        Some(_) => Ok(()),
    }
}

fn refuse_system(name: &OsStr) -> Result<()> {
    if name.as_bytes().starts_with(b"system.") && AclKind::of(name).is_none() {
        return Err(Error::NotSupported("system attributes other than ACLs"));
    }
    Ok(())
}
