//! Attributes without an owner: their values are bound to the salt of a file, or the id of a directory,
//! that a power cut took before it was durable. Nothing can open them any more, and they count as
//! absent. They are removed before their node gets another identity, because they would not authenticate
//! for it.

use super::xattr_owner::common_name;
use format::xattr::STORED_ACCESS;
use std::{ffi::OsStr, io};
use store::BackingFile;

/// Permission bits of the group.
const GROUP: u32 = 0o070;

/// Durably removes the vault's attributes of a stored file or directory that has no identity. If it had
/// an ACL, the group loses its permissions, because its bits were the ACL's mask.
///
/// # Errors
/// The store's. The call can then be repeated.
pub(super) fn drop_ownerless(node: &dyn BackingFile) -> io::Result<()> {
    let mut names = node.attribute_names()?;
    names.retain(|name| common_name(name, false).is_some());
    let Some(first) = names.first() else { return Ok(()) };
    if names.iter().any(|name| name == OsStr::new(STORED_ACCESS)) {
        match node.forbid(GROUP) {
            // The node belongs to another user.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            done => done?,
        }
    }
    let removed = names.iter().try_for_each(|name| node.remove_attribute(name));
    let durable = removed.and_then(|()| node.sync_whole());
    // If this fails, an attribute is put back so that the next call sees that the removal is not
    // durable yet.
    durable.inspect_err(|_| drop(node.set_attribute(first, b"")))?;
    log::warn!("removed {} attributes of a file that never became durable", names.len());
    Ok(())
}
