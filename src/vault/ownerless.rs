//! Attributes without an owner: values that are bound to the salt of a file, or to the id of a directory, that a power cut took
//! before it was durable. Nothing opens them any more, and they count as absent. They go before their node gets another
//! identity, which they would not authenticate for.

use super::xattr_owner::common_name;
use crate::{format::xattr::STORED_ACCESS, store::BackingFile};
use std::{ffi::OsStr, io};

/// Rights of the group.
const GROUP: u32 = 0o070;

/// Removes the vault's attributes of a stored file or directory without an identity, durably. If it had an ACL, the group loses its
/// rights: they were the mask's.
///
/// # Errors
/// The store's; then it can be called again.
pub(super) fn drop_ownerless(node: &dyn BackingFile) -> io::Result<()> {
    let mut names = node.attribute_names()?;
    names.retain(|name| common_name(name, false).is_some());
    let Some(first) = names.first() else { return Ok(()) };
    if names.iter().any(|name| name == OsStr::new(STORED_ACCESS)) {
        match node.forbid(GROUP) {
            // Another user's.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            done => done?,
        }
    }
    let removed = names.iter().try_for_each(|name| node.remove_attribute(name));
    let durable = removed.and_then(|()| node.sync_whole());
    // If it fails, the next one has to find that there is something to make durable.
    durable.inspect_err(|_| drop(node.set_attribute(first, b"")))?;
    log::warn!("{} attributes of what was never durable are dropped", names.len());
    Ok(())
}
