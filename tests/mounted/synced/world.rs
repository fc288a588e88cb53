//! Two mounted vaults with the same keys and directory ids, a program that keeps their stores in sync,
//! and a model of what may be read.

use super::{is_expected, replace, stored};
use crate::support::{
    command::sh,
    mounted::{Mount, Vault},
    random::Random,
    raw::close,
};
use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Directories, each inside the previous one.
const DIRS: [&str; 3] = ["", "a", "a/b"];
/// Files per directory. Two consecutive files form a pair; renames happen only within a pair.
const FILES: usize = 6;
/// Bytes of a record.
const RECORD: usize = 32;
/// Maximum number of descriptors held open.
const HELD: usize = 4;

/// Counts of operations and of their failures.
#[derive(Debug, Default)]
pub struct Seen {
    pub read: usize,
    pub read_errors: usize,
    pub changed: usize,
    pub change_errors: usize,
    pub synced: usize,
    /// Stored files that got the inode number of another file.
    pub reused: usize,
}

/// A write by a program: of a whole file, or of one record appended to the existing ones.
struct Written {
    path: usize,
    records: usize,
    appended: bool,
    /// Whether the write failed, or the file may since have been truncated within it.
    cut: bool,
}

/// A model of what may be read.
struct Model {
    written: Vec<Written>,
    /// For each path, the paths whose content it may have because of renames.
    owners: Vec<BTreeSet<usize>>,
    /// Paths at which a write failed. Such a file may be empty.
    torn: BTreeSet<usize>,
}

impl Model {
    fn record(&self, serial: usize, index: usize) -> [u8; RECORD] {
        let mut record = [b'r'; RECORD];
        record[1] = self.written[serial].path as u8;
        record[2..6].copy_from_slice(&(serial as u32).to_le_bytes());
        record[6..10].copy_from_slice(&(index as u32).to_le_bytes());
        record
    }

    /// Records a write and returns the bytes to write.
    fn write(&mut self, path: usize, records: usize, appended: bool) -> Vec<u8> {
        let serial = self.written.len();
        self.written.push(Written { path, records, appended, cut: false });
        (0..records).flat_map(|index| self.record(serial, index)).collect()
    }

    fn is_torn(&self, path: usize) -> bool {
        self.owners[path].iter().any(|owner| self.torn.contains(owner))
    }

    fn renamed(&mut self, from: usize, to: usize) {
        let owners = self.owners[from].clone();
        self.owners[to].extend(owners);
    }

    /// Checks whether a path may have this content; an error gives the reason.
    fn refuse(&self, path: usize, content: &[u8]) -> Result<(), String> {
        let torn = self.is_torn(path);
        if content.is_empty() {
            return if torn { Ok(()) } else { Err("it is empty".into()) };
        }
        let mut last: Option<(usize, usize)> = None;
        let whole = |(serial, index): (usize, usize)| {
            let written = &self.written[serial];
            torn || written.cut || index + 1 == written.records
        };
        for (at, record) in content.chunks(RECORD).enumerate() {
            let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX) as usize;
            let refused = |why: &str| Err(format!("record {at}: {why}: {record:02x?}"));
            if record.len() < RECORD {
                return refused("a part of one");
            }
            let (serial, index) = (number(&record[2..6]), number(&record[6..10]));
            let Some(written) = self.written.get(serial) else { return refused("nobody wrote it") };
            if index >= written.records || record[..] != self.record(serial, index) {
                return refused("nobody wrote it");
            }
            if !self.owners[path].contains(&written.path) {
                return refused("it was written to another file");
            }
            let follows = match last {
                None => index == 0 && (!written.appended || torn),
                Some((before, was)) if before == serial => index == was + 1,
                Some((before, was)) => written.appended && serial > before && whole((before, was)),
            };
            if !follows {
                return refused("it does not follow the one before");
            }
            last = Some((serial, index));
        }
        match last {
            Some(last) if !whole(last) => Err("its end is missing".into()),
            _ => Ok(()),
        }
    }
}

/// A file that a program holds open.
struct Held {
    side: usize,
    path: usize,
    file: File,
}

/// Both sides.
pub struct World {
    vaults: [Vault; 2],
    paths: Vec<PathBuf>,
    /// Where each path is stored, relative to the store.
    stored: Vec<PathBuf>,
    model: Model,
    log: Vec<String>,
    pub seen: Seen,
}

impl World {
    /// Creates both stores, one at each place.
    pub fn new(places: [PathBuf; 2]) -> World {
        places.iter().for_each(|place| fs::create_dir(place).expect("directory"));
        let stores = places.map(|place| place.join("vault"));
        let one = Vault::at(&stores[0], "aes-256-ctr");
        let name = |n: usize| if n % 3 == 2 { format!("{n}{}", "n".repeat(180)) } else { n.to_string() };
        let paths: Vec<_> =
            DIRS.iter().flat_map(|dir| (0..FILES).map(move |n| Path::new(dir).join(name(n)))).collect();
        let owners = (0..paths.len()).map(|path| BTreeSet::from([path])).collect();
        let mut model = Model { written: Vec::new(), owners, torn: BTreeSet::new() };
        let mount = one.mount();
        DIRS[1..].iter().for_each(|dir| fs::create_dir(mount.join(dir)).expect("directory"));
        for (number, path) in paths.iter().enumerate() {
            fs::write(mount.join(path), model.write(number, 1 + 40 * number, false)).expect("write");
        }
        let below = |path: &PathBuf| {
            let stored = stored(&one, &mount.join(path));
            stored.strip_prefix(&one.store).expect("in the store").to_path_buf()
        };
        let stored = paths.iter().map(below).collect();
        mount.unmount();
        sh("/", "cp -a \"$1\" \"$2\"", &[&stores[0], &stores[1]], 60);
        let two = one.with_store(&stores[1]);
        World { vaults: [one, two], paths, stored, model, log: Vec::new(), seen: Seen::default() }
    }

    /// Performs `steps` operations, and checks everything after a remount.
    pub fn run(&mut self, steps: usize, random: &mut Random) {
        let World { vaults, paths, stored, model, log, seen } = self;
        let mut mounts = vaults.each_ref().map(|vault| Some(vault.mount()));
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..steps {
            let side = random.below(2) as usize;
            let path = random.below(paths.len() as u64) as usize;
            let stores = [&vaults[side].store, &vaults[1 - side].store];
            if random.once_in(150) {
                held.retain(|held| held.side != side);
                log.push(format!("{side}: mount anew"));
                // Some writes over externally modified files may have been refused, which umount would
                // report.
                mounts[side] = None;
                mounts[side] = Some(vaults[side].mount());
            } else if random.once_in(3) {
                seen.synced += 1;
                // While a program has a file open, the kernel may keep its name cached for up to a
                // minute.
                let may_move = !held.iter().any(|held| held.path / 2 == path / 2);
                seen.reused += usize::from(sync(stores, (path, may_move), stored, model, log, random));
            } else {
                let mount = mounts[side].as_ref().expect("mounted");
                let mut program = Program { side, mount, paths, model, log, seen };
                program.step(path, &mut held, random);
            }
        }
        held.clear();
        drop(mounts);
        for (side, vault) in vaults.iter().enumerate() {
            let mount = vault.mount();
            let mut program = Program { side, mount: &mount, paths, model, log, seen };
            (0..program.paths.len()).for_each(|path| program.read(path));
            assert!(mount.alive(), "the mount died:\n{}", vault.log_text());
        }
    }
}

/// Operations of the programs on one side.
struct Program<'a, 'v> {
    side: usize,
    mount: &'a Mount<'v>,
    paths: &'a [PathBuf],
    model: &'a mut Model,
    log: &'a mut Vec<String>,
    seen: &'a mut Seen,
}

impl Program<'_, '_> {
    fn step(&mut self, path: usize, held: &mut Vec<Held>, random: &mut Random) {
        let at = self.mount.join(&self.paths[path]);
        match random.below(18) {
            0..6 => self.read(path),
            6 => {
                let dir = at.parent().expect("a directory");
                self.log.push(format!("{}: list", self.side));
                if let Ok(entries) = fs::read_dir(dir) {
                    entries.flatten().for_each(|entry| drop(entry.metadata()));
                }
            }
            7 | 8 | 16 | 17 => {
                let content = self.model.write(path, 1 + random.below(300) as usize, false);
                let written = File::create(&at).and_then(|file| finish(file, &content));
                self.note("write", path, written);
            }
            9 | 10 => {
                let content = self.model.write(path, 1, true);
                let opened = OpenOptions::new().append(true).open(&at);
                // If the open failed, nothing was written to any file.
                let written = opened.and_then(|file| finish(file, &content));
                self.note("append", path, written);
            }
            11 => {
                let renamed = fs::rename(&at, self.mount.join(&self.paths[path ^ 1]));
                if renamed.is_ok() {
                    self.model.renamed(path, path ^ 1);
                    // From here on, a descriptor opened at the old path refers to the new one.
                    self.model.renamed(path ^ 1, path);
                }
                self.note("rename", path, renamed);
            }
            12 if random.once_in(2) => {
                let removed = fs::remove_file(&at);
                self.note("remove", path, removed);
            }
            13 => {
                // The file may contain any version that was ever written there.
                let owners = self.model.owners[path].clone();
                let is_owned = |written: &&mut Written| owners.contains(&written.path);
                self.model.written.iter_mut().filter(is_owned).for_each(|written| written.cut = true);
                let cut = OpenOptions::new().write(true).open(&at).and_then(|file| {
                    let records = file.metadata()?.len() / RECORD as u64;
                    file.set_len((1 + random.below(records)).min(records) * RECORD as u64)?;
                    file.sync_all()
                });
                self.note("cut", path, cut);
            }
            14 if held.len() < HELD => {
                match OpenOptions::new().read(true).write(true).open(&at) {
                    Ok(file) => held.push(Held { side: self.side, path, file }),
                    Err(error) => self.expect(&error),
                }
                self.log.push(format!("{}: hold {path}", self.side));
            }
            _ if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                self.side = held[at].side;
                self.use_held(&held[at], random);
                if random.once_in(2) {
                    // Close makes its writes durable.
                    let _ = close(held.swap_remove(at).file);
                }
            }
            _ => self.read(path),
        }
    }

    fn read(&mut self, path: usize) {
        self.log.push(format!("{}: read {path}", self.side));
        let mut content = Vec::new();
        let read = File::open(self.mount.join(&self.paths[path]))
            .and_then(|mut file| file.read_to_end(&mut content));
        self.judge(path, read.map(|_| content));
    }

    fn use_held(&mut self, held: &Held, random: &mut Random) {
        let path = held.path;
        let len = held.file.metadata().map_or(0, |meta| meta.len());
        if random.once_in(2) {
            self.log.push(format!("{}: read held {path}", self.side));
            let mut content = vec![0; len as usize];
            let read = held.file.read_exact_at(&mut content, 0);
            return self.judge(path, read.map(|()| content));
        }
        let content = self.model.write(path, 1, true);
        let written = held.file.write_all_at(&content, len).and_then(|()| held.file.sync_all());
        self.note("append to held", path, written);
    }

    fn judge(&mut self, path: usize, read: io::Result<Vec<u8>>) {
        match read {
            Ok(content) => {
                self.seen.read += 1;
                if let Err(why) = self.model.refuse(path, &content) {
                    let log = self.log.join("\n");
                    panic!("{}: {} reads wrong: {why}\n{log}", self.side, self.paths[path].display());
                }
            }
            Err(error) => {
                self.seen.read_errors += 1;
                self.expect(&error);
            }
        }
    }

    fn note(&mut self, what: &str, path: usize, done: io::Result<()>) {
        let said = done.as_ref().err().map(|error| format!(": {error}")).unwrap_or_default();
        self.log.push(format!("{}: {what} {path} as {}{said}", self.side, self.model.written.len() - 1));
        self.seen.changed += 1;
        if let Err(error) = done {
            self.seen.change_errors += 1;
            self.model.torn.insert(path);
            self.expect(&error);
        }
    }

    fn expect(&self, error: &io::Error) {
        let beyond = error.kind() == io::ErrorKind::UnexpectedEof;
        assert!(beyond || is_expected(error), "{}: {error}\n{}", self.side, self.log.join("\n"));
    }
}

fn finish(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

/// One step of the program that keeps the second store like the first. Returns whether an inode number
/// was reused.
fn sync(
    [from, to]: [&PathBuf; 2],
    (path, may_move): (usize, bool),
    stored: &[PathBuf],
    model: &mut Model,
    log: &mut Vec<String>,
    random: &mut Random,
) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.ino()).ok();
    let [source, target] = [from, to].map(|store| store.join(&stored[path]));
    let other = random.below(stored.len() as u64) as usize;
    let copy = || {
        // The sidecar of a long name is copied first.
        if source.exists() && target.parent().is_some_and(Path::exists) {
            let sidecar = |path: &Path| PathBuf::from(format!("{}.name", path.display()));
            if sidecar(&source).exists() {
                replace(&sidecar(&source), &sidecar(&target));
            }
            replace(&source, &target);
        }
    };
    match random.below(8) {
        0 => {
            log.push(format!("sync: remove {path} from {}", to.display()));
            let _ = fs::remove_file(&target);
            false
        }
        1 if may_move => {
            log.push(format!("sync: rename {path} in {}", to.display()));
            if target.exists() && fs::rename(&target, to.join(&stored[path ^ 1])).is_ok() {
                model.renamed(path, path ^ 1);
            }
            false
        }
        2 => {
            log.push(format!("sync: make {} anew", to.display()));
            let dir = Path::new("a");
            let inner =
                stored.iter().find(|path| path.components().count() == 2).and_then(|path| path.parent());
            let dir = inner.unwrap_or(dir);
            let script = "test -d \"$1\" || exit 0; rm -rf \"$2\" && cp -r \"$1\" \"$3\" && mv \"$3\" \"$2\"";
            sh("/", script, &[&from.join(dir), &to.join(dir), &to.join(".copy")], 60);
            false
        }
        3..6 => {
            log.push(format!("sync: remove {other}, copy {path} to {}", to.display()));
            let gone = to.join(&stored[other]);
            let freed = number(&gone);
            if other != path {
                let _ = fs::remove_file(&gone);
            }
            copy();
            freed.is_some() && number(&target) == freed
        }
        _ => {
            log.push(format!("sync: copy {path} to {}", to.display()));
            let before = number(&target);
            copy();
            before.is_some() && number(&target) == before
        }
    }
}
