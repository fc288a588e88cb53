//! Two hundred damaged items of every kind in one vault: `check` reports each and nothing else,
//! everything else reads completely, and `check --repair` recovers everything recoverable.
//!
//! `DAMAGE_MB` is the amount of data in the vault in MB (default 100).

use crate::support::{
    command::{Done, run},
    mounted::Vault,
    random::Random,
    ready,
    store::by_inode,
};
use format::layout::{CHUNK, GROUP0, chunk_offset, entries_offset, group_of, groups, node_offset};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// Number of damaged files, and of intact ones.
const DAMAGED: usize = 200;
const WHOLE: usize = 60;
/// Maximum duration of a check, in seconds.
const LIMIT: u64 = 600;

/// The kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Chunk,
    Slot,
    Node,
    OneRecord,
    BothRecords,
    Cut,
    Grown,
    Blank,
    Foreign,
    Name,
    Sidecar,
    DirId,
    NoDirId,
    Link,
    Attribute,
}

const KINDS: [Kind; 15] = [
    Kind::Chunk,
    Kind::Slot,
    Kind::Node,
    Kind::OneRecord,
    Kind::BothRecords,
    Kind::Cut,
    Kind::Grown,
    Kind::Blank,
    Kind::Foreign,
    Kind::Name,
    Kind::Sidecar,
    Kind::DirId,
    Kind::NoDirId,
    Kind::Link,
    Kind::Attribute,
];

/// A file (or link) of the vault, and the damage done to it.
struct Item {
    number: usize,
    kind: Option<Kind>,
    /// Relative to the root of the vault.
    path: PathBuf,
    size: u64,
    /// Index of the damaged chunk.
    hit: u64,
}

impl Item {
    fn new(number: usize, size: u64, random: &mut Random) -> Item {
        let kind = (number < DAMAGED).then(|| KINDS[number % KINDS.len()]);
        let name = match kind {
            Some(Kind::Sidecar) => format!("{number:->200}"),
            _ => format!("file {number}"),
        };
        // Damage to a directory is done to one that holds only this item.
        let dir = match kind {
            Some(Kind::DirId | Kind::NoDirId) => format!("directory {number}"),
            _ => format!("directory of {}", number % 7),
        };
        let size = size / 2 + random.below(size) + (GROUP0 + 70) * CHUNK;
        Item { number, kind, path: Path::new(&dir).join(name), size, hit: random.below(size / CHUNK) }
    }

    /// Content of chunk `index`.
    fn chunk(&self, index: u64) -> Vec<u8> {
        let mut random = Random::from_seed(self.number as u64 * 1_000_003 + index);
        let len = (self.size - index * CHUNK).min(CHUNK) as usize;
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(random.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    fn make(&self, root: &Path) {
        let path = root.join(&self.path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        if self.kind == Some(Kind::Link) {
            return symlink("somewhere", path).expect("symlink");
        }
        let file = File::create(&path).expect("create");
        let all = Vec::from_iter(0..self.size.div_ceil(CHUNK));
        for some in all.chunks(1024) {
            let bytes: Vec<u8> = some.iter().flat_map(|index| self.chunk(*index)).collect();
            file.write_all_at(&bytes, some[0] * CHUNK).expect("write");
        }
        if self.kind == Some(Kind::Attribute) {
            rustix::fs::setxattr(&path, "user.note", b"value", rustix::fs::XattrFlags::empty())
                .expect("setxattr");
        }
    }

    /// Damages the stored form of this item.
    fn damage(&self, stored: &Path) {
        let file = || OpenOptions::new().read(true).write(true).open(stored).expect("open");
        let flip = |at: u64| {
            let (file, mut byte) = (file(), [0]);
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 0x10], at).expect("write");
        };
        let dir = stored.parent().expect("a directory");
        match self.kind.expect("damaged") {
            Kind::Chunk => flip(chunk_offset(self.hit) + self.hit % 4000),
            Kind::Slot => flip(entries_offset(group_of(self.hit)) + self.hit % 48 * 64 + self.hit % 30),
            Kind::Node => flip(node_offset(1, 0) + self.hit % 4096),
            Kind::OneRecord => flip(self.hit % 1024),
            Kind::BothRecords => [480, 1000].into_iter().for_each(flip),
            Kind::Cut => {
                let file = file();
                file.set_len(file.metadata().expect("stat").len() - 10 - self.hit % 4000).expect("cut");
            }
            Kind::Grown => {
                let file = file();
                file.set_len(file.metadata().expect("stat").len() + 1 + self.hit % 9000).expect("grow");
            }
            Kind::Blank => file().write_all_at(&[0; 1024], 0).expect("write"),
            Kind::Foreign => file().write_all_at(&[0xaa; 4096], 0).expect("write"),
            Kind::Name => {
                let name = stored.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
                let other = if name.starts_with('A') { "B" } else { "A" };
                fs::rename(stored, dir.join(other.to_owned() + &name[1..])).expect("rename");
            }
            Kind::Sidecar => {
                let name = stored.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
                fs::remove_file(dir.join(name + ".name")).expect("remove");
            }
            Kind::DirId => fs::write(dir.join("warpcrypt.dir"), [7; 32]).expect("write"),
            Kind::NoDirId => fs::remove_file(dir.join("warpcrypt.dir")).expect("remove"),
            Kind::Link => {
                fs::remove_file(stored).expect("remove");
                symlink("elsewhere", stored).expect("symlink");
            }
            Kind::Attribute => {
                let mut name = vec![0; 1000];
                let len = rustix::fs::listxattr(stored, &mut name).expect("listxattr");
                let name = &name[..len.min(name.iter().position(|byte| *byte == 0).expect("a name"))];
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(stored, name, &[7; 40], flags).expect("setxattr");
            }
        }
    }

    /// Chunks of `path` that cannot be read. Asserts that everything readable is what was written.
    fn unreadable(&self, path: &Path) -> BTreeSet<u64> {
        let all = 0..self.size.div_ceil(CHUNK);
        let Ok(file) = File::open(path) else { return all.collect() };
        let mut buffer = vec![0; 1 << 20];
        let mut lost = BTreeSet::new();
        for some in Vec::from_iter(all).chunks(256) {
            let wanted: Vec<u8> = some.iter().flat_map(|index| self.chunk(*index)).collect();
            match file.read_exact_at(&mut buffer[..wanted.len()], some[0] * CHUNK) {
                Ok(()) => assert!(buffer[..wanted.len()] == wanted, "{}: false", path.display()),
                Err(_) => lost.extend(some.iter().filter(|index| !self.reads(&file, **index))),
            }
        }
        lost
    }

    fn reads(&self, file: &File, index: u64) -> bool {
        let wanted = self.chunk(index);
        let mut bytes = vec![0; wanted.len()];
        let read = file.read_exact_at(&mut bytes, index * CHUNK).is_ok();
        assert!(!read || bytes == wanted, "chunk {index} of file {} is false", self.number);
        read
    }

    /// The path at which the finding for this item is reported.
    fn place(&self) -> &Path {
        match self.kind {
            // The name is lost, or all names in the directory are.
            Some(Kind::Name | Kind::Sidecar | Kind::DirId | Kind::NoDirId) => {
                self.path.parent().expect("directory")
            }
            _ => &self.path,
        }
    }
}

fn check(vault: &Vault, options: &[&str]) -> (Done, Value) {
    let mut command = Vault::program();
    command
        .arg("check")
        .arg(&vault.store)
        .arg("--key-file")
        .arg(&vault.key)
        .args(["--full", "--json"])
        .args(options);
    let done = run(&mut command, LIMIT);
    let value = serde_json::from_str(&done.text()).unwrap_or_else(|e| panic!("{e}: {}", done.stderr));
    (done, value)
}

/// Paths of the findings of one kind, with the number of findings for each.
fn of_kind(found: &Value, kind: &str) -> BTreeMap<PathBuf, usize> {
    let mut paths = BTreeMap::new();
    for finding in found["findings"].as_array().expect("a list") {
        if finding["kind"] == kind {
            *paths.entry(finding["path"].as_str().expect("text").into()).or_default() += 1;
        }
    }
    paths
}

#[test]
fn every_damage_is_named_and_what_can_be_is_repaired() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("damage");
    let size = crate::support::setting("DAMAGE_MB").unwrap_or(100) * 1_000_000 / (DAMAGED + WHOLE) as u64;
    let items: Vec<Item> = (0..DAMAGED + WHOLE).map(|n| Item::new(n, size, &mut random)).collect();
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    items.iter().for_each(|item| item.make(mount.path()));
    let inodes: HashMap<usize, u64> = items
        .iter()
        .map(|item| (item.number, crate::support::store::inode(&mount.join(&item.path))))
        .collect();
    mount.unmount();
    assert_eq!(check(&vault, &[]).0.code(), 0);
    let stored = by_inode(&vault.store);
    for item in items.iter().filter(|item| item.kind.is_some()) {
        item.damage(&stored[&inodes[&item.number]]);
    }
    fs::write(vault.store.join(".DS_Store"), "x").expect("write");

    named(&vault, &items);
    read_around_damage(&vault, &items);
    repaired(&vault, &items, &inodes);
}

fn named(vault: &Vault, items: &[Item]) {
    let (done, found) = check(vault, &[]);
    assert_eq!(done.code(), 41, "{}", done.stderr);
    let damaged = of_kind(&found, "damaged");
    let mut expected: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for item in items.iter().filter(|item| item.kind.is_some()) {
        *expected.entry(item.place().to_owned()).or_default() += 1;
    }
    // A group whose entries do not verify, or a truncated file, may cause more than one finding.
    let places = |all: &BTreeMap<PathBuf, usize>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(places(&damaged), places(&expected));
    for (path, number) in &expected {
        assert!(damaged[path] >= *number, "{}: {} of {number}", path.display(), damaged[path]);
    }
    assert_eq!(of_kind(&found, "stray").values().sum::<usize>(), 1);
}

/// Every undamaged item reads completely, next to damaged ones.
fn read_around_damage(vault: &Vault, items: &[Item]) {
    let mount = vault.mount_with(&["--read-only"]);
    for item in items {
        let Some(kind) = item.kind else {
            assert_eq!(item.unreadable(&mount.join(&item.path)), BTreeSet::new());
            continue;
        };
        let lost = match kind {
            Kind::Link => continue,
            _ => item.unreadable(&mount.join(&item.path)),
        };
        match kind {
            Kind::Chunk => assert_eq!(lost, BTreeSet::from([item.hit])),
            Kind::Slot => {
                assert!(lost.iter().all(|index| group_of(*index) == group_of(item.hit)), "{lost:?}")
            }
            Kind::Attribute => assert!(lost.is_empty(), "{lost:?}"),
            _ => {}
        }
    }
    mount.unmount();
}

fn repaired(vault: &Vault, items: &[Item], inodes: &HashMap<usize, u64>) {
    let (done, found) = check(vault, &["--repair", "--move-strays"]);
    assert_eq!(done.code(), 41, "{}", done.stderr);
    let aside: Vec<_> = found["findings"].as_array().expect("a list").iter().collect();
    for path in aside.iter().filter_map(|finding| finding["aside"].as_str()) {
        assert!(vault.store.join(path).symlink_metadata().is_ok(), "{path}");
    }
    let mount = vault.mount();
    let now: HashMap<u64, PathBuf> = crate::support::store::by_inode(mount.path());
    for item in items {
        let at = now.get(&inodes[&item.number]);
        let lost = || item.unreadable(at.expect("the file is somewhere"));
        let dir = || at.expect("the file is somewhere").parent() == mount.join(&item.path).parent();
        match item.kind {
            Some(Kind::Chunk) => assert_eq!(lost(), BTreeSet::from([item.hit])),
            Some(Kind::Slot) => assert!(lost().len() <= 1 && at == Some(&mount.join(&item.path))),
            Some(Kind::Cut) => {
                assert!(lost().into_iter().all(|index| index + 2 >= item.size.div_ceil(CHUNK)))
            }
            Some(Kind::Blank) => assert_eq!(at.expect("it is there").metadata().expect("stat").size(), 0),
            Some(Kind::Foreign | Kind::Link) => assert!(at.is_none(), "{}", item.path.display()),
            Some(Kind::Name | Kind::Sidecar | Kind::DirId | Kind::NoDirId) => {
                assert!(lost().is_empty() && dir(), "{at:?}");
                let name = at.and_then(|path| path.file_name()?.to_str()).expect("text");
                assert!(name.starts_with("recovered-"), "{name}");
            }
            Some(Kind::Node | Kind::OneRecord | Kind::BothRecords | Kind::Grown | Kind::Attribute) | None => {
                assert_eq!(lost(), BTreeSet::new(), "{:?} {}", item.kind, item.path.display());
                assert_eq!(at, Some(&mount.join(&item.path)));
            }
        }
    }
    let report = fs::read_dir(mount.path()).expect("list").flatten();
    let report = report.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "json"));
    let report: Value =
        serde_json::from_slice(&fs::read(report.expect("a report")).expect("read")).expect("JSON");
    assert_eq!(report["findings"].as_array().map(Vec::len), found["findings"].as_array().map(Vec::len));
    mount.unmount();
    still_named(vault, items);
}

/// Lost data is still reported, and nothing else is.
fn still_named(vault: &Vault, items: &[Item]) {
    let (done, found) = check(vault, &[]);
    assert_eq!(done.code(), 41, "{}", done.stderr);
    let kept = |kind| matches!(kind, Some(Kind::Chunk | Kind::Slot | Kind::Cut));
    let expected: BTreeSet<PathBuf> =
        items.iter().filter(|item| kept(item.kind)).map(|item| item.path.clone()).collect();
    let damaged: BTreeSet<PathBuf> = of_kind(&found, "damaged").into_keys().collect();
    assert!(damaged.is_subset(&expected), "{:?}", damaged.difference(&expected));
    for item in items.iter().filter(|item| item.kind == Some(Kind::Chunk)) {
        assert!(damaged.contains(&item.path), "{}", item.path.display());
    }
    assert!(of_kind(&found, "stray").is_empty());
    // At least one file has several groups.
    assert!(items.iter().any(|item| groups(item.size) > 2));
}
