//! Requests on nodes: attributes, link targets, extended attributes.

use super::{
    attr,
    caller::Caller,
    errno,
    inodes::{self, Node},
    permission_policy,
    server::Server,
};
use content::{Error, Result};
use format::acl::Acl;
use fuser::AccessFlags;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    sync::{Arc, atomic::Ordering},
};
use vault::{AclKind, Dir, Kind, OpenFile, SetAttr, Stat, StatFs, Target};

/// The extended attribute that holds file capabilities (capabilities(7)).
const CAPABILITY: &str = "security.capability";

/// Preferred way to reach a node for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefer {
    OpenFile,
    Name,
}

/// A size change in progress. It waits for a running preload, and prevents new ones.
struct ResizeGuard(Arc<Node>);

impl ResizeGuard {
    fn begin(node: Arc<Node>) -> ResizeGuard {
        node.in_use.lock().cut();
        ResizeGuard(node)
    }
}

impl Drop for ResizeGuard {
    fn drop(&mut self) {
        self.0.in_use.lock().cut_done();
    }
}

impl Server {
    /// Returns a node's attributes; the last known ones if it is unlinked and not open.
    pub fn getattr(&self, number: u64, handle: Option<u64>) -> Result<Stat> {
        if let Some(handle) = self.file_of(number, handle) {
            return self.vault.stat(Target::File(&handle));
        }
        let node = self.inodes.get(number)?;
        if node.kind == Kind::Dir {
            return self.stat_dir(&node);
        }
        let answer = self.with_target(&node, Prefer::OpenFile, |target| self.vault.stat(target));
        match answer {
            // Possible only if another process writes: the kernel looks the name up again.
            Ok(stat) if inodes::key(&stat) != node.key => Err(errno::stale()),
            Err(e) if errno::is_no_entry(&e) => node.names.read().gone().copied().ok_or(e),
            other => other,
        }
    }

    /// Checks whether root may access a node in the `wanted` way.
    pub fn access(&self, number: u64, wanted: AccessFlags) -> Result<()> {
        permission_policy::root_may(&self.getattr(number, None)?, wanted)
    }

    /// Changes attributes and returns the new ones.
    pub fn setattr(
        &self,
        number: u64,
        handle: Option<u64>,
        changes: SetAttr,
        caller: Caller,
    ) -> Result<Stat> {
        self.writable()?;
        let _cut = match changes.size {
            Some(_) => Some(ResizeGuard::begin(self.inodes.get(number)?)),
            None => None,
        };
        let cut = changes.size == Some(0);
        let changed = self.change(number, handle, changes, caller);
        if changes.size.is_some() && changed.is_ok() {
            // The kernel uses the size that it requested.
            self.inodes.get(number)?.kernel_size.by_file();
        }
        if changed.is_err() {
            // The change may have been carried out in part.
            self.attributes_changed(number);
        }
        if cut && changed.is_ok() {
            self.inodes.get(number)?.emptied();
        }
        changed
    }

    fn change(&self, number: u64, handle: Option<u64>, mut changes: SetAttr, caller: Caller) -> Result<Stat> {
        if let Some(file) = self.file_of(number, handle) {
            self.drop_privileges(&mut changes, caller, || self.vault.stat(Target::File(&file)))?;
            self.owners.admit(Kind::File, &mut changes)?;
            return self.vault.set_attr(Target::File(&file), &changes);
        }
        let node = self.inodes.get(number)?;
        self.drop_privileges(&mut changes, caller, || self.getattr(number, None))?;
        self.owners.admit(node.kind, &mut changes)?;
        if let Some(stat) = self.change_gone(&node, &changes)? {
            return Ok(stat);
        }
        if node.kind == Kind::Dir {
            return self.vault.set_attr(Target::Dir(&*self.dir(number)?), &changes);
        }
        // Another program's handle may have lost its lease, and would then truncate nothing.
        let by_name = self.vault.is_shared() && changes.size.is_some();
        let prefer = if by_name { Prefer::Name } else { Prefer::OpenFile };
        self.with_target(&node, prefer, |target| self.vault.set_attr(target, &changes))
    }

    /// Changes the attributes of a node that is unlinked but still open. `None` for any other node, and
    /// for files, which have a handle.
    fn change_gone(&self, node: &Node, changes: &SetAttr) -> Result<Option<Stat>> {
        if node.kind == Kind::File || node.names.read().gone().is_none() {
            return Ok(None);
        }
        let mut names = node.names.write();
        let Some(pin) = names.pin() else { return Ok(None) };
        let stat = self.vault.set_attr_of(pin, changes)?;
        names.changed(&stat);
        Ok(names.gone().copied())
    }

    /// Returns the target of a symbolic link.
    pub fn readlink(&self, number: u64) -> Result<OsString> {
        let node = self.inodes.get(number)?;
        self.with_name(&node, |dir, name| self.vault.readlink(dir, name))
    }

    /// Sets an extended attribute; `flags` are those of setxattr(2).
    pub fn setxattr(
        &self,
        number: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        caller: Caller,
    ) -> Result<()> {
        self.writable()?;
        let create = flags & libc::XATTR_CREATE != 0;
        let replace = flags & libc::XATTR_REPLACE != 0;
        let node = self.inodes.get(number)?;
        let mut bare = node.bare.write();
        *bare = false;
        node.capable.store(true, Ordering::Relaxed);
        self.with_node(&node, Prefer::Name, |target| {
            self.vault.set_xattr(target, name, value, create, replace)?;
            if AclKind::of(name) == Some(AclKind::Access) {
                self.acl_was_set(number, target, caller)?;
            }
            Ok(())
        })
    }

    /// A caller outside the file's group loses set-group-id with a new ACL, as with chmod(2). The ACL has
    /// also changed the mode, and a kernel that does not enforce ACLs does not know that.
    fn acl_was_set(&self, number: u64, target: Target, caller: Caller) -> Result<()> {
        let stat = self.owners.shown(&self.vault.stat(target)?);
        let set_gid = stat.mode & libc::S_ISGID != 0;
        if set_gid && !caller.is_in(stat.gid) && !caller.keeps_set_id() {
            let mode = Some(stat.mode & !libc::S_ISGID);
            self.vault.set_attr(target, &SetAttr { mode, ..SetAttr::default() })?;
        }
        self.attributes_changed(number);
        Ok(())
    }

    /// Returns the default ACL of a directory.
    pub fn default_acl(&self, number: u64, dir: &Dir) -> Result<Option<Acl>> {
        if self.is_bare(&*self.inodes.get(number)?)? { Ok(None) } else { self.vault.default_acl(dir) }
    }

    /// Removes the file capabilities of a file that is being written to by any user, because they were
    /// granted to its previous content. The kernel does that itself for cached writes, and leaves it to
    /// us for direct writes.
    pub fn take_capabilities(&self, node: &Node) -> Result<()> {
        if !node.capable.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bare = node.bare.write();
        if !*bare && self.with_node(node, Prefer::OpenFile, |target| self.vault.has_xattrs(target))? {
            let remove = |target: Target| self.vault.remove_xattr(target, OsStr::new(CAPABILITY));
            match self.with_node(node, Prefer::OpenFile, remove) {
                Ok(()) | Err(Error::NoAttribute) => {}
                Err(e) => return Err(e),
            }
        }
        node.capable.store(!self.changes_alone(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the value of an extended attribute.
    pub fn getxattr(&self, number: u64, name: &OsStr) -> Result<Vec<u8>> {
        let node = self.inodes.get(number)?;
        // Other attributes in `system.` are refused even if the node has no attributes.
        let refused = name.as_bytes().starts_with(b"system.") && AclKind::of(name).is_none();
        if !refused && self.is_bare(&node)? {
            return Err(Error::NoAttribute);
        }
        self.with_node(&node, Prefer::OpenFile, |target| self.vault.get_xattr(target, name))
    }

    /// Returns the names of the extended attributes that the caller may see, each followed by a zero
    /// byte.
    pub fn listxattr(&self, number: u64, caller: Caller) -> Result<Vec<u8>> {
        let node = self.inodes.get(number)?;
        if self.is_bare(&node)? {
            return Ok(Vec::new());
        }
        let mut names = self.with_node(&node, Prefer::OpenFile, |target| self.vault.list_xattr(target))?;
        let is_trusted = |name: &OsString| name.as_bytes().starts_with(b"trusted.");
        if names.iter().any(is_trusted) && !caller.sees_trusted() {
            names.retain(|name| !is_trusted(name));
        }
        let mut joined = Vec::new();
        for name in names {
            joined.extend_from_slice(name.as_bytes());
            joined.push(0);
        }
        Ok(joined)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, number: u64, name: &OsStr) -> Result<()> {
        self.writable()?;
        let node = self.inodes.get(number)?;
        self.with_node(&node, Prefer::Name, |target| self.vault.remove_xattr(target, name))
    }

    /// Whether a node has no extended attributes at all. The answer is cached while only this mount sets
    /// attributes.
    fn is_bare(&self, node: &Node) -> Result<bool> {
        // The attributes of pipes and links can only be reached by name.
        let is_gone = || node.names.read().gone().is_some();
        if *node.bare.read() || !matches!(node.kind, Kind::File | Kind::Dir) && is_gone() {
            return Ok(true);
        }
        let mut bare = node.bare.write();
        let none = !self.with_node(node, Prefer::OpenFile, |target| self.vault.has_xattrs(target))?;
        *bare = none && self.changes_alone();
        Ok(none)
    }

    /// Returns the space of the store.
    pub fn statfs(&self) -> Result<StatFs> {
        self.vault.statfs()
    }

    fn stat_dir(&self, node: &Node) -> Result<Stat> {
        if let Some(gone) = node.names.read().gone() {
            return Ok(*gone);
        }
        self.vault.stat(Target::Dir(&*self.dir(node.number)?))
    }

    /// The file behind a handle that the kernel sent with a request on `number`.
    fn file_of(&self, number: u64, handle: Option<u64>) -> Option<Arc<OpenFile>> {
        let handle = self.handles.file(handle?).ok()?;
        (handle.node.number == number).then_some(handle.file)
    }

    fn with_node<T>(&self, node: &Node, prefer: Prefer, work: impl FnOnce(Target) -> Result<T>) -> Result<T> {
        match node.kind {
            Kind::Dir => work(Target::Dir(&*self.dir(node.number)?)),
            _ => self.with_target(node, prefer, work),
        }
    }

    /// Calls `work` with a node's open file or with one of its names. A node without a name has only the
    /// open file.
    fn with_target<T>(
        &self,
        node: &Node,
        prefer: Prefer,
        work: impl FnOnce(Target) -> Result<T>,
    ) -> Result<T> {
        let nameless = || node.names.read().any().is_none();
        if node.kind == Kind::File
            && (prefer == Prefer::OpenFile || nameless())
            && let Some(file) = self.open_file(node.key)
        {
            return work(Target::File(&file));
        }
        self.with_name(node, |dir, name| work(Target::Entry(dir, name)))
    }

    /// A change of size or owner clears set-user-id and set-group-id, as a write does.
    fn drop_privileges(
        &self,
        changes: &mut SetAttr,
        caller: Caller,
        stat: impl FnOnce() -> Result<Stat>,
    ) -> Result<()> {
        let drops = changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some();
        if !drops || changes.mode.is_some() {
            return Ok(());
        }
        let now = stat()?;
        if now.kind == Kind::Dir || now.kind == Kind::Symlink {
            return Ok(());
        }
        let mode = attr::without_privileges(now.mode, || caller.is_in(now.gid));
        if mode.is_some() && !caller.keeps_set_id() {
            changes.mode = mode;
        }
        Ok(())
    }
}
