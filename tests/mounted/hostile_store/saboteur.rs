//! An attacker who can write to the store, has older states of it, and knows the format but no key.

use crate::support::{random::Random, store::walk};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// Offsets where structures begin: records, entries, chunks, a leaf page, a node page.
const EDGES: [u64; 12] =
    [0, 480, 512, 1024, 1056, 1088, 4096, 8192, 200_704, 204_800, 208_896, 4096 * (2 + 48 + 1 + 64)];

/// The vault's own files in the root, without which nothing mounts.
const ROOT: [&str; 2] = ["warpcrypt.json", "warpcrypt.dir"];

/// Changes a store at random.
pub struct Saboteur {
    store: PathBuf,
    /// Stored files of every state, as a source of pieces.
    kept: Vec<PathBuf>,
    /// Log of changes.
    pub done: Vec<String>,
    root: bool,
}

impl Saboteur {
    /// Creates an attacker who has these older states of the store.
    pub fn new(store: &Path, states: &[PathBuf]) -> Saboteur {
        let kept = states.iter().flat_map(|state| walk(state)).filter(|path| path.is_file()).collect();
        Saboteur { store: store.into(), kept, done: Vec::new(), root: false }
    }

    /// Whether any file that a mount requires was changed.
    pub fn hit_root(&self) -> bool {
        self.root
    }

    /// Makes a random change. Errors are ignored.
    pub fn strike(&mut self, random: &mut Random) {
        let mut all = Vec::new();
        everything(&self.store, &mut all);
        let root = ROOT.map(|name| self.store.join(name));
        let spared = !random.once_in(200);
        all.retain(|path| !(self.is_witness(path) || spared && root.contains(path)));
        let Some(one) = pick(&all, random) else { return };
        let other = pick(&all, random).expect("there is one");
        self.root |= root.contains(&one) || root.contains(&other);
        let kind = random.below(12);
        let number = fs::symlink_metadata(&one).map_or(0, |meta| meta.ino());
        let done = match fs::symlink_metadata(&one) {
            Ok(meta) if meta.is_file() && kind < 8 => self.bytes(&one, meta.len(), random),
            Ok(meta) if meta.is_dir() && kind < 4 => self.in_dir(&one, random),
            Ok(_) if kind == 8 => attributes(&one, &other, random),
            Ok(meta) => self.node(&one, &other, meta.len(), random),
            Err(_) => return,
        };
        let short = |path: &Path| {
            let parts = path.strip_prefix(&self.store).unwrap_or(path).iter();
            let short = |part: &OsStr| part.to_string_lossy().chars().take(24).collect::<String>();
            parts.map(short).collect::<Vec<_>>().join("/")
        };
        self.done.push(format!("{done}: {} (inode {number}), {}", short(&one), short(&other)));
    }

    /// Whether this is the small file beside the trees, which shows that the mount works.
    fn is_witness(&self, path: &Path) -> bool {
        path.parent() == Some(&self.store) && !path.is_dir() && !ROOT.iter().any(|name| path.ends_with(name))
    }

    /// Changes bytes of a file.
    fn bytes(&self, path: &Path, len: u64, random: &mut Random) -> &'static str {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return "nothing" };
        let edge = *random.one_of(&EDGES);
        let at = if random.once_in(2) { edge } else { random.below(len + 1) };
        let count = *random.one_of(&[1, 16, 32, 64, 512, 4096, 9000]);
        let mut bytes = vec![0; count];
        let read = file.read_at(&mut bytes, at).unwrap_or(0);
        match random.below(9) {
            0 => {
                bytes[..read].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8));
                drop(file.write_at(&bytes[..read], at));
                "flip"
            }
            1 => {
                drop(file.write_at(&vec![0; read], at));
                "zeros"
            }
            2 => {
                drop(file.write_at(&random.bytes(read), at));
                "noise"
            }
            3 => {
                drop(file.set_len(at));
                "cut"
            }
            4 => {
                let most = 1 << random.below(20);
                drop(file.set_len(len + random.below(most)));
                "grow"
            }
            5 => {
                drop(file.write_at(&bytes[..read], *random.one_of(&EDGES)));
                "move"
            }
            6 => {
                drop(file.set_len(1 << random.below(44)));
                "make up a length"
            }
            // Bytes from another state of the same file, or from any other file.
            _ => {
                let name = path.file_name().unwrap_or_default();
                let mut from: Vec<_> =
                    self.kept.iter().filter(|kept| kept.file_name() == Some(name)).collect();
                if from.is_empty() || random.once_in(3) {
                    from = self.kept.iter().collect();
                }
                let Ok(from) = fs::read(random.one_of(&from)) else { return "nothing" };
                let start = (at as usize).min(from.len());
                drop(file.write_at(&from[start..from.len().min(start + count)], at));
                "put back"
            }
        }
    }

    /// Changes a directory, or its entries.
    fn in_dir(&self, dir: &Path, random: &mut Random) -> &'static str {
        match random.below(4) {
            0 => {
                let _ = fs::remove_file(dir.join("warpcrypt.dir"));
                "lose an id"
            }
            1 => {
                let foreign =
                    ["warpcrypt.tmp.x", "warpcrypt.", "AAAA", "x\ny", "warpcrypt.long.x.name", "...."];
                for name in foreign {
                    put(&dir.join(name), b"x");
                }
                put(&dir.join("A".repeat(235)), &random.bytes(5000));
                "foreign files"
            }
            2 => {
                let ids: Vec<_> = self.kept.iter().filter(|path| path.ends_with("warpcrypt.dir")).collect();
                let id = fs::read(random.one_of(&ids)).unwrap_or_default();
                put(&dir.join("warpcrypt.dir"), &id);
                "another id"
            }
            _ => {
                put(&dir.join("warpcrypt.dir"), &vec![0; random.below(40) as usize]);
                "a blank id"
            }
        }
    }

    /// Replaces or moves a node.
    fn node(&self, one: &Path, other: &Path, len: u64, random: &mut Random) -> &'static str {
        let mut beside = other.with_file_name(one.file_name().unwrap_or_default());
        if ROOT.iter().any(|name| beside == self.store.join(name)) {
            beside.set_extension("");
        }
        let away = || if one.is_dir() { fs::remove_dir_all(one) } else { fs::remove_file(one) };
        match random.below(11) {
            0 => {
                let _ = away();
                "delete"
            }
            1 => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, flags);
                "exchange"
            }
            2 => {
                let _ = fs::rename(one, beside);
                "move elsewhere"
            }
            3 => {
                let _ = fs::rename(one, other);
                "replace"
            }
            4 => {
                let _ = fs::hard_link(one, beside);
                "a second name"
            }
            // Skip files whose forged length makes them huge.
            5 if len < 10 << 20 && one.is_file() => {
                put(&beside, &fs::read(one).unwrap_or_default());
                "copy elsewhere"
            }
            6 => {
                let target = fs::read_link(other).unwrap_or_else(|_| one.into());
                let _ = away().and_then(|()| symlink(target, one));
                "a link instead"
            }
            7 => {
                let _ = away().and_then(|()| symlink("/etc/hostname", one));
                "a link out of it"
            }
            8 => {
                let kind = *random.one_of(&[FileType::Fifo, FileType::Socket]);
                let _ = away().and_then(|()| Ok(rustix::fs::mknodat(CWD, one, kind, Mode::RUSR, 0)?));
                "something special instead"
            }
            9 => {
                let _ = away().and_then(|()| fs::create_dir(one));
                "a directory instead"
            }
            _ => {
                let _ = away().and_then(|()| fs::write(one, random.bytes(10_000)));
                "noise instead"
            }
        }
    }
}

/// Creates a file with these bytes, replacing any existing node. (Opening an existing pipe would block.)
fn put(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    let _ = fs::write(path, bytes);
}

/// Changes the stored attributes of a node, or copies those of another.
fn attributes(one: &Path, other: &Path, random: &mut Random) -> &'static str {
    let mut names = [0; 1000];
    let len = rustix::fs::llistxattr(other, &mut names).unwrap_or(0);
    let Some(name) = names[..len].split(|byte| *byte == 0).find(|name| name.starts_with(b"user.")) else {
        let _ = rustix::fs::lsetxattr(one, "user.warpcrypt.AAAA", b"x", XattrFlags::empty());
        return "a foreign attribute";
    };
    let mut value = [0; 1000];
    let len = rustix::fs::lgetxattr(other, name, &mut value).unwrap_or(0);
    if random.once_in(2) {
        value[random.below(len as u64) as usize] ^= 1;
    }
    let _ = rustix::fs::lsetxattr(one, name, &value[..len], XattrFlags::empty());
    "another's attribute"
}

/// Collects everything below a directory, including directories and symlinks.
fn everything(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            everything(&entry.path(), found);
        }
    }
}

fn pick(all: &[PathBuf], random: &mut Random) -> Option<PathBuf> {
    (!all.is_empty()).then(|| random.one_of(all).clone())
}
