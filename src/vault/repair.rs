//! Repairing what a check found. Nothing is thrown away: what is of no use goes to a folder of the store.

use super::{
    Damage, Dir, DirEntry, Error, File, OpenError, Rebuilt, Result, StoredName, Target, Unlock, Vault,
    aside::{is_all_zeros, set_aside},
    attr::key,
    config_file::{failed, in_place, open_vault, require_settled},
    former_list::FormerList,
    keys::{ContentKeys, KeyRing},
    lock::{Users, WriteLock},
    names::{NamesIn, is_link, names_in, random_name, read_small, temporary_name},
};
use crate::{
    format::{
        dir_id::{DIR_ID_FILE, DirId},
        former_list::Listed as Accepted,
        name::{ASIDE, Class, DIR_ID_NAME},
        record::{RECORD, Record},
    },
    store::{BackingFile, DirFile, Listed, Node, StoreDir, fsync},
};
use parking_lot::Mutex;
use rustix::fs::{FileType, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The folder for what is set aside, in the root of the store. It is made when it is first needed.
pub struct Aside {
    root: Arc<StoreDir>,
    folder: Mutex<Option<Folder>>,
}

struct Folder {
    name: OsString,
    store: StoreDir,
    /// The last name that was given.
    count: u64,
}

impl Aside {
    fn new(root: Arc<StoreDir>) -> Self {
        Aside { root, folder: Mutex::default() }
    }

    /// Puts something in under a name that is free: `put` gets the folder and that name. Returns where it is in the store.
    fn put(&self, put: impl FnOnce(&StoreDir, &OsStr) -> io::Result<()>) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock();
        let folder = match &mut *folder {
            Some(folder) => folder,
            none => none.insert(self.make()?),
        };
        // Also if it fails: nothing else gets a name at which there may be something.
        folder.count += 1;
        let name = OsString::from(folder.count.to_string());
        put(&folder.store, &name)?;
        folder.store.sync()?;
        Ok(PathBuf::from(&folder.name).join(name))
    }

    fn make(&self) -> io::Result<Folder> {
        let name = random_name(ASIDE)?;
        self.root.mkdir(&name, 0o700)?;
        let store = self.root.open_dir(&name)?;
        self.root.sync()?;
        Ok(Folder { name, store, count: 0 })
    }

    /// Puts in what `make` makes under the name. It goes if that fails: a part of it would look like all of it.
    fn put_new(&self, make: impl FnOnce(&StoreDir, &OsStr) -> io::Result<()>) -> io::Result<PathBuf> {
        self.put(|folder, name| make(folder, name).inspect_err(|_| drop(folder.unlink(name))))
    }

    /// A copy of a stored file; `None` if all of it is zeros, which nobody misses.
    fn copy(&self, file: &dyn BackingFile) -> io::Result<Option<PathBuf>> {
        if is_all_zeros(file)? {
            return Ok(None);
        }
        self.put_new(|folder, name| set_aside(folder, name, file).map(drop)).map(Some)
    }

    /// Moves an entry of the store here.
    ///
    /// # Errors
    /// The store's.
    pub fn take(&self, dir: &Dir, stored: &OsStr) -> Result<PathBuf> {
        let place = self.put(|folder, name| dir.store.rename(stored, folder, name))?;
        dir.store.sync()?;
        Ok(place)
    }

    /// A new file with this content.
    fn note(&self, content: &[u8]) -> io::Result<PathBuf> {
        self.put_new(|folder, name| {
            let file = DirFile::new(folder.create_file(name, 0o600)?);
            file.write_at(content, 0)?;
            file.sync_data()
        })
    }

    /// A copy of what stands in the place of an id file, or where it leads if that is a link.
    fn copy_id(&self, dir: &StoreDir) -> io::Result<()> {
        let own = OsStr::new(DIR_ID_NAME);
        match dir.open_file(own, OFlags::RDONLY) {
            Err(e) if is_link(&e) => self.note(dir.readlink(own)?.as_bytes()).map(drop),
            opened => self.copy(&DirFile::new(opened?)).map(drop),
        }
    }
}

/// Puts a new id file in place of a damaged or missing one, durably: with the damaged id if a name in the directory opens with
/// that, else with a new one, with which no name does. While a rotation is under way, an id that the directory had when that began
/// is put back under the former key: what is in the directory is renewed with it. The old file is copied first, and there until
/// the new one is. `None` if the id is not damaged.
///
/// # Errors
/// The store's: what cannot be read may be whole. `Damaged` if the file is as long as one is, and `is_own` says that nothing shows
/// that it was ever under these keys.
fn mend_id(
    keys: &KeyRing,
    dir: &Dir,
    aside: &Aside,
    is_own: impl FnOnce() -> io::Result<bool>,
) -> Result<Option<DirId>> {
    let own = OsStr::new(DIR_ID_NAME);
    let old = match read_small(dir, own) {
        Ok(old) => Some(old),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) if is_link(&e) => Some(Vec::new()), // It has no id.
        Err(e) => return Err(e.into()),
    };
    if old.as_deref().is_some_and(|old| keys.open(|keys| keys.open_dir_id(old)).is_ok()) {
        return Ok(None);
    }
    let kept = old.as_deref().and_then(|old| old.first_chunk()).map(|id| DirId(*id));
    let id = match kept {
        Some(id) if names_in(keys, dir, &id)? == NamesIn::Authentic => id,
        Some(_) if old.as_deref().is_some_and(may_be_whole) && !is_own()? => {
            let reason = "nothing in the directory is under the vault's key";
            return Err(Damage { what: "the directory's id".to_owned(), reason }.into());
        }
        Some(_) | None => DirId::random()?,
    };
    let former = keys.former().map(|former| (former.keys.dir_ids.encode(&id), former));
    let content = match former {
        Some((content, former)) if former.keys.accept(Accepted::Directory, &content) => content,
        Some(_) | None => keys.present().dir_ids.encode(&id),
    };
    if old.is_some() {
        aside.copy_id(&dir.store)?;
    }
    in_place(&dir.store, &id_file(&dir.store, &content)?, DIR_ID_NAME)?;
    Ok(Some(id))
}

/// Whether an id file may be as it was written, under another key.
fn may_be_whole(content: &[u8]) -> bool {
    content.len() == DIR_ID_FILE && content.iter().any(|byte| *byte != 0)
}

/// A durable id file that is not in place yet. It is no secret, and whoever may enter the directory needs it: root repairs vaults
/// of users.
fn id_file(dir: &StoreDir, content: &[u8]) -> io::Result<OsString> {
    let name = temporary_name()?;
    let file = DirFile::new(dir.create_file(&name, 0o600)?);
    let fill = || {
        file.write_at(content, 0)?;
        let (above, node) = (dir.itself().stat()?, Node::shared(file.fd()));
        // Without root's rights it belongs to this process's user.
        let _ = node.chown(Some(above.st_uid), Some(above.st_gid));
        node.chmod(0o644)?;
        fsync(&*file.fd())
    };
    fill().inspect_err(|_: &io::Error| drop(dir.unlink(&name)))?;
    Ok(name)
}

/// Whether something in a vault's root shows that it is the one of these keys: a file's record, or a directory's id. One without
/// entries has nothing to lose.
fn is_of(keys: &KeyRing, contents: &ContentKeys, root: &Dir) -> io::Result<bool> {
    let present = keys.present();
    let mut listed = root.store.list()?;
    listed.retain(|entry| {
        let name = entry.name.as_bytes();
        matches!(present.names.classify(name), Class::Entry | Class::Long) && present.names.has_form(name)
    });
    let shows = |entry: &Listed| match entry.kind {
        // What cannot be read shows nothing.
        FileType::RegularFile => has_record(contents, root, &entry.name).unwrap_or(false),
        FileType::Directory => has_id(keys, root, &entry.name).unwrap_or(false),
        _ => false,
    };
    Ok(listed.is_empty() || listed.iter().any(shows))
}

fn has_record(keys: &ContentKeys, dir: &Dir, name: &OsStr) -> io::Result<bool> {
    let mut records = [0; 2 * RECORD];
    DirFile::new(dir.store.open_file(name, OFlags::RDONLY)?).read_at(&mut records, 0)?;
    Ok(records.as_chunks::<RECORD>().0.iter().any(|sector| {
        let derive = Record::peek_key(sector).ok().and_then(|id| keys.of_file(id));
        derive.is_some_and(|derive| {
            let (id, of) = derive();
            Record::decode(sector, &of.record).is_ok() && keys.accept(&id, sector)
        })
    }))
}

fn has_id(keys: &KeyRing, dir: &Dir, name: &OsStr) -> io::Result<bool> {
    let id = read_small(&Dir::new(dir.store.open_dir(name)?, None), OsStr::new(DIR_ID_NAME))?;
    Ok(keys.open(|keys| keys.open_dir_id(&id)).is_ok())
}

impl Vault {
    /// Gives the root of the vault at `path` an id again, if it has none: without, the vault does not open. The old file is set
    /// aside. Whether it had none.
    ///
    /// # Errors
    /// Those of a secret that does not open the vault; the store's. `OtherVault` if nothing shows that the root is of this
    /// configuration: with that of another vault, or an old one, its id would not authenticate either, and all names would be lost.
    pub fn repair_root_id(path: &Path, unlock: &Unlock) -> std::result::Result<bool, OpenError> {
        let store = open_vault(path)?;
        let lock = WriteLock::take(&store, path, Users::One)?;
        require_settled(&store)?;
        let (config, _, master) = Vault::unlock_config(path, unlock)?;
        let root = Dir::new(store, None);
        let list = FormerList::open(&root.store, &config, &master).map(Arc::new);
        let keys = KeyRing::of(&config, &master, list.as_ref());
        let contents = ContentKeys::of(&config, &master, list.as_ref());
        let aside = Aside::new(root.store.clone());
        let mended = mend_id(&keys, &root, &aside, || is_of(&keys, &contents, &root));
        let failed = failed("cannot repair", path);
        match mended {
            Ok(id) => lock.finish().map(|()| id.is_some()).map_err(failed),
            Err(Error::Damaged(_)) => Err(OpenError::OtherVault(path.into())),
            Err(Error::Store(source)) => Err(failed(source)),
            Err(other) => Err(failed(io::Error::other(other.to_string()))),
        }
    }

    /// The folder for what repairs set aside.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn aside(&self) -> Result<Aside> {
        self.writable()?;
        Ok(Aside::new(self.root.store.clone()))
    }

    /// Rebuilds the content of a file, and says where its copy is if one was needed.
    ///
    /// # Errors
    /// The store's; `Invalid` if the file is in use.
    pub fn repair_content(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        aside: &Aside,
    ) -> Result<(Rebuilt, Option<PathBuf>)> {
        self.writable()?;
        let node = dir.store.node(&entry.stored.0)?;
        if self.files.is_in_use(key(&node.stat()?)) {
            return Err(Error::Invalid("the file is in use"));
        }
        let store = Arc::new(DirFile::new(self.with_access(&node, 0o600, || node.reopen(OFlags::RDWR))?));
        let mut copy = None;
        let keep = || {
            copy = aside.copy(&*store)?;
            Ok(())
        };
        let rebuilt = File::rebuild(store.clone(), self.files.context().clone(), keep)?;
        if rebuilt == Rebuilt::Foreign && File::open(store.clone(), self.files.context().clone()).is_ok() {
            return Ok((Rebuilt::Emptied, self.empty(&store, aside)?));
        }
        Ok((rebuilt, copy))
    }

    /// Makes a file with a blank header the empty file that it reads as.
    fn empty(&self, store: &DirFile, aside: &Aside) -> Result<Option<PathBuf>> {
        let (seconds, nanoseconds) = store.mtime()?;
        let copy = aside.copy(store)?;
        store.set_len(0)?;
        store.set_mtime(seconds, nanoseconds)?;
        store.sync_data()?;
        Ok(copy)
    }

    /// Gives an entry whose name is lost another one: `recovered-1`, or the next that is free. What the store had and has instead,
    /// with a zero byte between, is noted first: a long name comes back with its sidecar.
    ///
    /// # Errors
    /// The store's.
    pub fn rename_nameless(&self, dir: &Arc<Dir>, stored: &OsStr, aside: &Aside) -> Result<DirEntry> {
        self.writable()?;
        for number in 1_u64.. {
            let name = OsString::from(format!("recovered-{number}"));
            let place = self.place(dir, &name)?;
            if dir.store.stat(&place.stored.0).is_ok() {
                continue;
            }
            let old = dir.path_in_store(stored).into_os_string();
            aside.note(&[old.as_bytes(), &[0], place.stored.0.as_bytes()].concat())?;
            match dir.store.rename_new(stored, &dir.store, &place.stored.0) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => {
                    renamed?;
                    dir.store.sync()?;
                    let stat = self.stat(Target::Entry(dir, &place.stored))?;
                    return Ok(DirEntry {
                        name,
                        stored: place.stored,
                        kind: stat.kind,
                        ino: stat.ino,
                        next: 0,
                    });
                }
            }
        }
        Err(Error::NameTooLong)
    }

    /// Gives a directory an id again, and sets the old file aside.
    ///
    /// # Errors
    /// The store's; `Invalid` if its id is not damaged.
    pub fn repair_dir_id(&self, parent: &Dir, name: &StoredName, aside: &Aside) -> Result<Arc<Dir>> {
        self.writable()?;
        let dir = Dir::new(parent.store.open_dir(&name.0)?, None);
        match mend_id(&self.keys, &dir, aside, || Ok(true))? {
            None => Err(Error::Invalid("the directory's id is not damaged")),
            Some(_) => Ok(Arc::new(self.with_id(dir.store.try_clone()?)?)),
        }
    }

    /// Takes a damaged attribute away, and keeps what was stored of it: its stored name, a zero byte, its stored value.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_damaged_attribute(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        stored: &OsStr,
        aside: &Aside,
    ) -> Result<PathBuf> {
        self.writable()?;
        let node = dir.store.node(&entry.stored.0)?;
        let value = node.get_xattr(stored)?.unwrap_or_default();
        let place = aside.note(&[stored.as_encoded_bytes(), &[0], &value].concat())?;
        node.remove_xattr(stored)?;
        Ok(place)
    }

    /// Takes a node's damaged list of attributes away.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_damaged_list(&self, dir: &Dir, entry: &DirEntry, aside: &Aside) -> Result<PathBuf> {
        self.writable()?;
        let (lists, name) = self.file_of_list(&Target::Entry(dir, &entry.stored))?;
        aside.take(&lists, &name)
    }
}
