//! Repairing what a check found. Nothing is discarded: whatever is replaced or removed is kept in a
//! folder of the store.

use super::{
    Dir, DirEntry, OpenError, StoredName, Target, Unlock, Vault,
    aside::{is_all_zeros, set_aside},
    attr::key,
    config_file::{failed, in_place, open_vault, require_settled},
    former_list::FormerList,
    keys::{KeyRing, content_generations},
    lock::{Users, WriteLock},
    names::{NamesIn, is_link, names_in, random_name, read_small, temporary_name},
};
use content::{ContentKeys, Damage, Error, File, Rebuilt, Result};
use format::{
    dir_id::{DIR_ID_FILE, DirId},
    former_list::Listed as Accepted,
    name::{ASIDE, Class, DIR_ID_NAME},
    record::{RECORD, Record},
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
use store::{BackingFile, DirFile, Listed, Node, StoreDir, fsync};

/// The folder for data that is set aside, in the root of the store. It is created when it is first
/// needed.
pub struct Aside {
    root: Arc<StoreDir>,
    folder: Mutex<Option<QuarantineFolder>>,
}

struct QuarantineFolder {
    name: OsString,
    store: StoreDir,
    /// The last name that was assigned.
    count: u64,
}

impl Aside {
    fn new(root: Arc<StoreDir>) -> Self {
        Aside { root, folder: Mutex::default() }
    }

    /// Stores something under a free name: `put` gets the folder and that name. Returns the path within
    /// the store.
    fn put(&self, put: impl FnOnce(&StoreDir, &OsStr) -> io::Result<()>) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock();
        let folder = match &mut *folder {
            Some(folder) => folder,
            none => none.insert(self.make()?),
        };
        // Also counted if `put` fails, so that a name that may be in use is never assigned again.
        folder.count += 1;
        let name = OsString::from(folder.count.to_string());
        put(&folder.store, &name)?;
        folder.store.sync()?;
        Ok(PathBuf::from(&folder.name).join(name))
    }

    fn make(&self) -> io::Result<QuarantineFolder> {
        let name = random_name(ASIDE)?;
        self.root.mkdir(&name, 0o700)?;
        let store = self.root.open_dir(&name)?;
        self.root.sync()?;
        Ok(QuarantineFolder { name, store, count: 0 })
    }

    /// Stores a new file that `make` creates under the name. If that fails, the file is removed, because
    /// a partial one would look complete.
    fn put_new(&self, make: impl FnOnce(&StoreDir, &OsStr) -> io::Result<()>) -> io::Result<PathBuf> {
        self.put(|folder, name| make(folder, name).inspect_err(|_| drop(folder.unlink(name))))
    }

    /// Copies a stored file. `None` if it is all zeros, because nothing would be lost.
    fn copy(&self, file: &dyn BackingFile) -> io::Result<Option<PathBuf>> {
        if is_all_zeros(file)? {
            return Ok(None);
        }
        self.put_new(|folder, name| set_aside(folder, name, file).map(drop)).map(Some)
    }

    /// Moves an entry of the store into the folder.
    ///
    /// # Errors
    /// The store's.
    pub fn take(&self, dir: &Dir, stored: &OsStr) -> Result<PathBuf> {
        let place = self.put(|folder, name| dir.store.rename(stored, folder, name))?;
        dir.store.sync()?;
        Ok(place)
    }

    /// Stores a new file with this content.
    fn note(&self, content: &[u8]) -> io::Result<PathBuf> {
        self.put_new(|folder, name| {
            let file = DirFile::new(folder.create_file(name, 0o600)?);
            file.write_at(content, 0)?;
            file.sync_data()
        })
    }

    /// Copies whatever is in the place of an id file. For a link, the target's path is stored.
    fn copy_id(&self, dir: &StoreDir) -> io::Result<()> {
        let own = OsStr::new(DIR_ID_NAME);
        match dir.open_file(own, OFlags::RDONLY) {
            Err(e) if is_link(&e) => self.note(dir.readlink(own)?.as_bytes()).map(drop),
            opened => self.copy(&DirFile::new(opened?)).map(drop),
        }
    }
}

/// Durably replaces a damaged or missing id file. If a name in the directory opens with the damaged id,
/// that id is kept. Otherwise the directory gets a new id, with which no existing name opens. During a
/// rotation, an id that the directory had when the rotation began is restored under the former key, so
/// that the directory's contents are renewed with it. The old file is copied first, and stays until the
/// new one replaces it. `None` if the id is not damaged.
///
/// # Errors
/// The store's, because an id that cannot be read may be intact. `Damaged` if the file has the length of
/// an id file and `is_own` finds no evidence that it was ever under these keys.
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
        Err(e) if is_link(&e) => Some(Vec::new()), // a link contains no id
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

/// Whether an id file may be intact, but written under another key.
fn may_be_whole(content: &[u8]) -> bool {
    content.len() == DIR_ID_FILE && content.iter().any(|byte| *byte != 0)
}

/// Writes a durable id file that is not in place yet. It is not secret, and every user who may enter the
/// directory needs it, because root repairs the vaults of users.
fn id_file(dir: &StoreDir, content: &[u8]) -> io::Result<OsString> {
    let name = temporary_name()?;
    let file = DirFile::new(dir.create_file(&name, 0o600)?);
    let fill = || {
        file.write_at(content, 0)?;
        let (above, node) = (dir.itself().stat()?, Node::shared(file.fd()));
        // Without root privileges the file belongs to this process's user.
        let _ = node.chown(Some(above.st_uid), Some(above.st_gid));
        node.chmod(0o644)?;
        fsync(&*file.fd())
    };
    fill().inspect_err(|_: &io::Error| drop(dir.unlink(&name)))?;
    Ok(name)
}

/// Whether something in a vault's root shows that the vault belongs to these keys: a file's record, or a
/// directory's id. True for a root without entries, which has nothing to lose.
fn is_of(keys: &KeyRing, contents: &ContentKeys, root: &Dir) -> io::Result<bool> {
    let present = keys.present();
    let mut listed = root.store.list()?;
    listed.retain(|entry| {
        let name = entry.name.as_bytes();
        matches!(present.names.classify(name), Class::Entry | Class::Long) && present.names.has_form(name)
    });
    let shows = |entry: &Listed| match entry.kind {
        // An entry that cannot be read shows nothing.
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
    /// Gives the root of the vault at `path` an id again if it has none, without which the vault does
    /// not open. The old file is set aside. Returns whether the id was replaced.
    ///
    /// # Errors
    /// Those of a secret that does not open the vault; the store's. `OtherVault` if nothing shows that
    /// the root belongs to this configuration. The configuration of another vault, or an old one, would
    /// not authenticate the id either, and replacing the id would lose all names.
    pub fn repair_root_id(path: &Path, unlock: &Unlock) -> std::result::Result<bool, OpenError> {
        let store = open_vault(path)?;
        let lock = WriteLock::take(&store, path, Users::One)?;
        require_settled(&store)?;
        let (config, _, master) = Vault::unlock_config(path, unlock)?;
        let root = Dir::new(store, None);
        let list = FormerList::open(&root.store, &config, &master).map(Arc::new);
        let keys = KeyRing::of(&config, &master, list.as_ref());
        let contents = ContentKeys::of(content_generations(&config, &master, list.as_ref()));
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

    /// The folder for data that repairs set aside.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn aside(&self) -> Result<Aside> {
        self.writable()?;
        Ok(Aside::new(self.root.store.clone()))
    }

    /// Rebuilds the content of a file. Returns the path of its copy if one was needed.
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
        let rebuilt = content::rebuild(store.clone(), self.files.context().clone(), keep)?;
        if rebuilt == Rebuilt::Foreign && File::open(store.clone(), self.files.context().clone()).is_ok() {
            return Ok((Rebuilt::Emptied, self.empty(&store, aside)?));
        }
        Ok((rebuilt, copy))
    }

    /// Truncates a file with a blank header, which reads as empty, to an empty file.
    fn empty(&self, store: &DirFile, aside: &Aside) -> Result<Option<PathBuf>> {
        let (seconds, nanoseconds) = store.mtime()?;
        let copy = aside.copy(store)?;
        store.set_len(0)?;
        store.set_mtime(seconds, nanoseconds)?;
        store.sync_data()?;
        Ok(copy)
    }

    /// Renames an entry whose name is lost to `recovered-1`, or the next free number. The old and the
    /// new stored names, separated by a zero byte, are noted first, so that a long name can be restored
    /// with its sidecar.
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

    /// Removes a damaged attribute, and sets aside its stored name, a zero byte, and its stored value.
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

    /// Moves a node's damaged list of attributes into `aside`.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_damaged_list(&self, dir: &Dir, entry: &DirEntry, aside: &Aside) -> Result<PathBuf> {
        self.writable()?;
        let (lists, name) = self.file_of_list(&Target::Entry(dir, &entry.stored))?;
        aside.take(&lists, &name)
    }
}
