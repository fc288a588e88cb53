//! Sources of files: a plain filesystem, or a vault, which need not be mounted.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};
use vault::{Climb, Dir, OpenFile, StoredName, Target, Vault};

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else, which is not hashed.
    Other,
}

/// An entry of a folder.
pub struct SourceEntry<S> {
    /// Name of the entry.
    pub name: OsString,
    /// Type of the entry; links are not followed.
    pub kind: SourceKind,
    /// The source's own name for it.
    pub stored: S,
}

/// A folder and its entries.
pub type FolderContents<S> = (<S as Source>::Folder, Vec<SourceEntry<<S as Source>::Stored>>);

/// Files and folders.
pub trait Source: Sync {
    /// Data that the source needs to find a node, besides its path.
    type Place: Send;
    /// A listed folder.
    type Folder: Climb;
    /// Data that the source needs to find an entry of a listed folder.
    type Stored;
    /// An open file.
    type Content: Content;

    /// The node at a path given by the user. Follows a link.
    ///
    /// # Errors
    /// If the node does not exist or cannot be accessed.
    fn start(&self, path: &Path) -> io::Result<(SourceKind, Self::Place)>;

    /// Opens a folder and lists its entries, in any order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    fn list(&self, path: impl FnOnce() -> PathBuf, place: &Self::Place) -> io::Result<FolderContents<Self>>;

    /// The place of a folder's entry.
    fn place(&self, folder: &Self::Folder, entry: Self::Stored) -> Self::Place;

    /// Maximum number of files that may wait to be hashed; each keeps its place.
    fn waiting_max(&self) -> usize {
        usize::MAX
    }

    /// Number of damaged entries that `list` left out and logged.
    fn left_out(&self) -> usize {
        0
    }

    /// The size of a file in bytes.
    ///
    /// # Errors
    /// If it cannot be queried.
    fn size(&self, path: &Path, place: &Self::Place) -> io::Result<u64>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, path: &Path, place: &Self::Place) -> io::Result<Self::Content>;
}

/// An open file, readable by several threads at once.
pub trait Content: Send + Sync {
    /// Reads at most `out.len()` bytes; returns 0 only at the end of the file.
    ///
    /// # Errors
    /// If the bytes cannot be read, or do not authenticate.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The size of the file in bytes.
    ///
    /// # Errors
    /// If it cannot be queried.
    fn size(&self) -> io::Result<u64>;

    /// Reads until `out` is full or the file ends.
    ///
    /// # Errors
    /// As `read_at`.
    fn read_full(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

/// The filesystem as seen by the process.
#[derive(Default)]
pub struct Plain {
    /// Every folder kept open holds a clone, so its reference count tells the number of open folders.
    open: Arc<()>,
}

/// A folder that stays open while its files wait, so that they can be opened by name alone.
pub struct Folder {
    fd: OwnedFd,
    _open: Arc<()>,
}

/// Maximum number of folders kept open.
const FOLDERS_MAX: usize = 256;
/// Minimum number of entries for which keeping a folder open pays off.
const FOLDER_MIN: usize = 8;

/// A folder of a walk, which stays open if that pays off.
pub struct PlainFolder(Option<Arc<Folder>>);

/// No marks are needed: everything is found by its path.
impl Climb for PlainFolder {
    type Mark = ();

    fn mark(&self) -> io::Result<()> {
        Ok(())
    }

    fn above(&self, _: usize, (): &()) -> io::Result<Self> {
        Ok(PlainFolder(None))
    }
}

impl Source for Plain {
    type Place = Option<Arc<Folder>>;
    type Folder = PlainFolder;
    type Stored = ();
    type Content = OwnedFd;

    fn start(&self, path: &Path) -> io::Result<(SourceKind, Self::Place)> {
        Ok((kind_of(FileType::from_raw_mode(fs::stat(path)?.st_mode)), None))
    }

    fn list(&self, path: impl FnOnce() -> PathBuf, _: &Self::Place) -> io::Result<FolderContents<Self>> {
        let fd = fs::open(path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some filesystems do not report the type.
                FileType::Unknown => {
                    FileType::from_raw_mode(fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
                }
                kind => kind,
            };
            entries.push(SourceEntry { name: name.to_owned(), kind: kind_of(kind), stored: () });
        }
        let kept = entries.len() >= FOLDER_MIN && Arc::strong_count(&self.open) <= FOLDERS_MAX;
        let folder = kept.then(|| Arc::new(Folder { fd, _open: self.open.clone() }));
        Ok((PlainFolder(folder), entries))
    }

    fn place(&self, folder: &Self::Folder, (): ()) -> Self::Place {
        folder.0.clone()
    }

    fn size(&self, path: &Path, _: &Self::Place) -> io::Result<u64> {
        Ok(fs::stat(path)?.st_size as u64)
    }

    fn open(&self, path: &Path, place: &Self::Place) -> io::Result<OwnedFd> {
        // A pipe may have replaced the file since it was listed; opening a pipe would block the thread.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(match (place, path.file_name()) {
            (Some(folder), Some(name)) => fs::openat(&folder.fd, name, flags, Mode::empty())?,
            _ => fs::open(path, flags, Mode::empty())?,
        })
    }
}

fn kind_of(file_type: FileType) -> SourceKind {
    match file_type {
        FileType::RegularFile => SourceKind::File,
        FileType::Directory => SourceKind::Folder,
        _ => SourceKind::Other,
    }
}

impl Content for OwnedFd {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(self, out, offset)?)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(fs::fstat(self)?.st_size as u64)
    }
}

/// An open vault. Paths begin at its root, with or without a slash. Links are never followed.
pub struct Vaulted(pub Arc<Vault>);

/// A node of a vault: its folder and its stored name, or `None` for the root.
pub type VaultPlace = Option<(Arc<Dir>, StoredName)>;

impl Vaulted {
    fn dir(&self, place: &VaultPlace) -> content::Result<Arc<Dir>> {
        match place {
            None => Ok(self.0.root()),
            Some((parent, name)) => self.0.open_dir(parent, name),
        }
    }
}

impl Source for Vaulted {
    type Place = VaultPlace;
    type Folder = Arc<Dir>;
    type Stored = StoredName;
    type Content = VaultFile;

    fn start(&self, path: &Path) -> io::Result<(SourceKind, VaultPlace)> {
        let (mut kind, mut place) = (SourceKind::Folder, None);
        for component in path.components() {
            let name = match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => name,
                Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
            };
            let parent = self.dir(&place)?;
            let (stored, stat) = self.0.lookup(&parent, name)?;
            (kind, place) = (vault_kind(stat.kind), Some((parent, stored)));
        }
        Ok((kind, place))
    }

    fn list(&self, _: impl FnOnce() -> PathBuf, place: &VaultPlace) -> io::Result<FolderContents<Self>> {
        let dir = self.dir(place)?;
        let entries = self.0.list(&dir)?;
        let listed = |entry: vault::DirEntry| SourceEntry {
            name: entry.name,
            kind: vault_kind(entry.kind),
            stored: entry.stored,
        };
        Ok((dir, entries.into_iter().map(listed).collect()))
    }

    fn place(&self, dir: &Arc<Dir>, entry: StoredName) -> VaultPlace {
        Some((dir.clone(), entry))
    }

    /// Each file may be in a different directory, which it keeps open.
    fn waiting_max(&self) -> usize {
        vault::descriptors() / 4
    }

    fn left_out(&self) -> usize {
        self.0.left_out()
    }

    fn size(&self, _: &Path, place: &VaultPlace) -> io::Result<u64> {
        let Some((parent, name)) = place else { return Err(io::ErrorKind::IsADirectory.into()) };
        Ok(self.0.stat(Target::Entry(parent, name))?.size)
    }

    fn open(&self, _: &Path, place: &VaultPlace) -> io::Result<VaultFile> {
        let Some((parent, name)) = place else { return Err(io::ErrorKind::IsADirectory.into()) };
        let open = VaultFile { vault: self.0.clone(), open: Some(self.0.open_file(parent, name, false)?) };
        // A mount reads this file as empty. A hash attests a file's content, and here nothing proves that
        // it is empty.
        if open.file()?.file.is_blank() {
            return Err(io::Error::other("its header is blank"));
        }
        Ok(open)
    }
}

fn vault_kind(kind: vault::Kind) -> SourceKind {
    match kind {
        vault::Kind::File => SourceKind::File,
        vault::Kind::Dir => SourceKind::Folder,
        _ => SourceKind::Other,
    }
}

/// An open file of a vault.
pub struct VaultFile {
    vault: Arc<Vault>,
    /// `None` only during drop.
    open: Option<Arc<OpenFile>>,
}

impl VaultFile {
    fn file(&self) -> io::Result<&OpenFile> {
        self.open.as_deref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Content for VaultFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file()?.file.read(offset, out)?)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file()?.file.size())
    }
}

impl Drop for VaultFile {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.vault.files().release(open);
        }
    }
}
