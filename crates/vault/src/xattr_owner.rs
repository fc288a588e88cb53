//! The identity that an extended attribute's value is bound to, and the name under which the store has
//! the attribute.

use super::{Key, Kind, OpenFile, Target, Vault, acl::AclKind, attr::key, keys::NamespaceKeys};
use content::{Error, Result};
use format::{
    dir_id::DirId,
    xattr::{Owner, PREFIX, SPECIAL, from_others, is_reserved, of_others},
};
use rustix::{
    fs::{FileType, Stat as RawStat, major, minor},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
};
use store::Node;

/// The identity that an attribute is bound to.
pub(super) enum Identity {
    File([u8; 32]),
    Dir(DirId),
    Link(OsString),
    Special([u8; SPECIAL]),
}

impl Identity {
    /// Converts to the owner type of the stored format.
    pub(super) fn owner(&self) -> Owner<'_> {
        match self {
            Identity::File(salt) => Owner::File(salt),
            Identity::Dir(id) => Owner::Dir(id),
            Identity::Link(stored) => Owner::Link(stored.as_bytes()),
            Identity::Special(known) => Owner::Special(known),
        }
    }

    /// Checks that the node can have an attribute of this name.
    ///
    /// # Errors
    /// `NotSupported` for an ACL that it cannot have; EPERM for another name, as on every Linux
    /// filesystem.
    pub(super) fn allows(&self, name: &OsStr) -> Result<()> {
        match self {
            Identity::File(_) | Identity::Dir(_) => Ok(()),
            Identity::Link(_) | Identity::Special(_) if AclKind::of(name).is_some() => {
                Err(Error::NotSupported("ACLs of this type of file"))
            }
            Identity::Link(_) | Identity::Special(_) if name.as_bytes().starts_with(b"user.") => {
                Err(Errno::PERM.into())
            }
            Identity::Link(_) | Identity::Special(_) => Ok(()),
        }
    }
}

/// Whether the node is neither a file nor a directory. The attributes of such nodes have other names in
/// the store.
pub(super) fn is_other(node: &Node) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(node.stat()?.st_mode);
    Ok(!matches!(kind, FileType::RegularFile | FileType::Directory))
}

/// Converts a stored name to the form used on files and directories. `None` if it is not the name of one
/// of the vault's attributes. `others` says that the node is neither a file nor a directory.
pub(super) fn common_name(stored: &OsStr, others: bool) -> Option<Vec<u8>> {
    let common = if others { from_others(stored.as_bytes())? } else { stored.as_bytes().to_vec() };
    (common.starts_with(PREFIX.as_bytes()) && !is_reserved(&common)).then_some(common)
}

impl Vault {
    /// The stored name of a node's attribute; `None` if the name is too long or empty.
    pub(super) fn stored_attribute(&self, node: &Node, name: &OsStr) -> Result<Option<String>> {
        Ok(stored_under(&self.keys(), name, is_other(node)?))
    }

    /// The sealed value of a node's attribute, under the present or the former key; `None` if there is
    /// none.
    pub(super) fn stored_value(&self, node: &Node, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let (others, present) = (is_other(node)?, self.keys());
        let value = |keys: &NamespaceKeys| match stored_under(keys, name, others) {
            Some(stored) => node.get_xattr(OsStr::new(&stored)),
            None => Ok(None),
        };
        let found = value(&present)?;
        let Some(former) = self.keys.former().filter(|_| found.is_none()) else { return Ok(found) };
        Ok(match value(&former.keys)? {
            None => value(&present)?, // It may have been renewed just now.
            found => found,
        })
    }

    /// Puts a directory's attributes under the present key if a rotation has not done so yet.
    pub(super) fn renew_target(&self, target: &Target) -> Result<()> {
        if let Target::Entry(parent, name) = target
            && self.is_rotating()
            && self.stat(*target)?.kind == Kind::Dir
        {
            self.open_dir(parent, name)?;
        }
        Ok(())
    }

    /// The identity of the target's `node`. If a file has no salt, or a directory no id, `create` gives
    /// it one; without `create` the result is `None`.
    ///
    /// # Errors
    /// ESTALE if another machine gave the name to another node meanwhile: attributes of one node must
    /// not be applied to the other.
    pub(super) fn identity(&self, target: &Target, node: &Node, create: bool) -> Result<Option<Identity>> {
        match target {
            Target::Dir(dir) if create => Ok(Some(Identity::Dir(*dir.id()?))),
            Target::Dir(dir) => Ok(dir.id.map(Identity::Dir)),
            Target::File(file) => {
                file.file.lease().refresh()?;
                self.identity_of_file(file, create)
            }
            Target::Entry(parent, name) => {
                let raw = node.stat()?;
                let kind = Kind::from_store(FileType::from_raw_mode(raw.st_mode));
                match kind.ok_or(Error::NotSupported("unknown type of file"))? {
                    Kind::Dir => {
                        let dir = self.open_dir(parent, name)?;
                        require_same(key(&dir.store.itself().stat()?), &raw)?;
                        self.identity(&Target::Dir(&dir), node, create)
                    }
                    Kind::File => {
                        let file = self.open_file(parent, name, false)?;
                        require_same(file.key, &raw)?;
                        self.identity_of_file(&file, create)
                    }
                    Kind::Symlink => Ok(Some(Identity::Link(node.readlink()?))),
                    Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                        Ok(special(&raw).map(Identity::Special))
                    }
                }
            }
        }
    }

    fn identity_of_file(&self, file: &OpenFile, create: bool) -> Result<Option<Identity>> {
        let salt = match file.file.salt(false)? {
            None if create => {
                let open = self.open_for_writing(&Target::File(file))?;
                let salt = open.file.salt(true)?;
                self.files.give_back(&open)?;
                salt
            }
            found => found,
        };
        Ok(salt.map(Identity::File))
    }
}

/// Fails with ESTALE unless the node that was opened by name is the one that was found under the name.
fn require_same(opened: Key, found: &RawStat) -> Result<()> {
    if opened == key(found) { Ok(()) } else { Err(Errno::STALE.into()) }
}

/// The stored name of an attribute under these keys.
fn stored_under(keys: &NamespaceKeys, name: &OsStr, others: bool) -> Option<String> {
    let stored = keys.xattrs.encode_name(name.as_bytes());
    if others { stored.as_deref().map(of_others) } else { stored }
}

/// The bytes that identify a special file: type and device number. `None` for other nodes.
pub(super) fn special(raw: &RawStat) -> Option<[u8; SPECIAL]> {
    let letter = match FileType::from_raw_mode(raw.st_mode) {
        FileType::Fifo => b'p',
        FileType::Socket => b's',
        FileType::CharacterDevice => b'c',
        FileType::BlockDevice => b'b',
        FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => return None,
    };
    let mut known = [letter; SPECIAL];
    known[1..5].copy_from_slice(&major(raw.st_rdev).to_be_bytes());
    known[5..].copy_from_slice(&minor(raw.st_rdev).to_be_bytes());
    Some(known)
}
