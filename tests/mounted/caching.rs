//! One file through several kinds of handles at once: the kernel's page cache, direct I/O, mappings.
//! Every write must be visible through all of them, with every `--cache`.

use crate::support::{
    CACHES,
    command::ok,
    mounted::{Mount, Vault},
    random::Random,
    raw::{Aio, Mapping},
    ready,
};
use rustix::fs::OFlags;
use serde_json::Value;
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

const PAGE: usize = 4096;
/// Maximum file size in the random test.
const MOST: usize = 300 << 10;

/// How a handle is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Both,
    Append,
    ReadPast,
    BothPast,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::Both, Kind::Append, Kind::ReadPast, Kind::BothPast];

    fn open(self, path: &Path) -> File {
        let flags = if self.is_past() { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = OpenOptions::new();
        options.custom_flags(flags.bits().cast_signed()).read(self.reads());
        if self == Kind::Append {
            options.append(true)
        } else {
            options.write(self.writes())
        };
        options.open(path).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }

    fn is_past(self) -> bool {
        matches!(self, Kind::ReadPast | Kind::BothPast)
    }

    fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::Both | Kind::ReadPast | Kind::BothPast)
    }

    fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::Both | Kind::Append | Kind::BothPast)
    }
}

/// A file with many handles, and its expected content.
struct Many<'m> {
    mount: &'m Mount<'m>,
    handles: Vec<(Kind, File)>,
    mapping: Option<(Kind, usize, Mapping)>,
    model: Vec<u8>,
    random: Random,
}

impl Many<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    fn path(&self) -> std::path::PathBuf {
        self.mount.join("file")
    }

    /// Picks one of the handles with this property.
    fn one(&mut self, with: impl Fn(Kind) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.handles.len()).filter(|&i| with(self.handles[i].0)).collect();
        if fit.is_empty() { None } else { Some(fit[self.below(fit.len())]) }
    }

    fn step(&mut self) -> String {
        match self.below(10) {
            0 | 1 => {
                let kind = Kind::ALL[self.below(Kind::ALL.len())];
                self.handles.push((kind, kind.open(&self.path())));
                format!("open {kind:?}")
            }
            2 if !self.handles.is_empty() => {
                let at = self.below(self.handles.len());
                format!("close {:?}", self.handles.swap_remove(at).0)
            }
            3 => self.resize(),
            4 => self.map(),
            5 => self.write_mapped(),
            _ => self.write(),
        }
    }

    fn write(&mut self) -> String {
        let Some(by) = self.one(Kind::writes) else { return "no writer".into() };
        let kind = self.handles[by].0;
        let at = if kind == Kind::Append { self.model.len() } else { self.below(self.model.len() + PAGE) };
        let most = (MOST - at.min(MOST)).min([100, PAGE, 40 * PAGE][self.below(3)]);
        if most == 0 {
            return "full".into();
        }
        let data = vec![self.random.below(256) as u8; 1 + self.below(most)];
        self.handles[by].1.write_all_at(&data, at as u64).expect("write");
        self.model.resize(self.model.len().max(at + data.len()), 0);
        self.model[at..][..data.len()].copy_from_slice(&data);
        format!("{kind:?} writes {} at {at}", data.len())
    }

    fn resize(&mut self) -> String {
        self.mapping = None; // Accessing it past the end of the file would fault.
        let size = self.below(MOST);
        match self.one(|kind| kind.writes()) {
            Some(by) => self.handles[by].1.set_len(size as u64).expect("truncate"),
            None => Kind::Both.open(&self.path()).set_len(size as u64).expect("truncate"),
        }
        self.model.resize(size, 0);
        format!("resize to {size}")
    }

    fn map(&mut self) -> String {
        let by = self.one(|kind| matches!(kind, Kind::Both | Kind::BothPast));
        let pages = self.model.len() / PAGE;
        let (Some(by), true) = (by, pages > 0) else { return "nothing to map".into() };
        let (kind, file) = &self.handles[by];
        let mapping = Mapping::new(file, 0, pages * PAGE, true).expect("mmap");
        self.mapping = Some((*kind, pages * PAGE, mapping));
        format!("map {pages} pages of {kind:?}")
    }

    fn write_mapped(&mut self) -> String {
        let Some((_, len, _)) = self.mapping else { return "no mapping".into() };
        let at = self.below(len);
        let data = vec![self.random.below(256) as u8; (1 + self.below(2 * PAGE)).min(len - at)];
        if let Some((_, _, mapping)) = &self.mapping {
            mapping.write(at, &data);
        }
        self.model[at..][..data.len()].copy_from_slice(&data);
        format!("write {} at {at} of the mapping", data.len())
    }

    fn check(&mut self, what: &str) {
        let at = self.below(self.model.len() + 1);
        let len = self.below(20 * PAGE).min(self.model.len() - at);
        let want = &self.model[at..][..len];
        for (kind, file) in self.handles.iter().filter(|(kind, _)| kind.reads()) {
            let mut got = vec![0; len];
            file.read_exact_at(&mut got, at as u64).expect("read");
            assert!(got == want, "after `{what}`: {kind:?} reads {len} at {at} otherwise than was written");
            assert_eq!(file.metadata().expect("stat").len(), self.model.len() as u64, "after `{what}`");
        }
        if let Some((kind, mapped, mapping)) = &self.mapping {
            let len = len.min(mapped.saturating_sub(at));
            let mut got = vec![0; len];
            mapping.read(at.min(*mapped), &mut got);
            assert!(got == want[..len], "after `{what}`: the mapping of {kind:?} at {at} is out of date");
        }
    }
}

#[test]
fn every_handle_sees_what_any_other_wrote() {
    if !ready(&[]) {
        return;
    }
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mut mount = vault.mount_with(&["--cache", mode]);
        for round in 0..6 {
            fs::write(mount.join("file"), []).expect("create");
            let random = Random::new(&format!("caching {mode} {round}"));
            let mut many =
                Many { mount: &mount, handles: Vec::new(), mapping: None, model: Vec::new(), random };
            for _ in 0..300 {
                let what = many.step();
                many.check(&format!("{mode}: {what}"));
            }
            let model = many.model;
            drop((many.handles, many.mapping));
            mount = mount.remount();
            assert!(fs::read(mount.join("file")).expect("read") == model, "{mode}: after another mount");
        }
        mount.unmount();
    }
}

/// A page that a program keeps reading is fetched again whenever it is dropped, even during a direct
/// write. It must not stay stale.
#[test]
fn a_mapped_page_is_up_to_date_after_every_write() {
    if !ready(&[]) || !drops_pages_after_writes() {
        return;
    }
    const WRITES: u64 = 1500;
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        for (mapped, writer) in [
            (Kind::Both, Kind::BothPast),
            (Kind::BothPast, Kind::BothPast),
            (Kind::BothPast, Kind::Both),
            (Kind::BothPast, Kind::Write),
            (Kind::Both, Kind::Write),
        ] {
            let path = mount.join("page");
            fs::write(&path, [0; PAGE]).expect("create");
            let (by, through) = (writer.open(&path), mapped.open(&path));
            let ours = Mapping::new(&through, 0, PAGE, true).expect("mmap");
            let done = AtomicBool::new(false);
            thread::scope(|threads| {
                threads.spawn(|| {
                    let theirs = Mapping::new(&through, 0, PAGE, false).expect("mmap");
                    while !done.load(Ordering::Relaxed) {
                        theirs.read(0, &mut [0; 8]);
                    }
                });
                let seen = (1..=WRITES).map(|count| {
                    by.write_all_at(&count.to_le_bytes(), 0).expect("write");
                    let mut seen = [0; 8];
                    ours.read(0, &mut seen);
                    (count, u64::from_le_bytes(seen))
                });
                let behind: Vec<_> = seen.filter(|(count, seen)| count != seen).collect();
                done.store(true, Ordering::Relaxed);
                assert!(behind.is_empty(), "{mode}: {writer:?} writes, {mapped:?} mapped: {behind:?}");
            });
        }
        mount.unmount();
    }
}

/// True since Linux 6.14 at the latest.
fn drops_pages_after_writes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next(), numbers.next());
    version >= (Some(6), Some(14))
        || crate::support::skip(format!("Linux {release} keeps pages of before a write"))
}

/// Four writers of different kinds, each writing one quarter of every page.
#[test]
fn writers_of_every_kind_at_once_lose_nothing() {
    if !ready(&[]) {
        return;
    }
    const PAGES: usize = 200;
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        let path = mount.join("file");
        fs::write(&path, vec![0; PAGES * PAGE]).expect("create");
        let kinds = [Kind::Write, Kind::Both, Kind::BothPast, Kind::Write];
        let reader = Kind::Read.open(&path);
        let finished = AtomicUsize::new(0);
        thread::scope(|threads| {
            for (quarter, kind) in kinds.into_iter().enumerate() {
                let (file, finished) = (kind.open(&path), &finished);
                threads.spawn(move || {
                    for round in 1..=3_u8 {
                        let data = [round * 10 + quarter as u8; PAGE / 4];
                        for page in 0..PAGES {
                            let at = page * PAGE + quarter * PAGE / 4;
                            file.write_all_at(&data, at as u64).expect("write");
                        }
                    }
                    finished.fetch_add(1, Ordering::Relaxed);
                });
            }
            // A concurrent reader keeps pages in the cache that the writers have to invalidate.
            while finished.load(Ordering::Relaxed) < kinds.len() {
                reader.read_exact_at(&mut vec![0; PAGES * PAGE], 0).expect("read");
            }
        });
        let want: Vec<u8> = (0..PAGES * PAGE).map(|at| 30 + (at % PAGE / (PAGE / 4)) as u8).collect();
        for kind in [Kind::Read, Kind::ReadPast] {
            let mut got = vec![0; want.len()];
            kind.open(&path).read_exact_at(&mut got, 0).expect("read");
            assert!(got == want, "{mode}: {kind:?}");
        }
        drop(reader);
        let mount = mount.remount();
        assert!(fs::read(mount.join("file")).expect("read") == want, "{mode}: after another mount");
        mount.unmount();
    }
}

/// Readers that follow a growing file, some opened before its writer and some after.
#[test]
fn who_follows_a_growing_file_sees_what_was_written_and_no_zeros() {
    if !ready(&[]) {
        return;
    }
    const LINES: usize = 20_000;
    let lens = || (0..LINES).map(|line| 1 + line % 100);
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        for early in [true, false] {
            let path = mount.join(if early { "early" } else { "late" });
            fs::write(&path, []).expect("create");
            let first = early.then(|| Kind::Read.open(&path));
            let writer = Kind::Append.open(&path);
            let readers: Vec<_> = first.into_iter().chain([(); 2].map(|()| Kind::Read.open(&path))).collect();
            let end: usize = lens().sum();
            thread::scope(|threads| {
                for reader in &readers {
                    threads.spawn(move || {
                        let (mut at, mut piece) = (0, vec![0; 1 << 16]);
                        while at < end {
                            let read = reader.read_at(&mut piece, at as u64).expect("read");
                            let other = piece[..read].iter().position(|&byte| byte != b'x');
                            assert!(
                                other.is_none(),
                                "{mode}: byte {} was never written",
                                at + other.unwrap()
                            );
                            at += read;
                        }
                    });
                }
                for len in lens() {
                    writer.write_all_at(&vec![b'x'; len], 0).expect("append");
                }
            });
        }
        mount.unmount();
    }
}

/// The kernel drops pages when an asynchronous direct write begins, not when it completes, so pages read
/// in between would stay stale.
#[test]
fn who_opens_a_file_after_an_asynchronous_write_sees_it() {
    if !ready(&[]) || !drops_pages_after_writes() {
        return;
    }
    const LEN: usize = 1 << 20;
    const ROUNDS: u8 = 200;
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        let path = mount.join("file");
        fs::write(&path, vec![0; LEN]).expect("create");
        let done = AtomicBool::new(false);
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(fs::read(&path).expect("read").len(), LEN);
                    }
                });
            }
            let (by, aio) = (Kind::BothPast.open(&path), Aio::new(16).expect("io_setup"));
            let behind = (1..=ROUNDS).find(|&round| {
                aio.write_all(&by, &vec![round; LEN], LEN / 16).expect("write");
                fs::read(&path).expect("read") != vec![round; LEN]
            });
            done.store(true, Ordering::Relaxed);
            assert_eq!(behind, None, "{mode}: out of date in this round");
        });
        mount.unmount();
    }
}

/// Files and mappings that are already open see the write too, at most a moment later.
#[test]
fn open_files_and_mappings_follow_asynchronous_writes() {
    if !ready(&[]) || !drops_pages_after_writes() {
        return;
    }
    const LEN: usize = 1 << 20;
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        let path = mount.join("file");
        fs::write(&path, vec![0; LEN]).expect("create");
        let (cached, by) = (Kind::Read.open(&path), Kind::BothPast.open(&path));
        let aio = Aio::new(16).expect("io_setup");
        let done = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                let mapping = Mapping::new(&by, 0, LEN, false).expect("mmap");
                while !done.load(Ordering::Relaxed) {
                    cached.read_exact_at(&mut vec![0; LEN], 0).expect("read");
                    mapping.read(0, &mut vec![0; LEN]);
                }
            });
            let mapping = Mapping::new(&by, 0, LEN, false).expect("mmap");
            let mut seen = [vec![0; LEN], vec![0; LEN]];
            let behind = (1..=100_u8).find(|&round| {
                aio.write_all(&by, &vec![round; LEN], LEN / 16).expect("write");
                let end = Instant::now() + Duration::from_secs(2);
                loop {
                    cached.read_exact_at(&mut seen[0], 0).expect("read");
                    mapping.read(0, &mut seen[1]);
                    let is_new = seen.iter().all(|seen| *seen == vec![round; LEN]);
                    if is_new || Instant::now() > end {
                        break !is_new;
                    }
                }
            });
            done.store(true, Ordering::Relaxed);
            assert_eq!(behind, None, "{mode}: out of date in this round");
        });
        drop((cached, by));
        mount.unmount();
    }
}

/// The kernel faults the source pages in from the mount itself during the write.
#[test]
fn a_mapping_can_be_written_to_a_file_and_to_its_own() {
    if !ready(&[]) {
        return;
    }
    const LEN: usize = 3 << 20;
    let content: Vec<u8> = (0..LEN).map(|at| (at / 1000) as u8).collect();
    for mode in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mut mount = vault.mount_with(&["--cache", mode]);
        fs::write(mount.join("from"), &content).expect("write");
        mount = mount.remount();
        let from = Kind::Both.open(&mount.join("from"));
        let to = File::create(mount.join("to")).expect("create");
        let own = Kind::BothPast.open(&mount.join("from"));
        let mapping = Mapping::new(&from, 0, LEN, false).expect("mmap");
        mapping.write_to(&to, 5).expect("to another file");
        mapping.write_to(&own, LEN as u64).expect("to itself");
        drop((from, to, own, mapping));
        mount = mount.remount();
        assert!(fs::read(mount.join("to")).expect("read")[5..] == content, "{mode}");
        assert!(fs::read(mount.join("from")).expect("read")[LEN..] == content, "{mode}");
        mount.unmount();
    }
}

fn numbers(mount: &Mount) -> Value {
    let text = ok(Vault::program().arg("stat").arg(mount.path()).arg("--json"), 60);
    serde_json::from_str(&text).expect("JSON")
}

fn count(numbers: &Value, what: [&str; 3]) -> u64 {
    numbers[what[0]][what[1]][what[2]].as_u64().unwrap_or_else(|| panic!("{what:?} in {numbers}"))
}

/// For writes that bypass its cache, the kernel leaves O_DSYNC to the filesystem.
#[test]
fn a_write_with_o_dsync_is_durable_when_it_returns() {
    if !ready(&[]) {
        return;
    }
    const WRITES: u64 = 5;
    for mode in CACHES {
        let vault = Vault::new("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", mode]);
        for flags in [OFlags::DSYNC, OFlags::SYNC, OFlags::DSYNC | OFlags::DIRECT] {
            let mut options = OpenOptions::new();
            options.write(true).create(true).custom_flags(flags.bits().cast_signed());
            let file = options.open(mount.join(format!("{flags:?}"))).expect("open");
            let before = count(&numbers(&mount), ["store", "sync", "count"]);
            for at in 0..WRITES {
                file.write_all_at(&[1; PAGE], at * PAGE as u64).expect("write");
            }
            let syncs = count(&numbers(&mount), ["store", "sync", "count"]) - before;
            assert!(syncs >= WRITES, "{mode}: {flags:?}: {syncs} syncs");
        }
        mount.unmount();
    }
}

/// Number of bytes that the kernel requests when a file is read right after it was written.
fn asked_again(mode: &str, len: usize) -> u64 {
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount_with(&["--cache", mode]);
    fs::write(mount.join("file"), vec![7; len]).expect("write");
    let before = count(&numbers(&mount), ["requests", "read", "bytes"]);
    assert_eq!(fs::read(mount.join("file")).expect("read").len(), len);
    let bytes = count(&numbers(&mount), ["requests", "read", "bytes"]) - before;
    mount.unmount();
    bytes
}

#[test]
fn what_is_only_written_leaves_no_pages_unless_it_is_small() {
    if !ready(&[]) || !drops_pages_after_writes() {
        return;
    }
    let (large, small) = (3 << 20, 20 << 10);
    assert_eq!(asked_again("auto", large), large as u64);
    assert_eq!(asked_again("kernel", large), 0);
    assert_eq!(asked_again("direct", large), large as u64);
    // A small file's content is passed to the kernel when the file is opened for reading.
    assert_eq!(asked_again("auto", small), 0);
    assert_eq!(asked_again("kernel", small), 0);
}
