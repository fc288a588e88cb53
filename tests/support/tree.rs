//! Trees to copy, and comparison of two trees.

use super::{command, random::Random};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags, mknodat, setxattr};
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt, symlink},
    },
    path::Path,
};

/// Names that a careless filesystem gets wrong.
pub fn odd_names() -> Vec<Vec<u8>> {
    let long = |s: &str| s.repeat(255 / s.len()).into_bytes();
    let mut names: Vec<Vec<u8>> = [
        "plain",
        " ",
        "  two  blanks ",
        "-rf",
        "*?[a]",
        "new\nline",
        "tab\tname",
        "quote'\"`$(x)",
        "back\\slash",
        "...",
        ".hidden",
        "ümlaut",
        "u\u{308}mlaut",
        "каталог",
        "目录",
        "مجلد",
        "🗝️",
        "İstanbul",
        "istanbul",
        "CASE",
        "case",
        "warpcrypt.json",
    ]
    .map(|s| s.as_bytes().to_vec())
    .into();
    names.extend([long("n"), long("имя"), long("長い名前"), vec![b'x'; 176], vec![b'y'; 177]]);
    names.extend([b"\xff\xfe\x80".to_vec(), b"half \xc3".to_vec(), vec![0x01, 0x7f, 0x80]]);
    names
}

/// Creates a tree with everything that a filesystem can contain: odd names, links, pipes, modes, times,
/// holes.
pub fn make(dir: &Path, random: &mut Random) {
    fs::create_dir_all(dir).expect("tree");
    for (i, name) in odd_names().iter().enumerate() {
        let path = dir.join(OsStr::from_bytes(name));
        if i % 3 == 2 {
            fs::create_dir(&path).expect("directory");
            fs::write(path.join(OsStr::from_bytes(name)), random.bytes(i * 700)).expect("file");
        } else {
            fs::write(&path, random.bytes(i * 300)).expect("file");
        }
    }
    sizes(&dir.join("sizes"), random);
    special(&dir.join("special"), random);
    modes(&dir.join("modes"));
    let mut deep = dir.to_path_buf();
    for level in 0..20 {
        deep = deep.join(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).expect("deep directory");
    fs::write(deep.join("bottom"), b"here").expect("file");
    times(dir, random);
}

/// Lengths around every boundary of the stored layout.
fn sizes(dir: &Path, random: &mut Random) {
    fs::create_dir(dir).expect("directory");
    let chunks = [1u64, 2, 47, 48, 49, 111, 112, 113, 176, 177];
    let edges = chunks.iter().flat_map(|c| [c * 4096 - 1, c * 4096, c * 4096 + 1]);
    for size in [0, 1, 15, 16, 17, 4000].into_iter().chain(edges) {
        fs::write(dir.join(format!("{size}")), random.bytes(size as usize)).expect("file");
    }
}

fn special(dir: &Path, random: &mut Random) {
    fs::create_dir(dir).expect("directory");
    let at = |name: &str| dir.join(name);
    fs::write(at("linked"), b"three names").expect("file");
    fs::hard_link(at("linked"), at("linked too")).expect("hard link");
    fs::create_dir(at("elsewhere")).expect("directory");
    fs::hard_link(at("linked"), at("elsewhere/linked")).expect("hard link");
    for (i, target) in ["linked", "../special", "/no/such/target", "self", "ссылка/目标"].iter().enumerate()
    {
        symlink(target, at(&format!("link {i}"))).expect("symbolic link");
    }
    symlink("t".repeat(1500), at("link to a long target")).expect("symbolic link");
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("pipe");
    mknodat(CWD, at("socket"), FileType::Socket, Mode::from_raw_mode(0o600), 0).expect("socket");
    let sparse = File::create(at("sparse")).expect("file");
    sparse.set_len(64 << 20).expect("length");
    sparse.write_all_at(&random.bytes(10_000), 40 << 20).expect("data");
    let punched = File::create(at("punched")).expect("file");
    punched.write_all_at(&random.bytes(300_000), 0).expect("data");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, hole, 50_000, 150_000).expect("hole");
    fs::write(at("attributes"), b"x").expect("file");
    for (name, value) in [("user.one", &b"1"[..]), ("user.имя", b"\x00\xff value"), ("user.empty", b"")] {
        // A filesystem without attributes has none to copy.
        let _ = setxattr(at("attributes"), name, value, XattrFlags::empty());
    }
}

fn modes(dir: &Path) {
    fs::create_dir(dir).expect("directory");
    let is_root = rustix::process::geteuid().is_root();
    for mode in [0o600, 0o644, 0o755, 0o000, 0o444, 0o4755, 0o2755, 0o1777, 0o7777] {
        // An ordinary user cannot copy unreadable files.
        if mode == 0 && !is_root {
            continue;
        }
        let path = dir.join(format!("{mode:o}"));
        fs::write(&path, format!("{mode:o}")).expect("file");
        if is_root {
            std::os::unix::fs::chown(&path, Some(mode), Some(mode + 1)).expect("owner");
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
    }
    for mode in [0o700, 0o1777, 0o2775] {
        let path = dir.join(format!("directory {mode:o}"));
        fs::create_dir(&path).expect("directory");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
    }
}

/// Gives some files old, odd and far-future times.
fn times(dir: &Path, random: &mut Random) {
    for (name, seconds) in
        [("sizes/0", 0), ("sizes/1", 1), ("sizes/4096", 4_000_000_000), ("plain", 1_000_000_000)]
    {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: random.below(1_000_000_000) as _ };
        let both = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, dir.join(name), &both, rustix::fs::AtFlags::empty()).expect("times");
    }
}

/// One line for each node: path, type, mode, time, owner, links, size, target.
pub fn listing(dir: &Path) -> String {
    // A directory's size and link count are up to the store.
    let list = r#"find . -mindepth 1 \( -type d -printf '%P|%y|%m|%T@|%U:%G\n' \
        -o -printf '%P|%y|%m|%T@|%U:%G|%n|%s|%l\n' \) | sort"#;
    command::sh(dir, list, &[], 120)
}

/// Asserts that `copy` equals `original`, by listing and by rsync with checksums.
pub fn assert_same(original: &Path, copy: &Path) {
    let (left, right) = (listing(original), listing(copy));
    if left != right {
        let differ = |a: &str, b: &str| {
            let other: std::collections::HashSet<&str> = b.lines().collect();
            a.lines().filter(|l| !other.contains(l)).take(10).map(|l| format!("{l}\n")).collect::<String>()
        };
        panic!("listings differ; original:\n{}copy:\n{}", differ(&left, &right), differ(&right, &left));
    }
    let compare = "rsync -aHAXnci --delete \"$1/\" \"$2/\"";
    let difference = command::sh("/", compare, &[original, copy], 300);
    assert!(difference.is_empty(), "rsync sees a difference:\n{difference}");
}
