//! An open vault as a side of a copy.

use super::side::{CopiedAttribute, CopyTarget, New, Room, SYNC_EACH, Side, if_there};
use content::{Segment, Time};
use hashing::{Source, Vaulted};
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
    sync::Arc,
};
use vault::{
    Dir, Kind, NewNode, OpenFile, RenameMode, SetAttr, SetTime, Stat, StoredName, Target as Named, Vault,
};

/// A node of a vault.
pub enum VaultNode {
    /// An open directory.
    Dir(Arc<Dir>),
    /// A name in an open directory.
    Entry(Arc<Dir>, StoredName),
}

impl VaultNode {
    fn named(&self) -> Named<'_> {
        match self {
            VaultNode::Dir(dir) => Named::Dir(dir),
            VaultNode::Entry(dir, name) => Named::Entry(dir, name),
        }
    }

    /// The directory and name of a file or link; EISDIR for a directory.
    fn entry(&self) -> io::Result<(&Arc<Dir>, &StoredName)> {
        match self {
            VaultNode::Dir(_) => Err(Errno::ISDIR.into()),
            VaultNode::Entry(dir, name) => Ok((dir, name)),
        }
    }
}

/// A file being written.
pub struct VaultedFile {
    dir: Arc<Dir>,
    name: StoredName,
    open: Arc<OpenFile>,
}

impl Side for Vaulted {
    type Dir = Arc<Dir>;
    type Node = VaultNode;

    fn at(&self, path: &Path) -> io::Result<Option<VaultNode>> {
        let found = if_there(self.start(path))?;
        Ok(found.map(|(_, place)| match place {
            None => VaultNode::Dir(self.0.root()),
            Some((dir, name)) => VaultNode::Entry(dir, name),
        }))
    }

    fn names(&self, dir: &Arc<Dir>) -> io::Result<Vec<OsString>> {
        Ok(self.0.list(dir)?.into_iter().map(|entry| entry.name).collect())
    }

    fn node(&self, dir: &Arc<Dir>, name: &OsStr) -> io::Result<Option<VaultNode>> {
        let found = if_there(self.0.lookup(dir, name).map_err(io::Error::from))?;
        Ok(found.map(|(stored, _)| VaultNode::Entry(dir.clone(), stored)))
    }

    fn stat(&self, node: &VaultNode) -> io::Result<Stat> {
        Ok(self.0.stat(node.named())?)
    }

    fn enter(&self, node: &VaultNode) -> io::Result<Arc<Dir>> {
        match node {
            VaultNode::Dir(dir) => Ok(dir.clone()),
            VaultNode::Entry(dir, name) => Ok(self.0.open_dir(dir, name)?),
        }
    }

    fn node_of_dir(&self, dir: &Arc<Dir>) -> io::Result<VaultNode> {
        Ok(VaultNode::Dir(dir.clone()))
    }

    fn link_target(&self, node: &VaultNode) -> io::Result<OsString> {
        let (dir, name) = node.entry()?;
        Ok(self.0.readlink(dir, name)?)
    }

    fn attributes(&self, node: &VaultNode) -> io::Result<Vec<CopiedAttribute>> {
        if !self.0.has_xattrs(node.named())? {
            return Ok(Vec::new());
        }
        let names = self.0.list_xattr(node.named())?;
        let value = |name: &OsString| self.0.get_xattr(node.named(), name).map_err(io::Error::from);
        Ok(names.into_iter().map(|name| (value(&name), name)).map(|(value, name)| (name, value)).collect())
    }

    fn each_segment(
        &self,
        node: &VaultNode,
        give: &mut dyn FnMut(Segment) -> io::Result<()>,
    ) -> io::Result<Stat> {
        let (dir, name) = node.entry()?;
        let open = self.0.open_file(dir, name, false)?;
        let read = self.0.stat(Named::File(&open)).map_err(io::Error::from).and_then(|before| {
            content::each_segment(&open.file, give)?;
            Ok(before)
        });
        self.0.files().release(open);
        read
    }
}

impl CopyTarget for Vaulted {
    type File = VaultedFile;

    fn make(&self, dir: &Arc<Dir>, name: &OsStr, new: New) -> io::Result<()> {
        match new {
            New::Dir => self.0.mkdir(dir, name, owned(0o700))?,
            New::Symlink(target) => self.0.symlink(dir, name, target, owned(0o777))?,
            New::Special(kind, number) => self.0.mknod(dir, name, owned(0o600), kind, number)?,
        };
        Ok(())
    }

    fn link(&self, node: &VaultNode, dir: &Arc<Dir>, name: &OsStr) -> io::Result<()> {
        self.0.link(node.named(), dir, name)?;
        Ok(())
    }

    fn create(&self, dir: &Arc<Dir>, name: &OsStr) -> io::Result<VaultedFile> {
        let (name, _, open) = self.0.create(dir, name, owned(0o600))?;
        Ok(VaultedFile { dir: dir.clone(), name, open })
    }

    fn node_of_file(&self, file: &VaultedFile) -> VaultNode {
        VaultNode::Entry(file.dir.clone(), file.name.clone())
    }

    fn write(&self, file: &VaultedFile, at: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(file.open.file.write(at, bytes)?)
    }

    fn set_len(&self, file: &VaultedFile, len: u64) -> io::Result<()> {
        Ok(file.open.file.truncate(len)?)
    }

    fn set_owner(&self, node: &VaultNode, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        set(&self.0, node, &SetAttr { uid: user, gid: group, ..SetAttr::default() })
    }

    fn set_mode(&self, node: &VaultNode, mode: u32) -> io::Result<()> {
        set(&self.0, node, &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    fn set_times(&self, node: &VaultNode, accessed: Time, modified: Time) -> io::Result<()> {
        let [atime, mtime] = [accessed, modified].map(|time| Some(SetTime::At(time)));
        set(&self.0, node, &SetAttr { atime, mtime, ..SetAttr::default() })
    }

    fn set_attribute(&self, node: &VaultNode, name: &OsStr, value: &[u8]) -> io::Result<()> {
        Ok(self.0.set_xattr(node.named(), name, value, false, false)?)
    }

    fn room(&self, _: &VaultNode) -> io::Result<Room> {
        let space = self.0.statfs()?;
        let nodes = (space.files > 0).then_some(space.ffree);
        Ok(Room { bytes: space.bavail.saturating_mul(space.frsize.into()), nodes })
    }

    fn store(&self, files: &[&VaultedFile]) -> io::Result<()> {
        if files.len() > SYNC_EACH {
            files.iter().try_for_each(|file| file.open.file.flush())?;
            if self.0.sync_store()? {
                return Ok(());
            }
        }
        Ok(files.iter().try_for_each(|file| self.0.sync_file(&file.open))?)
    }

    fn rename(&self, dir: &Arc<Dir>, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (old, new) = (self.0.find(dir, from)?, self.0.find(dir, to)?);
        if new.there.as_ref().is_some_and(|there| there.stat.kind == Kind::Dir) {
            return Err(Errno::ISDIR.into());
        }
        Ok(self.0.rename((dir, &old), (dir, &new), RenameMode::Replace)?)
    }

    fn rename_new(&self, dir: &Arc<Dir>, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (old, new) = (self.0.find(dir, from)?, self.0.find(dir, to)?);
        Ok(self.0.rename((dir, &old), (dir, &new), RenameMode::NoReplace)?)
    }

    fn remove(&self, dir: &Arc<Dir>, name: &OsStr) -> io::Result<()> {
        Ok(self.0.unlink(dir, &self.0.find(dir, name)?)?)
    }

    fn store_names(&self, dir: &Arc<Dir>) -> io::Result<()> {
        Ok(self.0.sync_dir(dir)?)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.sync_store()?;
        Ok(self.0.shut_down()?)
    }
}

fn set(vault: &Vault, node: &VaultNode, changes: &SetAttr) -> io::Result<()> {
    vault.set_attr(node.named(), changes)?;
    Ok(())
}

/// A new node owned by this process's user. Its final owner is set when it is complete.
fn owned(mode: u32) -> NewNode<'static> {
    let [uid, gid] = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
    NewNode::plain(mode, uid, gid)
}
