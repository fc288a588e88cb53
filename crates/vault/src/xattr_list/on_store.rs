//! Lists of attributes in a vault's store: access to nodes and to the directory of lists, and the
//! vault's operations on lists.

use super::{Attribute, Attributes, Places};
use crate::{
    Dir, Kind, Target, Vault,
    attr::key,
    names::{read_opened, read_up_to},
    xattr_owner::Identity,
};
use content::{Error, Result};
use format::{
    former_list::Listed as Accepted,
    name::{DIR_ID_NAME, LISTS},
    xattr::{STORED_NAMES_MAX, name_len_at_most},
    xattr_list::{ListOwner, SEALED_MAX, XattrList},
};
use parking_lot::RwLockReadGuard;
use rustix::{
    fs::{FileType, OFlags, XattrFlags},
    io::Errno,
};
use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    io,
    sync::atomic::Ordering,
};
use store::{BackingFile, DirFile, Node, StoreDir, fsync};

/// A node, and the directory of lists, which is created at the first write.
struct OnStore<'a> {
    vault: &'a Vault,
    node: &'a Node<'a>,
    lists: OnceCell<StoreDir>,
}

impl OnStore<'_> {
    /// The directory of lists, if it exists.
    fn lists(&self) -> io::Result<Option<&StoreDir>> {
        if self.lists.get().is_none()
            && let Some(dir) = self.vault.lists_dir()?
        {
            return Ok(Some(self.lists.get_or_init(|| dir)));
        }
        Ok(self.lists.get())
    }

    fn lists_to_write(&self) -> io::Result<&StoreDir> {
        match self.lists()? {
            Some(dir) => Ok(dir),
            None => {
                self.vault.has_lists.store(true, Ordering::Release);
                let made = self.vault.make_own_dir(LISTS)?;
                Ok(self.lists.get_or_init(|| made))
            }
        }
    }
}

impl Places for OnStore<'_> {
    fn attribute(&self, stored: &OsStr) -> io::Result<Option<Vec<u8>>> {
        self.node.get_xattr(stored)
    }

    fn set_attribute(&self, stored: &OsStr, value: &[u8], flags: XattrFlags) -> io::Result<()> {
        // Some stores accept more names than the kernel lists.
        if self.node.xattr_names_len()? + stored.len() >= STORED_NAMES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.node.set_xattr(stored, value, flags)
    }

    fn remove_attribute(&self, stored: &OsStr) -> io::Result<bool> {
        self.node.remove_xattr(stored)
    }

    fn names_len(&self) -> io::Result<usize> {
        let stored = self.node.list_xattr()?;
        Ok(stored.iter().map(|stored| name_len_at_most(stored.len()) + 1).sum())
    }

    fn sync_attributes(&self) -> io::Result<()> {
        let fd = self.vault.with_access(self.node, 0o400, || self.node.reopen(OFlags::RDONLY))?;
        fsync(fd)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.node.stat()?.st_nlink > 0)
    }

    fn accept_former(&self, sealed: &[u8]) -> bool {
        self.vault.keys.former().is_some_and(|former| former.keys.accept(Accepted::Attributes, sealed))
    }

    fn read(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let Some(lists) = self.lists()? else { return Ok(None) };
        match lists.open_file(name, OFlags::RDONLY) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let file = DirFile::new(opened?);
                let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(SEALED_MAX + 1);
                read_up_to(&file, len).map(Some)
            }
        }
    }

    /// Readable for every user who may enter the directory, because the content is sealed.
    fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        DirFile::new(self.lists_to_write()?.create_file(name, 0o644)?).write_at(content, 0)
    }

    fn sync(&self, name: &OsStr) -> io::Result<()> {
        DirFile::new(self.lists_to_write()?.open_file(name, OFlags::RDONLY)?).sync_data()
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let lists = self.lists_to_write()?;
        lists.rename(from, lists, to)
    }

    fn unlink(&self, name: &OsStr) -> io::Result<bool> {
        let Some(lists) = self.lists()? else { return Ok(false) };
        match lists.unlink(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            unlinked => unlinked.map(|()| true),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.lists()?.map_or(Ok(()), StoreDir::sync)
    }
}

/// The owner of the list that a node can have. Only files and directories can have one.
fn owner(identity: &Identity) -> Option<ListOwner> {
    match identity {
        Identity::File(salt) => Some(ListOwner::File(*salt)),
        Identity::Dir(id) => Some(ListOwner::Dir(*id)),
        Identity::Link(_) | Identity::Special(_) => None,
    }
}

impl Vault {
    /// The directory of lists, if it exists.
    fn lists_dir(&self) -> io::Result<Option<StoreDir>> {
        match self.has_lists.load(Ordering::Acquire) {
            true => self.own_dir(LISTS),
            false => Ok(None),
        }
    }

    /// Runs `work` on the attributes of a node.
    fn with_attributes<'a, T>(
        &'a self,
        node: &'a Node<'a>,
        owner: ListOwner,
        work: impl FnOnce(&Attributes<OnStore<'a>>) -> Result<T>,
    ) -> Result<T> {
        let (present, former) = (self.keys(), self.keys.former());
        let places = OnStore { vault: self, node, lists: OnceCell::new() };
        let former = former.as_ref().map(|former| &former.keys.xattrs);
        // No reference to the keys leaves `work`.
        work(&Attributes { places, keys: &present.xattrs, former, owner, uncertain: &self.lists_uncertain })
    }

    /// Sets an attribute on the node, or in the list if there is no room. `None` if the node cannot have
    /// a list: nothing was done then.
    pub(crate) fn set_attribute(
        &self,
        node: &Node,
        identity: &Identity,
        attribute: Attribute,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<Option<()>> {
        let Some(owner) = owner(identity) else { return Ok(None) };
        let shared = self.lists.read();
        if self.with_attributes(node, owner, |a| a.set_on_node(attribute, value, flags))? {
            return Ok(Some(()));
        }
        drop(shared);
        if self.is_shared() {
            return Err(Errno::NOSPC.into()); // Several steps, which another machine could see half done.
        }
        let _alone = self.lists.write();
        self.with_attributes(node, owner, |a| a.set_in_list(attribute, value, flags)).map(Some)
    }

    /// Removes an attribute from the node and its list. `None` if the node has no list: nothing was done
    /// then.
    pub(crate) fn remove_attribute(
        &self,
        target: &Target,
        node: &Node,
        attribute: Attribute,
    ) -> Result<Option<()>> {
        if self.lists_dir()?.is_none() {
            return Ok(None);
        }
        let Some(owner) = self.list_owner(target, node)? else { return Ok(None) };
        let _alone = self.lists.write();
        self.with_attributes(node, owner, |a| match self.is_shared() && a.list()?.is_some() {
            true => Err(Error::NotSupported("attributes that are in a list, in a shared vault")),
            false => a.remove(attribute),
        })
        .map(Some)
    }

    /// The list of a node, which does not change until the guard is dropped.
    pub(crate) fn list_of(
        &self,
        target: &Target,
        node: &Node,
    ) -> Result<(RwLockReadGuard<'_, ()>, Option<XattrList>)> {
        let mut proven = false;
        loop {
            let is_any = self.lists_dir()?.is_some();
            let owner = match is_any {
                false => None,
                true if proven => self.list_owner(target, node)?,
                true => self.likely_owner(target)?,
            };
            let shared = self.lists.read();
            if !is_any && self.lists_dir()?.is_some() {
                continue; // The first list was just created.
            }
            let list = owner.map(|owner| self.with_attributes(node, owner, |a| a.list())).transpose()?;
            let list = list.flatten();
            if list.is_none() || proven {
                return Ok((shared, list));
            }
            proven = true;
        }
    }

    /// Whether a node has a list.
    pub(crate) fn has_list(&self, target: &Target) -> Result<bool> {
        let Some(lists) = self.lists_dir()? else { return Ok(false) };
        let Some(owner) = self.likely_owner(target)? else { return Ok(false) };
        Ok(self.find_list(&lists, &owner)?.is_some())
    }

    /// The directory and the name of a node's list. ENOENT if there is none.
    pub(crate) fn file_of_list(&self, target: &Target) -> Result<(Dir, OsString)> {
        let lists = self.lists_dir()?.ok_or(Errno::NOENT)?;
        let owner = self.list_owner(target, &target.node()?)?.ok_or(Errno::NOENT)?;
        let name = self.find_list(&lists, &owner)?.ok_or(Errno::NOENT)?;
        Ok((Dir::new(lists, None), name))
    }

    fn find_list(&self, lists: &StoreDir, owner: &ListOwner) -> io::Result<Option<OsString>> {
        for name in self.list_names(owner) {
            match lists.stat(&name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                found => return found.map(|_| Some(name)),
            }
        }
        Ok(None)
    }

    /// The owner of a target's list; `None` if the target cannot have one.
    fn list_owner(&self, target: &Target, node: &Node) -> Result<Option<ListOwner>> {
        Ok(self.identity(target, node, false)?.as_ref().and_then(owner))
    }

    /// The owner of a target's list, unverified: takes the salt of a closed file from its records as they
    /// are. This is enough to establish that there is no list.
    fn likely_owner(&self, target: &Target) -> Result<Option<ListOwner>> {
        Ok(match target {
            Target::Dir(dir) => dir.id.map(ListOwner::Dir),
            Target::File(file) => file.file.salt(false)?.map(ListOwner::File),
            Target::Entry(parent, name) => match self.stat(*target)?.kind {
                Kind::Dir => self.open_dir(parent, name)?.id.map(ListOwner::Dir),
                Kind::File => self.salt_of(&target.node()?)?.map(ListOwner::File),
                Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => None,
            },
        })
    }

    /// The salt of a file, open or not; `None` if it has none in the store.
    fn salt_of(&self, node: &Node) -> Result<Option<[u8; 32]>> {
        match self.files.get(key(&node.stat()?)) {
            Some(open) => open.file.salt(false),
            None => Ok(self.stored_salt(node)?),
        }
    }

    /// Called after the last name of a file was removed from `dir`. Removes the file's list.
    pub(crate) fn list_of_file_went(&self, node: &Node, dir: &StoreDir) {
        if matches!(self.lists_dir(), Ok(Some(_)))
            && let Ok(Some(salt)) = self.salt_of(node)
        {
            self.list_went(ListOwner::File(salt), node, dir);
        }
    }

    /// Called after a directory with this id file was removed from `dir`. Removes the directory's list.
    pub(crate) fn list_of_dir_went(&self, id: &[u8], gone: &Node, dir: &StoreDir) {
        if let Ok(id) = self.keys.open(|keys| keys.open_dir_id(id)) {
            self.list_went(ListOwner::Dir(id), gone, dir);
        }
    }

    fn list_went(&self, owner: ListOwner, node: &Node, dir: &StoreDir) {
        let _alone = self.lists.write();
        let removed = self.with_attributes(node, owner, |attributes| {
            if attributes.list().is_ok_and(|list| list.is_none()) {
                return Ok(());
            }
            // Sync the directory first, so that a power cut cannot bring the node back without its
            // attributes.
            self.with_access(&dir.itself(), 0o500, || dir.sync())?;
            attributes.remove_list()
        });
        if let Err(e) = removed {
            log::warn!("cannot remove the attributes of a deleted file: {e}");
        }
    }

    /// Puts all lists under the present key of a vault that is being rotated.
    pub(crate) fn renew_lists(&self) -> Result<()> {
        let (Some(former), Some(lists)) = (self.keys.former(), self.lists_dir()?) else { return Ok(()) };
        for entry in lists.list()? {
            let Ok(owner) = former.keys.xattrs.list_owner(entry.name.as_encoded_bytes()) else { continue };
            let _alone = self.lists.write();
            // The node is unused here: none of its attributes is accessed.
            let none = lists.itself();
            self.with_attributes(&none, owner, |attributes| match attributes.list() {
                Ok(Some(list)) => attributes.put(&list),
                Ok(None) => Ok(()),
                Err(Error::Damaged(damage)) => {
                    self.complain(format!(
                        "left unchanged; it was not encrypted with any key of the vault: {damage}"
                    ));
                    Ok(())
                }
                Err(e) => Err(e),
            })?;
        }
        Ok(())
    }

    /// The directory of lists, and the files in it that belong to no node, which a crash left behind.
    /// `None` if there is no such directory.
    ///
    /// # Errors
    /// The store's, including the case that some node cannot be read.
    pub fn ownerless_lists(&self) -> Result<Option<(Dir, Vec<OsString>)>> {
        self.left_in(LISTS, &mut |dir, entry| {
            let owners = match entry.kind {
                FileType::RegularFile if entry.name == DIR_ID_NAME => {
                    Vec::from_iter(self.owner_by_id_file(dir)?)
                }
                FileType::RegularFile => {
                    let node = self.with_access(&dir.itself(), 0o100, || dir.node(&entry.name))?;
                    self.stored_salts(&node)?.into_iter().map(ListOwner::File).collect()
                }
                _ => Vec::new(),
            };
            Ok(owners.iter().flat_map(|owner| self.list_names(owner)).collect())
        })
    }

    fn owner_by_id_file(&self, dir: &StoreDir) -> io::Result<Option<ListOwner>> {
        let open = || dir.open_file(OsStr::new(DIR_ID_NAME), OFlags::RDONLY);
        let content = read_opened(&DirFile::new(self.with_access(&dir.itself(), 0o100, open)?))?;
        Ok(self.keys.open(|keys| keys.open_dir_id(&content)).ok().map(ListOwner::Dir))
    }

    /// Names that a list may have: under the present key, and under the former one.
    fn list_names(&self, owner: &ListOwner) -> Vec<OsString> {
        let present = self.keys().xattrs.list_name(owner);
        let former = self.keys.former().map(|former| former.keys.xattrs.list_name(owner));
        std::iter::once(present).chain(former).map(OsString::from).collect()
    }
}
