//! A store that an attacker changes at random, both unmounted and mounted. Nothing is ever read that was
//! not stored, the mount keeps answering until its end, and data written and confirmed in between is
//! kept.
//!
//! `ROUNDS=1000 cargo test --release --test mounted hostile_store` runs more rounds.

mod saboteur;

use crate::support::{
    command,
    images::{Reading, options},
    mounted::Vault,
    random::Random,
    ready, say, setting,
    store::inode,
};
use rustix::{fs::XattrFlags, io::Errno};
use saboteur::Saboteur;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, File, OpenOptions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

const CHUNK: usize = 4096;
/// Attributes of some of the nodes, and the lengths of their values.
const ATTRIBUTES: [(&str, usize); 2] = [("user.x", 40), ("user.long", 65_536)];
/// Number of copies of the tree in the vault.
const TREES: usize = 4;

/// Everything that was ever stored.
#[derive(Default)]
struct Stored {
    /// Each file's contents in the three states of the store.
    contents: Vec<[Vec<u8>; 3]>,
    names: HashSet<Vec<u8>>,
    targets: HashSet<PathBuf>,
    values: HashSet<Vec<u8>>,
}

/// Sizes around the boundaries of the layout.
fn sizes() -> [usize; 9] {
    [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 100, 48 * CHUNK, 48 * CHUNK + 1, 113 * CHUNK + 5]
}

impl Stored {
    /// Creates a tree with every kind of node.
    fn make(&mut self, dir: &Path, random: &mut Random) {
        self.dir(dir);
        for size in sizes() {
            let content = random.bytes(size);
            self.file(&dir.join(format!("of {size}")), content);
        }
        let mut sparse = vec![0; 300 * CHUNK];
        for index in [7, 60, 299] {
            random.fill(&mut sparse[index * CHUNK..][..CHUNK]);
        }
        let path = dir.join("sparse");
        self.file(&path, Vec::new());
        let file = OpenOptions::new().write(true).open(&path).expect("open");
        file.set_len(sparse.len() as u64).expect("length");
        for index in [7, 60, 299] {
            let at = index * CHUNK;
            file.write_all_at(&sparse[at..at + CHUNK], at as u64).expect("write");
        }
        // The length was set first, so the all-zero content counts as a version.
        *self.contents.last_mut().expect("a file") = [vec![0; sparse.len()], sparse.clone(), sparse];
        fs::hard_link(dir.join("of 4097"), self.name(dir, "another name")).expect("link");
        for (name, target) in [("link", "of 1".to_owned()), ("long link", "t".repeat(1500))] {
            symlink(&target, self.name(dir, name)).expect("link");
            self.targets.insert(target.into());
        }
        let long = dir.join("d".repeat(200));
        self.dir(&long);
        self.file(&long.join("f".repeat(255)), random.bytes(5000));
        symlink("x", self.name(&long, &"l".repeat(161))).expect("link");
        self.targets.insert("x".into());
        let mut deep = dir.to_path_buf();
        for level in 0..5 {
            deep = deep.join(format!("level {level}"));
            self.dir(&deep);
        }
        self.file(&deep.join("bottom"), b"here".to_vec());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            self.name(dir, "pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("pipe");
        for path in [dir.to_path_buf(), dir.join("of 1"), dir.join("of 4096")] {
            // The longer value fits into no store once encryption has added its overhead.
            for (name, len) in ATTRIBUTES {
                let value = random.bytes(len);
                // Not every tmpfs supports them.
                if rustix::fs::setxattr(&path, name, &value, XattrFlags::empty()).is_ok() {
                    self.values.insert(value);
                }
            }
        }
    }

    fn name(&mut self, dir: &Path, name: &str) -> PathBuf {
        self.names.insert(name.as_bytes().to_vec());
        dir.join(name)
    }

    fn dir(&mut self, dir: &Path) {
        fs::create_dir(dir).expect("directory");
        self.names.insert(dir.file_name().expect("a name").as_bytes().to_vec());
    }

    fn file(&mut self, path: &Path, content: Vec<u8>) {
        fs::write(path, &content).expect("file");
        self.names.insert(path.file_name().expect("a name").as_bytes().to_vec());
        self.contents.push([content.clone(), content.clone(), content]);
    }

    /// Whether a reading is acceptable: empty, or all readable chunks belong to two consecutive states.
    /// The first state has no predecessor; its missing chunks read as zeros. If `whole`, the reading
    /// must also have the right length.
    fn allows(&self, reading: &Reading, whole: bool) -> bool {
        let chunk_is = |content: &Vec<u8>, index: usize, chunk: &[u8]| {
            let from = (index * CHUNK).min(content.len());
            let mut was = content[from..content.len().min(from + chunk.len())].to_vec();
            was.resize(chunk.len(), 0);
            was == chunk
        };
        let all = |contents: &[Vec<u8>]| {
            let one = |(index, chunk): (usize, &Result<Vec<u8>, Errno>)| match chunk {
                Ok(chunk) => contents.iter().any(|content| chunk_is(content, index, chunk)),
                Err(_) => true,
            };
            let len = |content: &Vec<u8>| content.len().div_ceil(CHUNK) == reading.chunks.len();
            let failed = reading.chunks.iter().any(Result::is_err);
            (failed || !whole || contents.iter().any(len)) && reading.chunks.iter().enumerate().all(one)
        };
        // The record before the newest one still exists, and belongs to a version that was being written
        // over its predecessor.
        let first = |states: &[Vec<u8>; 3]| all(&[Vec::new(), states[0].clone()]);
        let of_file = |states: &[Vec<u8>; 3]| first(states) || all(&states[..2]) || all(&states[1..]);
        reading.chunks.is_empty() || self.contents.iter().any(of_file)
    }
}

/// Results of reading everything in a mount.
#[derive(Default)]
struct Look {
    /// Number of successful reads, and of occurrences of each error.
    read: usize,
    errors: BTreeMap<(&'static str, i32), usize>,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    wrong: Vec<String>,
    /// Whether the store changes concurrently. If so, the kernel may end a file at its size of a moment
    /// before.
    live: bool,
}

impl Look {
    /// Examines everything below `dir`.
    fn at(stored: &Stored, mine: &BTreeSet<PathBuf>, dir: &Path, live: bool) -> Look {
        let mut look = Look { live, ..Look::default() };
        look.dir(stored, mine, dir, 0);
        look
    }

    fn dir(&mut self, stored: &Stored, mine: &BTreeSet<PathBuf>, dir: &Path, depth: usize) {
        let Some(entries) = self.note("list", fs::read_dir(dir)) else { return };
        self.dirs.push(dir.to_path_buf());
        self.value(stored, dir);
        for entry in entries {
            let Some(entry) = self.note("list", entry) else { continue };
            let path = entry.path();
            if mine.contains(&path) {
                continue;
            }
            let name = entry.file_name();
            if !stored.names.contains(name.as_bytes()) {
                self.wrong.push(format!("a name that nobody gave: {}", path.display()));
            }
            let Some(meta) = self.note("stat", fs::symlink_metadata(&path)) else { continue };
            let kind = meta.file_type();
            if kind.is_dir() && depth < 30 {
                self.dir(stored, mine, &path, depth + 1);
            } else if kind.is_symlink() {
                if let Some(target) = self.note("readlink", fs::read_link(&path))
                    && !stored.targets.contains(&target)
                {
                    self.wrong.push(format!("a target that nobody gave: {}", target.display()));
                }
            } else if kind.is_file() {
                self.file(stored, &path, meta.len());
                self.value(stored, &path);
            }
        }
    }

    fn file(&mut self, stored: &Stored, path: &Path, size: u64) {
        // Read a forged length only as far as any real file extends.
        let reading = Reading::of(path, 400 * CHUNK);
        assert!(reading.chunks.len() < 1000, "{} does not end", path.display());
        if !path.ends_with("witness") {
            self.files.push(path.to_path_buf());
        }
        self.read += reading.chunks.iter().filter(|chunk| chunk.is_ok()).count();
        for error in reading.chunks.iter().filter_map(|chunk| chunk.as_ref().err()) {
            *self.errors.entry(("read", error.raw_os_error())).or_default() += 1;
        }
        if !stored.allows(&reading, !self.live) {
            let brief = |chunk: &Result<Vec<u8>, Errno>| match chunk {
                Ok(bytes) => format!("{}:{:02x?}", bytes.len(), &bytes[..bytes.len().min(4)]),
                Err(error) => error.to_string(),
            };
            let chunks: Vec<String> = reading.chunks.iter().take(3).map(brief).collect();
            self.wrong.push(format!(
                "{} (inode {}, {size} bytes, {} chunks) reads as it never was: {}",
                path.display(),
                inode(path),
                reading.chunks.len(),
                chunks.join(" ")
            ));
        }
    }

    fn value(&mut self, stored: &Stored, path: &Path) {
        let mut value = vec![0; 65_536];
        for (name, _) in ATTRIBUTES {
            match rustix::fs::lgetxattr(path, name, &mut value) {
                Ok(len) if stored.values.contains(&value[..len]) => {}
                Ok(_) => self.wrong.push(format!("{} has a value of {name} that nobody set", path.display())),
                Err(Errno::NODATA) => {}
                Err(error) => *self.errors.entry(("getxattr", error.raw_os_error())).or_default() += 1,
            }
        }
    }

    fn note<T>(&mut self, what: &'static str, result: std::io::Result<T>) -> Option<T> {
        if let Err(error) = &result {
            *self.errors.entry((what, error.raw_os_error().unwrap_or(0))).or_default() += 1;
        }
        result.ok()
    }
}

/// The vault as stored, and everything that may be read from it.
struct World {
    vault: Vault,
    stored: Stored,
    /// Snapshots of the store: clean, modified and clean again, killed in the middle of a modification.
    states: Vec<PathBuf>,
}

impl World {
    fn new(random: &mut Random) -> World {
        let vault = Vault::in_memory("aes-128-ctr");
        let mut stored = Stored::default();
        let mut states = Vec::new();
        let mut keep = |vault: &Vault| {
            let state = vault.store.with_extension(format!("state {}", states.len()));
            command::sh("/", "cp -a \"$1\" \"$2\"", &[&vault.store, &state], 60);
            states.push(state);
        };
        let mount = vault.mount();
        for tree in 0..TREES {
            stored.make(&mount.join(format!("tree {tree}")), random);
        }
        fs::write(stored.name(mount.path(), "witness"), b"untouched").expect("file");
        stored.contents.push([(); 3].map(|()| b"untouched".to_vec()));
        mount.unmount();
        keep(&vault);
        for state in [1, 2] {
            let mount = vault.mount();
            for tree in 0..TREES {
                for (number, size) in sizes().into_iter().enumerate() {
                    let path = mount.join(format!("tree {tree}")).join(format!("of {size}"));
                    // A tree has more files than these sizes: the sparse one and those in its
                    // directories.
                    let content = &mut stored.contents[tree * (sizes().len() + 3) + number];
                    change(&path, content, state, random);
                }
            }
            if state == 1 {
                mount.unmount()
            } else {
                mount.kill()
            }
            keep(&vault);
        }
        World { vault, stored, states }
    }

    /// Restores a state.
    fn restore(&self, state: usize) {
        let script = "rm -rf \"$2\"/* && cp -a \"$1\"/. \"$2\"";
        command::sh("/", script, &[&self.states[state], &self.vault.store], 60);
    }

    /// Mounts the modified store, examines it, writes to it, and examines it again after a remount.
    /// Returns what it found.
    fn inspect(&self, random: &mut Random, saboteur: &Saboteur) -> Option<Look> {
        let options: &[&str] = if random.once_in(4) { &["--read-only"] } else { &[] };
        let done = self.vault.try_mount(options);
        if !done.status.success() {
            assert!(saboteur.hit_root(), "does not mount: {}", done.stderr);
            return None;
        }
        command::ok(Vault::program().arg("umount").arg(&self.vault.mount_point), 60);
        let (mut mine, mut kept) = (BTreeSet::new(), Vec::new());
        let mount = self.vault.mount_with(options);
        let mut look = Look::at(&self.stored, &mine, mount.path(), false);
        let probe = random.bytes(CHUNK + 77);
        let dirs = if options.is_empty() { look.dirs.clone() } else { Vec::new() };
        for dir in dirs {
            let path = dir.join("probe");
            let written = File::create_new(&path).and_then(|file| {
                file.write_all_at(&probe, 0)?;
                file.sync_all()
            });
            mine.insert(path.clone());
            if look.note("write", written).is_some() {
                kept.push(path);
            }
        }
        assert!(mount.alive(), "the mount died:\n{}", self.vault.log_text());
        assert_eq!(fs::read(mount.join("witness")).expect("another file"), b"untouched");
        let mount = mount.remount();
        for path in kept {
            let read = fs::read(&path);
            if read.as_ref().ok() != Some(&probe) {
                look.wrong.push(format!("{}: confirmed and lost: {:?}", path.display(), read.err()));
            }
        }
        let again = Look::at(&self.stored, &mine, mount.path(), false);
        look.wrong.extend(again.wrong.into_iter().map(|wrong| format!("after another mount: {wrong}")));
        if options.is_empty() {
            look.files.iter().for_each(|path| work_on(path, random));
        }
        assert!(mount.alive(), "the mount died:\n{}", self.vault.log_text());
        // Not everything written to damaged files can be stored, and umount would report that.
        drop(mount);
        Some(look)
    }
}

/// Modifies a file: completely in state 1; in state 2 the mount is killed halfway.
fn change(path: &Path, states: &mut [Vec<u8>; 3], state: usize, random: &mut Random) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    let mut content = states[state - 1].clone();
    for _ in 0..3 {
        let at = random.below(content.len() as u64 + 1) as usize;
        let len = 1 + random.below(6000) as usize;
        let bytes = random.bytes(len);
        file.write_all_at(&bytes, at as u64).expect("write");
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    file.sync_all().expect("fsync");
    states[state..].fill(content);
}

/// Uses a damaged file as programs would; only the end of the mount is a failure.
fn work_on(path: &Path, random: &mut Random) {
    if let Ok(file) = options().read(true).write(true).open(path) {
        let _ = file.write_at(&random.bytes(100), random.below(500_000));
        let _ = file.set_len(random.below(600_000));
        let _ = file.sync_all();
        let _ = file.read_at(&mut [0; 9000], random.below(500_000));
    }
    let moved = path.with_file_name("moved");
    match random.below(6) {
        0 => drop(fs::rename(path, &moved)),
        1 => drop(fs::remove_file(path)),
        2 => drop(fs::hard_link(path, &moved)),
        3 => drop(rustix::fs::setxattr(path, "user.x", b"y", XattrFlags::empty())),
        4 => drop(rustix::fs::removexattr(path, "user.x")),
        _ => drop(options().write(true).truncate(true).open(path).map(|file| file.write_at(b"anew", 0))),
    }
}

#[test]
fn a_changed_store_reads_as_it_was_or_not_at_all() {
    if !ready(&[]) {
        return;
    }
    let rounds = setting("ROUNDS").unwrap_or(12);
    let mut random = Random::new("hostile store");
    let world = World::new(&mut random);
    for state in 0..world.states.len() {
        world.restore(state);
        let look = world.inspect(&mut random, &Saboteur::new(&world.vault.store, &world.states));
        let look = look.expect("an untouched store mounts");
        assert!(look.wrong.is_empty() && look.errors.is_empty(), "{:?} {:?}", look.wrong, look.errors);
    }
    let (mut changes, mut read, mut errors) = (0, 0, BTreeMap::<_, usize>::new());
    for round in 0..rounds {
        let state = random.below(world.states.len() as u64) as usize;
        world.restore(state);
        let mut saboteur = Saboteur::new(&world.vault.store, &world.states);
        (0..1 + random.below(60)).for_each(|_| saboteur.strike(&mut random));
        changes += saboteur.done.len();
        let Some(look) = world.inspect(&mut random, &saboteur) else { continue };
        let did = saboteur.done.join("\n");
        assert!(
            look.wrong.is_empty(),
            "round {round}, state {state}:\n{}\nafter\n{did}",
            look.wrong.join("\n")
        );
        read += look.read;
        look.errors.into_iter().for_each(|(error, count)| *errors.entry(error).or_default() += count);
        assert!(!world.vault.log_text().contains("panicked"), "{}", world.vault.log_text());
        fs::write(&world.vault.log, b"").expect("an empty log");
    }
    say(format_args!("{changes} changes, {read} chunks read, errors {errors:?}"));
}

#[test]
fn a_store_that_changes_under_a_mount_is_survived() {
    if !ready(&[]) {
        return;
    }
    let rounds = setting("ROUNDS").unwrap_or(6);
    let mut random = Random::new("hostile store, mounted");
    let world = World::new(&mut random);
    for round in 0..rounds {
        world.restore(random.below(world.states.len() as u64) as usize);
        let mut saboteur = Saboteur::new(&world.vault.store, &world.states);
        let mount = world.vault.mount();
        let done = AtomicBool::new(false);
        let mut other = Random::from_seed(random.next());
        let wrong = std::thread::scope(|scope| {
            let _end = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && saboteur.done.len() < 400 {
                    saboteur.strike(&mut other);
                }
            });
            let mut wrong = Vec::new();
            for _ in 0..3 {
                let look = Look::at(&world.stored, &BTreeSet::new(), mount.path(), true);
                wrong.extend(look.wrong);
            }
            done.store(true, Ordering::Relaxed);
            wrong
        });
        let did = saboteur.done.join("\n");
        assert!(wrong.is_empty(), "round {round}:\n{}\nafter\n{did}", wrong.join("\n"));
        let look = Look::at(&world.stored, &BTreeSet::new(), mount.path(), true);
        look.files.iter().for_each(|path| work_on(path, &mut random));
        assert!(mount.alive(), "the mount died:\n{}", world.vault.log_text());
        assert_eq!(fs::read(mount.join("witness")).expect("another file"), b"untouched");
        // Some writes over externally modified files may have been refused, which umount would report.
        drop(mount);
        assert!(!world.vault.log_text().contains("panicked"), "{}", world.vault.log_text());
    }
}
