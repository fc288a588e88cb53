//! Putting extended attributes under another key: under another name in the store or, for ACLs, under
//! the same one.

use crate::{
    keys::NamespaceKeys,
    xattr_owner::{common_name, is_other},
};
use content::Result;
use format::xattr::{Owner, of_others};
use rustix::{fs::XattrFlags, io::Errno};
use std::{
    ffi::{OsStr, OsString},
    io,
};
use store::Node;

/// The former keys and the present ones.
pub(super) type BothKeys<'a> = (&'a NamespaceKeys, &'a NamespaceKeys);

/// Puts the attributes of a node under the present key. An attribute that does not authenticate stays
/// unchanged.
///
/// # Errors
/// The store's.
pub(super) fn renew(node: &Node, owner: Owner, (former, present): BothKeys) -> Result<()> {
    let others = is_other(node)?;
    for stored in own(node.list_xattr()?, others) {
        let Some(value) = node.get_xattr(&stored.name)? else { continue };
        let Some((name, content)) = open(former, owner, &stored, &value) else { continue };
        let sealed = present.xattrs.encode_value(owner, &name, &content)?;
        let Some(new) = present.xattrs.encode_name(&name).map(|new| stored_name(new, others)) else {
            continue;
        };
        if new == stored.name {
            node.set_xattr(&new, &sealed, XattrFlags::empty())?;
        } else {
            exchange(node, (&stored.name, &value), (&new, &sealed))?;
        }
    }
    Ok(())
}

/// Whether a node has any attribute under the former key.
///
/// # Errors
/// The store's.
pub(super) fn any(node: &Node, owner: Owner, former: &NamespaceKeys) -> Result<bool> {
    for stored in own(node.list_xattr()?, is_other(node)?) {
        if let Some(value) = node.get_xattr(&stored.name)?
            && open(former, owner, &stored, &value).is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the attributes of one node to another, under the present key.
///
/// # Errors
/// The store's.
pub(super) fn copy(
    from: &Node,
    owner: Owner,
    to: &Node,
    new_owner: Owner,
    (former, present): BothKeys,
) -> Result<()> {
    for stored in own(from.list_xattr()?, true) {
        let Some(value) = from.get_xattr(&stored.name)? else { continue };
        let opened = open(former, owner, &stored, &value);
        let Some((name, content)) = opened.or_else(|| open(present, owner, &stored, &value)) else {
            continue;
        };
        let Some(new) = present.xattrs.encode_name(&name).map(|new| stored_name(new, true)) else { continue };
        to.set_xattr(&new, &present.xattrs.encode_value(new_owner, &name, &content)?, XattrFlags::empty())?;
    }
    Ok(())
}

/// One of the vault's attributes.
struct StoredAttribute {
    name: OsString,
    /// Its name in the form used on files and directories.
    common: Vec<u8>,
}

fn own(listed: Vec<OsString>, others: bool) -> impl Iterator<Item = StoredAttribute> {
    listed.into_iter().filter_map(move |name| {
        let common = common_name(&name, others)?;
        Some(StoredAttribute { name, common })
    })
}

/// Plaintext name and value under these keys.
fn open(
    keys: &NamespaceKeys,
    owner: Owner,
    stored: &StoredAttribute,
    value: &[u8],
) -> Option<(Vec<u8>, Vec<u8>)> {
    let name = keys.open_attribute_name(&stored.common).ok()?;
    let content = keys.open_attribute(owner, &name, value).ok()?;
    Some((name, content))
}

fn stored_name(name: String, others: bool) -> OsString {
    if others { of_others(&name).into() } else { name.into() }
}

/// Replaces `old` by `new`. If the store has no room for both, the old one is removed first. If the
/// machine stops in between, the attribute is lost.
fn exchange(node: &Node, old: (&OsStr, &[u8]), new: (&OsStr, &[u8])) -> io::Result<()> {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::TOOBIG];
    match node.set_xattr(new.0, new.1, XattrFlags::empty()) {
        Err(e) if Errno::from_io_error(&e).is_some_and(|e| full.contains(&e)) => {
            node.remove_xattr(old.0)?;
            node.set_xattr(new.0, new.1, XattrFlags::empty())
                .inspect_err(|_| drop(node.set_xattr(old.0, old.1, XattrFlags::empty())))
        }
        set => {
            set?;
            node.remove_xattr(old.0).map(|_| ())
        }
    }
}
