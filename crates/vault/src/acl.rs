//! POSIX ACLs. The kernel enforces them; the vault stores them and keeps them in step with the mode.
//! Where the two differ, the mode is authoritative, because chmod(2) changes only the mode.

use super::{Dir, Kind, NewNode, OpenFile, SetAttr, Stat, StoredName, Target, Vault};
use content::{Error, Result};
use format::{
    acl::Acl,
    name::DIR_ID_NAME,
    xattr::{ACL_ACCESS, ACL_DEFAULT},
};
use rustix::io::Errno;
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt};

/// Permission bits of a mode, and those of the group.
const RIGHTS: u32 = 0o777;
const GROUP: u32 = 0o070;

/// The two kinds of ACL that a node can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclKind {
    /// Controls access to the node itself.
    Access,
    /// Inherited by nodes that are created in the directory.
    Default,
}

impl AclKind {
    /// The kind of ACL in the attribute `name`; `None` for any other attribute.
    pub fn of(name: &OsStr) -> Option<Self> {
        match name.as_bytes() {
            ACL_ACCESS => Some(AclKind::Access),
            ACL_DEFAULT => Some(AclKind::Default),
            _ => None,
        }
    }
}

/// The part of a directory's default ACL that a new node inherits.
pub(super) struct Inherited {
    /// Mode until the access ACL is set. If there is one, the group bits are left out: they would grant
    /// the group what the ACL's mask allows named users.
    pub(super) mode: u32,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Inherited {
    /// Computes what a new node of this kind inherits.
    pub(super) fn by(new: &NewNode, kind: Kind) -> Self {
        let Some(default) = new.default_acl.filter(|_| kind != Kind::Symlink) else {
            return Inherited { mode: new.mode, access: None, default: None };
        };
        let access = default.inherited(new.mode);
        if !has_attributes(kind) {
            let mode = new.mode & !RIGHTS | access.mode_alone();
            return Inherited { mode, access: None, default: None };
        }
        let mode = new.mode & !RIGHTS | access.mode();
        let access = Some(access).filter(|access| !access.is_mode());
        Inherited {
            mode: if access.is_some() { mode & !GROUP } else { mode },
            access,
            default: (kind == Kind::Dir).then(|| default.clone()),
        }
    }
}

impl Vault {
    /// Returns the default ACL of a directory; `None` if it has none.
    ///
    /// # Errors
    /// `Damaged`; otherwise the store's error.
    pub fn default_acl(&self, dir: &Dir) -> Result<Option<Acl>> {
        match self.get_xattr(Target::Dir(dir), OsStr::from_bytes(ACL_DEFAULT)) {
            Ok(value) => Ok(Acl::parse(&value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Encodes an ACL as applications see it: `stored`, with the entries that the mode determines taken
    /// from the mode.
    pub(super) fn present_acl(&self, which: AclKind, target: Target, stored: Vec<u8>) -> Result<Vec<u8>> {
        match (which, Acl::parse(&stored)) {
            (AclKind::Access, Some(acl)) => Ok(acl.with_mode(self.stat(target)?.mode & RIGHTS).encode()),
            (AclKind::Default, Some(_)) => Ok(stored),
            (_, None) => Err(Error::Invalid("an ACL that is stored and not valid")),
        }
    }

    /// Sets an ACL and the matching mode. An ACL that is equivalent to a mode is not stored.
    pub(super) fn set_acl(&self, which: AclKind, target: Target, name: &OsStr, value: &[u8]) -> Result<()> {
        let acl = Acl::parse(value).ok_or(Error::Invalid("ACL"))?;
        let stat = self.stat(target)?;
        match (which, stat.kind) {
            (_, Kind::Symlink) => return Err(Error::NotSupported("ACLs of symbolic links")),
            (AclKind::Default, Kind::Dir) => return self.put_xattr(target, name, &acl.encode()),
            (AclKind::Default, _) => return Err(Errno::ACCESS.into()),
            (AclKind::Access, _) => {}
        }
        if !acl.is_mode() && !has_attributes(stat.kind) {
            return Err(Error::NotSupported("ACLs of special files"));
        }
        let mode = stat.mode & !RIGHTS | acl.mode();
        // First take away what the group loses: between the two steps, nobody has rights that they have
        // neither before nor after.
        let least = stat.mode & (mode | !GROUP);
        self.change_mode(target, stat.mode, least)?;
        match (acl.is_mode(), has_attributes(stat.kind)) {
            (true, true) => match self.remove_xattr(target, name) {
                Ok(()) | Err(Error::NoAttribute) => {}
                Err(e) => return Err(e),
            },
            (true, false) => {}
            (false, _) => self.put_xattr(target, name, &acl.encode())?,
        }
        self.change_mode(target, least, mode)
    }

    fn change_mode(&self, target: Target, from: u32, to: u32) -> Result<()> {
        if from != to {
            self.set_attr(target, &SetAttr { mode: Some(to), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Gives a new node the ACLs that it inherits, and returns its new attributes; `None` if they did
    /// not change. On failure, removes the node.
    ///
    /// # Errors
    /// The store's error; the node is removed.
    pub(super) fn give_acls(
        &self,
        inherited: &Inherited,
        parent: &Dir,
        stored: &StoredName,
        file: Option<&OpenFile>,
    ) -> Result<Option<Stat>> {
        let target = file.map_or(Target::Entry(parent, stored), Target::File);
        self.inherit(inherited, target).inspect_err(|_| {
            // Report the first error.
            let _ = parent.store.unlink(&stored.0).or_else(|_| unmake_dir(parent, stored));
        })
    }

    /// Like `give_acls`, for a caller that removes the node itself on failure.
    pub(super) fn inherit(&self, inherited: &Inherited, target: Target) -> Result<Option<Stat>> {
        if let Some(default) = &inherited.default {
            self.put_xattr(target, OsStr::from_bytes(ACL_DEFAULT), &default.encode())?;
        }
        let Some(access) = &inherited.access else { return Ok(None) };
        match self.put_xattr(target, OsStr::from_bytes(ACL_ACCESS), &access.encode()) {
            // The store has no attributes. Leave out the group bits: they would be the mask, not rights
            // of the group.
            Err(Error::NotSupported(_)) => return Ok(None),
            other => other?,
        }
        // Keep the node's own special bits: it may have got set-group-id from the directory, or not have
        // got what was asked for.
        let mode = Some(self.stat(target)?.mode & !RIGHTS | (inherited.mode | access.mode()) & RIGHTS);
        self.set_attr(target, &SetAttr { mode, ..SetAttr::default() }).map(Some)
    }
}

/// Whether the store keeps attributes for nodes of this kind.
fn has_attributes(kind: Kind) -> bool {
    match kind {
        Kind::File | Kind::Dir => true,
        Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => false,
    }
}

/// Removes a directory that was just created.
fn unmake_dir(parent: &Dir, stored: &StoredName) -> io::Result<()> {
    parent.store.open_dir(&stored.0)?.unlink(OsStr::new(DIR_ID_NAME))?;
    parent.store.rmdir(&stored.0)
}
