//! For tests: a machine that loses power at a given call to the store. It tracks what is durable: the
//! content of a file, and the names in a directory, as of its last sync. A directory that was never
//! synced is empty.

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, XattrFlags, lgetxattr, linkat, llistxattr, lsetxattr, mknodat,
        open,
    },
    io::Errno,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
    ffi::{OsStr, OsString},
    fs,
    io::ErrorKind,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
        },
    },
    path::{Path, PathBuf},
};

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// The durable state of a store.
pub struct Disk {
    root: u64,
    inodes: BTreeMap<u64, Inode>,
}

struct Machine {
    /// Changes and syncs until the power cut.
    left: u64,
    has_stopped: bool,
    place: PathBuf,
    disk: Disk,
}

#[derive(Clone)]
enum InodeContent {
    Names(BTreeMap<OsString, u64>),
    Bytes(Vec<u8>),
    Target(PathBuf),
    Fifo,
}

struct Inode {
    content: InodeContent,
    mode: u32,
    attributes: Vec<(OsString, Vec<u8>)>,
    /// Held open so that the inode number is not reused.
    _open: OwnedFd,
}

/// Makes every change and sync of this thread in the store at `place` fail after the first `calls` ones.
/// The current content of `place` counts as durable.
pub fn cut_power_after(calls: u64, place: &Path) {
    let root = fs::metadata(place).unwrap().ino();
    let mut disk = Disk { root, inodes: BTreeMap::new() };
    disk.sync_below(place);
    MACHINE.set(Some(Machine { left: calls, has_stopped: false, place: place.to_owned(), disk }));
}

/// Ends the simulation. Returns the durable state if the power cut has happened.
pub fn after_power_cut() -> Option<Disk> {
    MACHINE.take().filter(|machine| machine.has_stopped).map(|machine| machine.disk)
}

/// Counts a change or sync that is about to happen; EIO after the power cut.
pub(super) fn call() -> Result<(), Errno> {
    MACHINE.with_borrow_mut(|machine| {
        let Some(machine) = machine else { return Ok(()) };
        machine.has_stopped |= machine.left == 0;
        machine.left = machine.left.saturating_sub(1);
        if machine.has_stopped { Err(Errno::IO) } else { Ok(()) }
    })
}

/// Called after a file or directory was synced.
pub(super) fn synced(fd: impl AsFd) {
    MACHINE.with_borrow_mut(|machine| {
        let path = || fs::canonicalize(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
        // An unnamed file does not survive the power cut.
        if let Some((machine, path)) = machine.as_mut().zip(path().ok()) {
            machine.disk.sync(&path);
        }
    });
}

/// Called after the whole store was synced.
pub(super) fn all_synced() {
    MACHINE.with_borrow_mut(|machine| {
        if let Some(Machine { place, disk, .. }) = machine {
            disk.sync_below(place);
        }
    });
}

impl Disk {
    fn sync_below(&mut self, path: &Path) {
        self.sync(path);
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => self.sync_below(&entry.path()),
                false => self.sync(&entry.path()),
            }
        }
    }

    fn sync(&mut self, path: &Path) {
        let stat = fs::symlink_metadata(path).unwrap();
        self.meet(path);
        let content = match self.inodes[&stat.ino()].content {
            InodeContent::Names(_) => {
                let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
                let entries: Vec<_> = entries.map(|entry| (entry.file_name(), entry.path())).collect();
                entries.iter().for_each(|(_, path)| self.meet(path));
                let ino = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
                InodeContent::Names(entries.into_iter().map(|(name, path)| (name, ino(&path))).collect())
            }
            InodeContent::Bytes(_) => InodeContent::Bytes(fs::read(path).unwrap()),
            ref other => other.clone(),
        };
        let inode = self.inodes.get_mut(&stat.ino()).unwrap();
        inode.content = content;
        inode.mode = stat.permissions().mode() & 0o7777;
        inode.attributes = attributes(path);
    }

    /// Records an inode that a durable directory entry refers to, with no content yet.
    fn meet(&mut self, path: &Path) {
        let stat = fs::symlink_metadata(path).unwrap();
        let Entry::Vacant(new) = self.inodes.entry(stat.ino()) else { return };
        let kind = stat.file_type();
        let content = match () {
            _ if kind.is_dir() => InodeContent::Names(BTreeMap::new()),
            _ if kind.is_symlink() => InodeContent::Target(fs::read_link(path).unwrap()),
            _ if kind.is_fifo() => InodeContent::Fifo,
            _ => InodeContent::Bytes(Vec::new()),
        };
        let has_more = !matches!(content, InodeContent::Target(_) | InodeContent::Fifo);
        new.insert(Inode {
            content,
            mode: stat.permissions().mode() & 0o7777,
            attributes: if has_more { Vec::new() } else { attributes(path) },
            _open: open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap(),
        });
    }

    /// Restores this state in the empty directory `place`.
    pub fn put(&self, place: &Path) {
        self.put_inode(self.root, place, &mut BTreeMap::new());
    }

    fn put_inode(&self, ino: u64, path: &Path, made: &mut BTreeMap<u64, PathBuf>) {
        let Inode { content, mode, attributes, .. } = &self.inodes[&ino];
        if let Some(other) = made.get(&ino) {
            return linkat(CWD, other, CWD, path, AtFlags::empty()).unwrap();
        }
        match content {
            InodeContent::Names(names) => {
                match fs::create_dir(path) {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                    made => made.unwrap(),
                }
                names.iter().for_each(|(name, ino)| self.put_inode(*ino, &path.join(name), made));
            }
            InodeContent::Bytes(bytes) => fs::write(path, bytes).unwrap(),
            InodeContent::Target(target) => symlink(target, path).unwrap(),
            InodeContent::Fifo => mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(*mode), 0).unwrap(),
        }
        if !matches!(content, InodeContent::Names(_)) {
            made.insert(ino, path.to_owned());
        }
        for (name, value) in attributes {
            lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
        }
        if !matches!(content, InodeContent::Target(_)) {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}

fn attributes(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let mut room = [0; 64 << 10];
    let len = llistxattr(path, &mut room).unwrap();
    let names: Vec<Vec<u8>> = room[..len].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let names = names.into_iter().filter(|name| !name.is_empty());
    names
        .map(|name| {
            let len = lgetxattr(path, OsStr::from_bytes(&name), &mut room).unwrap();
            (OsString::from_vec(name), room[..len].to_vec())
        })
        .collect()
}
