//! What a request wants to make: the mode is applied here, because a default ACL may take the umask's place.

use super::caller::Caller;
use crate::vault::{Acl, NewNode};

/// A node that a request wants to make.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Wanted {
    /// A node with this mode, by the process that asks.
    pub fn by(caller: Caller, mode: u32, umask: u32) -> Self {
        Wanted { mode: mode & 0o7777, umask, uid: caller.user, gid: caller.group }
    }

    /// The node in a directory with this default ACL, if it has one: that takes the place of the umask.
    pub fn under(self, default_acl: Option<&Acl>) -> NewNode<'_> {
        let Wanted { mode, umask, uid, gid } = self;
        NewNode { mode: if default_acl.is_some() { mode } else { mode & !umask }, uid, gid, default_acl }
    }
}
