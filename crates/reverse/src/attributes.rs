//! Extended attributes in their stored form, including POSIX ACLs.
//!
//! They appear under the same stored names as in every copy of a store, so `rsync -X` copies ACLs, too.

use super::view::{View, ViewNode};
use format::{
    dir_id::DirId,
    xattr::{ACL_ACCESS, ACL_DEFAULT, Owner, from_others, of_others},
};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// The attribute that holds the mode of a stored node whose stored mode is marked.
const STORED_MODE: &str = "user.warpcrypt.mode.behind";

/// The identity of a node that its attributes are bound to.
enum AttributeOwner {
    File([u8; 32]),
    Dir(DirId),
    Link(String),
}

impl AttributeOwner {
    fn owner(&self) -> Owner<'_> {
        match self {
            AttributeOwner::File(salt) => Owner::File(salt),
            AttributeOwner::Dir(id) => Owner::Dir(id),
            AttributeOwner::Link(target) => Owner::Link(target.as_bytes()),
        }
    }
}

impl View {
    /// The stored names of a node's attributes. Attributes without a stored form are left out, and so are
    /// those of special files.
    ///
    /// # Errors
    /// Errors of the plain directory.
    pub fn attributes(&self, node: &ViewNode) -> io::Result<Vec<OsString>> {
        let Some((path, stat, identity)) = self.identity(node)? else { return Ok(Vec::new()) };
        let stored = |name: OsString| {
            let stored = Some(name.as_bytes()).filter(|name| is_kept(name));
            let stored = stored.and_then(|name| self.keys.attributes.encode_name(name))?;
            Some(if matches!(identity, AttributeOwner::Link(_)) { of_others(&stored) } else { stored }.into())
        };
        let mut all: Vec<OsString> = self.plain.attributes(path)?.into_iter().filter_map(stored).collect();
        all.extend(stored_mode(&stat).map(|_| STORED_MODE.into()));
        Ok(all)
    }

    /// The stored value of the attribute with this stored name.
    ///
    /// # Errors
    /// ENODATA if there is none, or errors of the plain directory.
    pub fn attribute(&self, node: &ViewNode, stored: &OsStr) -> io::Result<Vec<u8>> {
        let (path, stat, identity) = self.identity(node)?.ok_or(Errno::NODATA)?;
        if stored == STORED_MODE {
            return stored_mode(&stat).ok_or(Errno::NODATA.into());
        }
        let common = match identity {
            AttributeOwner::Link(_) => from_others(stored.as_bytes()).ok_or(Errno::NODATA)?,
            AttributeOwner::File(_) | AttributeOwner::Dir(_) => stored.as_bytes().to_vec(),
        };
        let name = self.keys.attributes.decode_name(&common).map_err(|_| Errno::NODATA)?;
        if !is_kept(&name) {
            return Err(Errno::NODATA.into());
        }
        let value = self.plain.attribute(path, OsStr::from_bytes(&name))?;
        Ok(self.keys.attribute(identity.owner(), &name, &value))
    }

    /// The plain path, status and identity of a node that can have attributes; `None` for other nodes.
    fn identity<'a>(&self, node: &'a ViewNode) -> io::Result<Option<(&'a Path, Stat, AttributeOwner)>> {
        let ViewNode::Plain(path) = node else { return Ok(None) };
        let stat = self.plain.stat(path)?;
        let identity = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => AttributeOwner::File(self.salt(path, &stat)),
            FileType::Directory => AttributeOwner::Dir(self.keys.dir_id(path.as_os_str().as_bytes())),
            FileType::Symlink => AttributeOwner::Link(self.target(path)?),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(None),
        };
        Ok(Some((path, stat, identity)))
    }
}

/// The value which says that a mode means itself. Without it, a sticky bit on a stored file or a
/// set-user-id bit on a stored directory would mark a mode kept elsewhere.
fn stored_mode(stat: &Stat) -> Option<Vec<u8>> {
    let mark = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => libc::S_ISVTX,
        FileType::Directory => libc::S_ISUID,
        _ => 0,
    };
    let mode = stat.st_mode & 0o7777;
    (mode & mark != 0).then(|| format!("{mode:o}={mode:o}").into_bytes())
}

/// Whether a vault keeps attributes with this name. In the `system.` namespace it keeps only ACLs.
fn is_kept(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || [ACL_ACCESS, ACL_DEFAULT].contains(&name)
}
