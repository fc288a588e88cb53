//! The list of everything that the vault accepts under its former key, in a file of the root. It is
//! written before a rotation begins, and removed when it has ended. Items in an unreadable part of the
//! list are not accepted.

use crypto::secret::Secret;
use data_encoding::HEXLOWER;
use format::{
    config::VaultConfig,
    former_list::{BLOCK, ITEMS, Item, LIST_ID, ListId, ListKeys, Listed},
    name::FORMER_LIST,
};
use rustix::fs::OFlags;
use std::{
    cmp::Ordering as Order,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicBool, Ordering},
};
use store::{BackingFile, DirFile, Node, StoreDir, fsync};

/// The list of the rotation in progress.
pub(super) struct FormerList {
    /// `None` if it could not be opened.
    file: Option<DirFile>,
    keys: ListKeys,
    list: ListId,
    unread: AtomicBool,
}

impl FormerList {
    /// Opens the list that a configuration names; `None` if no rotation is under way.
    pub(super) fn open(store: &StoreDir, config: &VaultConfig, master: &Secret<32>) -> Option<Self> {
        let list = config.former_list()?;
        let name = file_name(&list.id);
        let opened = store.open_file(&name, OFlags::RDONLY).map(DirFile::new);
        let file = opened.inspect_err(|e| {
            log::error!("{}: {e}; rejecting everything under the vault's old key", name.display());
        });
        let unread = AtomicBool::new(false);
        Some(FormerList { file: file.ok(), keys: ListKeys::derive(master), list, unread })
    }

    /// Whether `stored` existed in this form when the rotation began.
    pub(super) fn accepts(&self, kind: Listed, stored: &[u8]) -> bool {
        let item = self.keys.item(kind, stored);
        let (mut low, mut high) = (0, self.list.blocks());
        while low < high {
            let middle = low + (high - low) / 2;
            let mut block = [0; BLOCK];
            let Some(items) = self.block(middle, &mut block) else { return false };
            match (item.cmp(&items[0]), item.cmp(&items[ITEMS - 1])) {
                (Order::Less, _) => high = middle,
                (_, Order::Greater) => low = middle + 1,
                _ => return items.binary_search(&item).is_ok(),
            }
        }
        false
    }

    /// Whether any lookup hit a part of the list that could not be read or did not authenticate.
    pub(super) fn is_damaged(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    fn block<'a>(&self, index: u64, block: &'a mut [u8; BLOCK]) -> Option<&'a [Item]> {
        let read = self.file.as_ref().map(|file| file.read_at(block, index * BLOCK as u64));
        let items = match read {
            Some(Ok(BLOCK)) => self.keys.open(&self.list, index, block),
            Some(Ok(_) | Err(_)) | None => None,
        };
        if items.is_none() && !self.unread.swap(true, Ordering::Relaxed) {
            let name = file_name(&self.list.id);
            log::error!(
                "{}: block {index} cannot be read or does not authenticate: what it lists is not accepted",
                name.display()
            );
        }
        items
    }
}

/// Writes a list durably, with the owner and permissions of `like`. Called before the configuration that
/// names it is written.
///
/// # Errors
/// The store's error; then there is no list.
pub(super) fn write(
    store: &StoreDir,
    keys: &ListKeys,
    mut items: Vec<Item>,
    like: Option<&Node>,
) -> io::Result<ListId> {
    items.sort_unstable();
    items.dedup();
    let mut id = [0; LIST_ID];
    crypto::random::fill(&mut id)?;
    let list = ListId { id, items: items.len() as u64 };
    let name = file_name(&id);
    let file = DirFile::new(store.create_file(&name, 0o600)?);
    let fill = || {
        for (index, items) in (0..).zip(items.chunks(ITEMS)) {
            file.write_at(&keys.seal(&list, index, items), index * BLOCK as u64)?;
        }
        // Anyone who can read the configuration may need to read the list.
        like.map_or(Ok(()), |like| file.give_owner(like))?;
        fsync(&*file.fd())?;
        store.sync()
    };
    fill().inspect_err(|_| drop(store.unlink(&name)))?;
    Ok(list)
}

/// Removes all lists except the one that this configuration names.
///
/// # Errors
/// The store's.
pub(super) fn remove_others(store: &StoreDir, config: &VaultConfig) -> io::Result<()> {
    let present = config.former_list().map(|list| file_name(&list.id));
    let is_list = |name: &OsStr| name.as_bytes().starts_with(FORMER_LIST.as_bytes());
    for entry in store.list()?.iter().filter(|entry| is_list(&entry.name)) {
        if Some(&entry.name) != present.as_ref() {
            store.unlink(&entry.name)?;
        }
    }
    store.sync()
}

fn file_name(id: &[u8; LIST_ID]) -> OsString {
    (FORMER_LIST.to_owned() + &HEXLOWER.encode(id)).into()
}
