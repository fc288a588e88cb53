//! Parameters of a node to be created. The mode is applied here, because a default ACL may replace the
//! umask.

use super::{caller::Caller, owners::Owners};
use format::acl::Acl;
use vault::NewNode;

/// A node that a request wants to create.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Wanted {
    /// Creates the parameters for a node with this mode, owned by the caller.
    pub fn by(caller: Caller, mode: u32, umask: u32) -> Self {
        Wanted { mode: mode & 0o7777, umask, uid: caller.user, gid: caller.group }
    }

    /// Applies the parent directory's default ACL, if it has one, instead of the umask. The node gets the
    /// owner that the mount shows.
    pub fn under(self, default_acl: Option<&Acl>, owners: Owners) -> NewNode<'_> {
        let Wanted { mode, umask, uid, gid } = self;
        let mode = owners.stored_mode(if default_acl.is_some() { mode } else { mode & !umask });
        let (uid, gid) = owners.instead_of(uid, gid);
        NewNode { mode, uid, gid, default_acl }
    }
}
