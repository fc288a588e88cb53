//! Extended attributes: name and value encrypted, bound to the file.
//!
//! Every namespace is kept under `user.` in the store, so that its owner needs no privilege there. Of `system.` there are POSIX
//! ACLs alone.

use super::{Damage, Dir, Error, Kind, Result, Target, Vault, acl::AclKind, attr::key};
use crate::format::{
    dir_id::DirId,
    xattr::{Owner, PREFIX, is_reserved},
};
use rustix::{fs::XattrFlags, io::Errno};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// What an attribute is bound to.
enum Identity {
    File([u8; 32]),
    Dir(DirId),
}

impl Identity {
    fn owner(&self) -> Owner<'_> {
        match self {
            Identity::File(salt) => Owner::File(salt),
            Identity::Dir(id) => Owner::Dir(id),
        }
    }
}

impl Vault {
    /// Value of an attribute, `name` with its namespace ("user.x").
    ///
    /// # Errors
    /// `NoAttribute`; `Damaged` if the value does not authenticate; else the store's.
    pub fn get_xattr(&self, target: Target, name: &OsStr) -> Result<Vec<u8>> {
        refuse_system(name)?;
        let stored = self.keys().xattrs.encode_name(name.as_bytes()).ok_or(Error::NoAttribute)?;
        let value = match target.node()?.get_xattr(OsStr::new(&stored)) {
            Ok(value) => value.ok_or(Error::NoAttribute)?,
            // A store without attributes has none of ours.
            Err(e) if e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                return Err(Error::NoAttribute);
            }
            Err(e) => return Err(e.into()),
        };
        let identity = self.identity(&target, false)?;
        let identity = identity.ok_or(Damage { what: describe(&target), reason: "attribute of no file" })?;
        let opened = self.keys().xattrs.decode_value(identity.owner(), name.as_bytes(), &value);
        let value = opened
            .map_err(|_| Damage { what: describe(&target), reason: "attribute does not authenticate" })?;
        match AclKind::of(name) {
            Some(which) => self.present_acl(which, target, value),
            None => Ok(value),
        }
    }

    /// Whether the store has any attribute for the target; none of the vault's if not.
    pub fn has_xattrs(&self, target: Target) -> Result<bool> {
        Ok(match target {
            Target::Entry(dir, name) => dir.store.has_xattrs(&name.0)?,
            _ => target.node()?.has_xattrs()?,
        })
    }

    /// Sets an attribute; `create`/`replace` as XATTR_CREATE and XATTR_REPLACE.
    ///
    /// # Errors
    /// `NotSupported` for what cannot have attributes, and for a name in no namespace of xattr(7);
    /// `Invalid` for a namespace alone, and for an ACL that is none; `NameTooLong`; `NoAttribute` and EEXIST as the flags ask; ENOSPC or
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

    /// Sets an attribute, whether there is one or not.
    pub(super) fn put_xattr(&self, target: Target, name: &OsStr, value: &[u8]) -> Result<()> {
        self.store_xattr(target, name, value, XattrFlags::empty())
    }

    fn store_xattr(&self, target: Target, name: &OsStr, value: &[u8], flags: XattrFlags) -> Result<()> {
        let stored = self.keys().xattrs.encode_name(name.as_bytes()).ok_or(Error::NameTooLong)?;
        let identity = self.identity(&target, true)?;
        let identity = identity.ok_or(Error::NotSupported("attributes of this type of file"))?;
        let value = self.keys().xattrs.encode_value(identity.owner(), name.as_bytes(), value)?;
        let node = target.node()?;
        node.set_xattr(OsStr::new(&stored), &value, flags).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::NODATA) => Error::NoAttribute,
            _ => e.into(),
        })?;
        self.files.changed(key(&node.stat()?));
        Ok(())
    }

    /// The stored names of the vault's attributes, each with the name that it stands for; none if it does not authenticate.
    pub(super) fn attribute_names(&self, target: Target) -> Result<Vec<(OsString, Option<OsString>)>> {
        let mut stored = target.node()?.list_xattr()?;
        stored.retain(|name| name.as_bytes().starts_with(PREFIX.as_bytes()) && !is_reserved(name.as_bytes()));
        let decoded = |stored: OsString| {
            let name = self.keys().xattrs.decode_name(stored.as_bytes()).ok().map(OsString::from_vec);
            (stored, name)
        };
        Ok(stored.into_iter().map(decoded).collect())
    }

    /// Names of the attributes; what is not the vault's, or does not authenticate, is left out.
    pub fn list_xattr(&self, target: Target) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for (stored, name) in self.attribute_names(target)? {
            match name {
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
        let stored = self.keys().xattrs.encode_name(name.as_bytes()).ok_or(Error::NoAttribute)?;
        let node = target.node()?;
        if !node.remove_xattr(OsStr::new(&stored))? {
            return Err(Error::NoAttribute);
        }
        self.files.changed(key(&node.stat()?));
        Ok(())
    }

    /// What attributes of the target are bound to; `None` for a file that has no salt yet (and gets none
    /// because `create` is false), and for what is neither a file nor a directory.
    fn identity(&self, target: &Target, create: bool) -> Result<Option<Identity>> {
        let of_dir = |dir: &Dir| Ok(Some(Identity::Dir(*dir.id()?)));
        match target {
            Target::Dir(dir) => return of_dir(dir),
            Target::Entry(parent, name) => match self.stat(*target)?.kind {
                Kind::Dir => return of_dir(&*self.open_dir(parent, name)?),
                Kind::File => {}
                _ => return Ok(None),
            },
            Target::File(_) => {}
        }
        let salt = match target {
            Target::File(file) => file.file.salt(false)?,
            Target::Entry(parent, name) => self.open_file(parent, name, false)?.file.salt(false)?,
            Target::Dir(_) => None,
        };
        let salt = match salt {
            None if create => self.open_for_writing(target)?.file.salt(true)?,
            found => found,
        };
        Ok(salt.map(Identity::File))
    }
}

/// The target in the store, for a log line.
fn describe(target: &Target) -> String {
    match target {
        Target::Dir(dir) => dir.stored_path(OsStr::new("")),
        Target::Entry(dir, name) => dir.stored_path(&name.0),
        Target::File(file) => format!("inode {}", file.key.1),
    }
}

/// Refuses new names that no other filesystem would take: the kernel asks FUSE for every name.
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
