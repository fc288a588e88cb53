//! The plain directory presented as a vault's store: names, attributes, links, and the vault's own files.

use super::{
    content::{Content, as_stored},
    exclusions::Exclusions,
    keys::ReverseKeys,
    long_names::LongNames,
    plain::{CONFIG, PlainDir, PlainEntry},
};
use engine::CpuEngine;
use format::{
    layout::MAX_SIZE,
    name::{CONFIG_COPY, CONFIG_FILE, Class, DIR_ID_NAME, SIDECAR, sidecar_name},
};
use rustix::{
    fs::{FileType, Stat, StatVfs},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Permissions of the vault's own files.
const OWN_MODE: u32 = 0o600;

/// Seconds and nanoseconds.
pub type Time = (i64, u64);

/// A node of the view. Paths are those in the plain tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ViewNode {
    /// The stored form of a node of the plain tree.
    Plain(PathBuf),
    /// The id file of this directory.
    DirId(PathBuf),
    /// The sidecar for the name at this path.
    Sidecar(PathBuf),
    /// The configuration or its copy.
    Config {
        /// True for the copy.
        copy: bool,
    },
}

/// An entry in a directory of the view.
pub struct ViewEntry {
    /// The stored name.
    pub name: OsString,
    /// Its type.
    pub kind: FileType,
    /// An inode number for listings.
    pub inode: u64,
    /// The node it names.
    pub node: ViewNode,
}

/// A plain directory in its stored form.
pub struct View {
    pub(super) plain: PlainDir,
    pub(super) keys: ReverseKeys,
    engine: Arc<CpuEngine>,
    config: Vec<u8>,
    configured: Time,
    long_names: LongNames,
}

impl View {
    /// A view of the directory `plain` without the excluded nodes. Its configuration has the content
    /// `config`, written at `configured`.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn open(
        plain: &Path,
        exclusions: Exclusions,
        keys: ReverseKeys,
        config: Vec<u8>,
        configured: Time,
    ) -> io::Result<View> {
        let plain = PlainDir::open(plain, exclusions)?;
        let (engine, long_names) = (Arc::new(CpuEngine::new()), LongNames::default());
        Ok(View { plain, keys, engine, config, configured, long_names })
    }

    /// The node called `name` in the directory at this path.
    ///
    /// # Errors
    /// ENOENT, or errors of the plain directory.
    pub fn lookup(&self, dir: &Path, name: &OsStr) -> io::Result<ViewNode> {
        let bytes = name.as_bytes();
        let is_root = dir.as_os_str().is_empty();
        if bytes == DIR_ID_NAME.as_bytes() {
            return Ok(ViewNode::DirId(dir.into()));
        }
        if is_root && (bytes == CONFIG_FILE.as_bytes() || bytes == CONFIG_COPY.as_bytes()) {
            return Ok(ViewNode::Config { copy: bytes == CONFIG_COPY.as_bytes() });
        }
        let long = |stored: &[u8]| self.long_name(dir, stored).map(|plain| dir.join(plain));
        let path = match self.keys.names.classify(bytes) {
            Class::Entry => {
                let id = self.keys.dir_id(dir.as_os_str().as_bytes());
                let plain = self.keys.names.decode(&id, bytes, None).map_err(|_| Errno::NOENT)?;
                dir.join(OsStr::from_bytes(&plain))
            }
            Class::Long => long(bytes)?,
            Class::Own => {
                let stored = bytes.strip_suffix(SIDECAR.as_bytes()).ok_or(Errno::NOENT)?;
                let path = long(stored)?;
                self.plain.find(&path)?;
                return Ok(ViewNode::Sidecar(path));
            }
            Class::Temporary => return Err(Errno::NOENT.into()),
        };
        if path == Path::new(CONFIG) { Err(Errno::NOENT.into()) } else { Ok(ViewNode::Plain(path)) }
    }

    /// The plain name for this long stored name. The node may no longer exist.
    fn long_name(&self, dir: &Path, stored: &[u8]) -> io::Result<OsString> {
        let id = self.keys.dir_id(dir.as_os_str().as_bytes());
        let guess = self.long_names.guess(stored);
        let is_it = |name: &Vec<u8>| self.keys.names.encode(&id, name).is_ok_and(|e| e.stored == stored);
        if let Some(name) = guess.filter(is_it) {
            return Ok(OsString::from_vec(name));
        }
        let mut found = None;
        let mut listed = self.plain.list(dir)?;
        listed.retain(|entry| self.keys.names.needs_sidecar(&entry.name));
        for PlainEntry { name, .. } in listed {
            let Ok(encoded) = self.keys.names.encode(&id, &name) else { continue };
            if encoded.stored == stored {
                found = Some(name.clone());
            }
            self.long_names.keep(encoded.stored, name);
        }
        Ok(OsString::from_vec(found.ok_or(Errno::NOENT)?))
    }

    /// The entries of the directory at this path. Nodes without a stored form are left out and logged.
    ///
    /// # Errors
    /// Errors of the plain directory.
    pub fn list(&self, dir: &Path) -> io::Result<Vec<ViewEntry>> {
        let is_root = dir.as_os_str().is_empty();
        let id = self.keys.dir_id(dir.as_os_str().as_bytes());
        let own = |name: &[u8], node: ViewNode| ViewEntry {
            name: OsString::from_vec(name.to_vec()),
            kind: FileType::RegularFile,
            inode: 1,
            node,
        };
        let mut all = vec![own(DIR_ID_NAME.as_bytes(), ViewNode::DirId(dir.into()))];
        if is_root {
            let configs = [(CONFIG_FILE, false), (CONFIG_COPY, true)];
            all.extend(configs.map(|(name, copy)| own(name.as_bytes(), ViewNode::Config { copy })));
        }
        for PlainEntry { name, kind, inode, size } in self.plain.list(dir)? {
            let path = dir.join(OsStr::from_bytes(&name));
            if path == Path::new(CONFIG) {
                continue;
            }
            let has_form = match kind {
                FileType::Symlink => match self.plain.target(&path) {
                    Ok(target) => self.keys.link(path.as_os_str().as_bytes(), &target).is_some(),
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
                    // List it: copies would drop an entry that is missing. Accessing the link then reports
                    // the error.
                    Err(_) => true,
                },
                FileType::RegularFile => size <= MAX_SIZE,
                _ => true,
            };
            match self.keys.names.encode(&id, &name) {
                Ok(encoded) if has_form => {
                    if encoded.sidecar.is_some() {
                        all.push(own(&sidecar_name(&encoded.stored), ViewNode::Sidecar(path.clone())));
                        self.long_names.keep(encoded.stored.clone(), name);
                    }
                    let (name, node) = (OsString::from_vec(encoded.stored), ViewNode::Plain(path));
                    all.push(ViewEntry { name, kind, inode, node });
                }
                _ => log::warn!("{}: omitted from the view, which cannot represent it", path.display()),
            }
        }
        Ok(all)
    }

    /// Attributes of a node: those of the plain node, with the stored size.
    ///
    /// # Errors
    /// Errors of the plain directory.
    pub fn stat(&self, node: &ViewNode) -> io::Result<Stat> {
        let own = |path: &Path, size: usize| -> io::Result<Stat> {
            let mut stat = self.plain.stat(path)?;
            stat.st_mode = libc::S_IFREG | OWN_MODE;
            (stat.st_nlink, stat.st_size) = (1, size as _);
            stat.st_blocks = size.div_ceil(512) as _;
            // The content follows from the configuration, and rsync may compare only size and time.
            (stat.st_mtime, stat.st_mtime_nsec) = self.configured;
            Ok(stat)
        };
        match node {
            ViewNode::Config { .. } => own(Path::new(""), self.config.len()),
            ViewNode::DirId(dir) => own(dir, self.own_content(node)?.len()),
            ViewNode::Sidecar(path) => {
                own(path.parent().unwrap_or(Path::new("")), self.own_content(node)?.len())
            }
            ViewNode::Plain(path) => {
                let mut stat = self.plain.stat(path)?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => stat = as_stored(stat, size(&stat)),
                    FileType::Symlink => stat.st_size = self.target(path)?.len() as _,
                    _ => {}
                }
                Ok(stat)
            }
        }
    }

    /// The stored target of a link.
    ///
    /// # Errors
    /// Errors of the plain directory; ENAMETOOLONG if the target is too long to be stored.
    pub fn target(&self, path: &Path) -> io::Result<String> {
        let target = self.plain.target(path)?;
        self.keys.link(path.as_os_str().as_bytes(), &target).ok_or(Errno::NAMETOOLONG.into())
    }

    /// Opens a file of the plain tree.
    ///
    /// # Errors
    /// Errors of opening it.
    pub fn content(&self, path: &Path) -> io::Result<Content> {
        let file = self.plain.file(path)?;
        let stat = rustix::fs::fstat(&file)?;
        let keys = self.keys.file(self.salt(path, &stat));
        Ok(Content::new(file, size(&stat), keys, self.engine.clone()))
    }

    /// The salt of a plain file.
    pub(super) fn salt(&self, path: &Path, stat: &Stat) -> [u8; 32] {
        if self.is_linked(stat) {
            self.keys.linked_salt(stat.st_ino)
        } else {
            self.keys.salt(path.as_os_str().as_bytes())
        }
    }

    /// Whether all names of a plain file share one salt. Not on other filesystems mounted below the
    /// directory: their inode numbers may also occur on the plain directory's filesystem.
    pub fn is_linked(&self, stat: &Stat) -> bool {
        stat.st_nlink > 1 && self.plain.is_on_root_filesystem(stat)
    }

    /// The content of one of the vault's own files.
    ///
    /// # Errors
    /// ENOENT for any other node.
    pub fn own_content(&self, node: &ViewNode) -> io::Result<Vec<u8>> {
        match node {
            ViewNode::Config { .. } => Ok(self.config.clone()),
            ViewNode::DirId(dir) => {
                Ok(self.keys.dir_ids.encode(&self.keys.dir_id(dir.as_os_str().as_bytes())).to_vec())
            }
            ViewNode::Sidecar(path) => {
                let (dir, name) = (path.parent().ok_or(Errno::NOENT)?, path.file_name().ok_or(Errno::NOENT)?);
                let id = self.keys.dir_id(dir.as_os_str().as_bytes());
                let encoded = self.keys.names.encode(&id, name.as_bytes()).map_err(|_| Errno::NOENT)?;
                Ok(encoded.sidecar.ok_or(Errno::NOENT)?)
            }
            ViewNode::Plain(_) => Err(Errno::NOENT.into()),
        }
    }

    /// Free and total space of the plain filesystem.
    ///
    /// # Errors
    /// Errors of the plain directory.
    pub fn space(&self) -> io::Result<StatVfs> {
        self.plain.space()
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
