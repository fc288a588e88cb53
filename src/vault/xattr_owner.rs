//! What an extended attribute belongs to: what its value is bound to, and under which name the store has it.

use super::{Error, Key, Kind, OpenFile, Result, Target, Vault, acl::AclKind, attr::key, keys::Keys};
use crate::{
    format::{
        dir_id::DirId,
        xattr::{Owner, PREFIX, SPECIAL, from_others, is_reserved, of_others},
    },
    store::Node,
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

/// What an attribute is bound to.
pub(super) enum Identity {
    File([u8; 32]),
    Dir(DirId),
    Link(OsString),
    Special([u8; SPECIAL]),
}

impl Identity {
    /// As the format has it.
    pub(super) fn owner(&self) -> Owner<'_> {
        match self {
            Identity::File(salt) => Owner::File(salt),
            Identity::Dir(id) => Owner::Dir(id),
            Identity::Link(stored) => Owner::Link(stored.as_bytes()),
            Identity::Special(known) => Owner::Special(known),
        }
    }

    /// Whether it can have an attribute of this name.
    ///
    /// # Errors
    /// `NotSupported` for an ACL that it cannot have; EPERM, as on every filesystem of Linux, for another name.
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

/// Whether it is neither a file nor a directory: its attributes have other names in the store.
pub(super) fn is_other(node: &Node) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(node.stat()?.st_mode);
    Ok(!matches!(kind, FileType::RegularFile | FileType::Directory))
}

/// What a stored name is on files and directories, if it is that of an attribute of the vault's.
pub(super) fn common_name(stored: &OsStr, others: bool) -> Option<Vec<u8>> {
    let common = if others { from_others(stored.as_bytes())? } else { stored.as_bytes().to_vec() };
    (common.starts_with(PREFIX.as_bytes()) && !is_reserved(&common)).then_some(common)
}

impl Vault {
    /// The stored name of a node's attribute; `None` for one that is too long, or none.
    pub(super) fn stored_attribute(&self, node: &Node, name: &OsStr) -> Result<Option<String>> {
        Ok(stored_under(&self.keys(), name, is_other(node)?))
    }

    /// The sealed value of a node's attribute, under whichever key; `None` if there is none.
    pub(super) fn stored_value(&self, node: &Node, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let (others, present) = (is_other(node)?, self.keys());
        let value = |keys: &Keys| match stored_under(keys, name, others) {
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

    /// Puts a directory's attributes under the present key if a rotation did not yet.
    pub(super) fn renew_target(&self, target: &Target) -> Result<()> {
        if let Target::Entry(parent, name) = target
            && self.is_rotating()
            && self.stat(*target)?.kind == Kind::Dir
        {
            self.open_dir(parent, name)?;
        }
        Ok(())
    }

    /// What attributes of the target's `node` are bound to; `None` for a file that has no salt yet, or a directory without an id,
    /// that gets none because `create` is false.
    ///
    /// # Errors
    /// ESTALE if another machine gave the name to another node meanwhile: what is bound to one must not come to the other.
    pub(super) fn identity(&self, target: &Target, node: &Node, create: bool) -> Result<Option<Identity>> {
        match target {
            Target::Dir(dir) if create => Ok(Some(Identity::Dir(*dir.id()?))),
            Target::Dir(dir) => Ok(dir.id.map(Identity::Dir)),
            Target::File(file) => {
                file.file.refresh()?;
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

/// Whether what was opened by a name is the node that was found under it.
fn require_same(opened: Key, found: &RawStat) -> Result<()> {
    if opened == key(found) { Ok(()) } else { Err(Errno::STALE.into()) }
}

/// The stored name of an attribute under these keys.
fn stored_under(keys: &Keys, name: &OsStr, others: bool) -> Option<String> {
    let stored = keys.xattrs.encode_name(name.as_bytes());
    if others { stored.as_deref().map(of_others) } else { stored }
}

/// What a special file is known by; `None` for another node.
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
