//! The table of open files under a scheduler (shuttle), which chooses the order of: programs that open,
//! write, sync and close files, one that unlinks and recreates the name, the flusher's rounds, and
//! background work.
//!
//! A directory with one name replaces the store. As in a real store, an inode's number is reused as soon
//! as nobody holds the inode. Each program writes its own chunk, so it knows what it must read.

use super::super::{Files, flusher::FlushPace};
use crate::open_file::{Key, OpenFile};
use content::{Context, File, sync::Mutex, testing::context_by_hand};
use shuttle::{
    Config, Runner,
    rand::Rng as _,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use store::{BackingFile, DirFile, Failure, FaultyFile};

const PROGRAMS: usize = 2;
const CHUNK: usize = 4096;
const DEVICE: u64 = 1;
const STACK: usize = 1 << 20;

/// Counts of what was tried.
#[derive(Debug, Default)]
struct Counts {
    orders: AtomicU64,
    opened: AtomicU64,
    /// The part of `opened` that had been opened before.
    again: AtomicU64,
    closed: AtomicU64,
    /// Names that were removed, and inode numbers that were reused.
    unlinked: AtomicU64,
    reused: AtomicU64,
    rounds: AtomicU64,
    cuts: AtomicU64,
    faults: AtomicU64,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

/// A stored file.
struct Inode {
    key: Key,
    content: Arc<FaultyFile>,
    /// How often it was opened. Only the latest opening may change it.
    openings: AtomicU64,
    /// How often syncfs failed on it. The next fsync of each descriptor reports this, as on Linux.
    failed_syncs: AtomicU64,
}

/// An inode as seen by one `File`.
struct Opened {
    inode: Arc<Inode>,
    number: u64,
    /// Number of failures that it has reported.
    told: AtomicU64,
}

impl Opened {
    fn new(inode: &Arc<Inode>) -> Arc<Self> {
        let number = inode.openings.fetch_add(1, Ordering::Relaxed) + 1;
        let told = AtomicU64::new(inode.failed_syncs.load(Ordering::Relaxed));
        Arc::new(Opened { inode: inode.clone(), number, told })
    }

    /// Lets other threads run.
    fn pause(&self) -> &FaultyFile {
        thread::yield_now();
        &self.inode.content
    }

    fn to_change(&self) -> &FaultyFile {
        self.pause();
        let last = self.inode.openings.load(Ordering::Relaxed);
        assert_eq!(self.number, last, "a file is changed that was opened again since");
        &self.inode.content
    }
}

impl BackingFile for Opened {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.pause().read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.to_change().write_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.to_change().set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.pause().len()
    }

    fn sync_data(&self) -> io::Result<()> {
        let content = self.to_change();
        let failed = self.inode.failed_syncs.load(Ordering::Relaxed);
        if self.told.swap(failed, Ordering::Relaxed) < failed {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        content.sync_data()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.to_change().punch(offset, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.pause().next_data(offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.to_change().reserve(offset, len)
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        self.inode.content.mtime()
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        self.inode.content.set_mtime(seconds, nanoseconds)
    }
}

/// The store: one name, and all inodes that are in use.
#[derive(Default)]
struct Store {
    name: Mutex<Option<Arc<Inode>>>,
    inodes: std::sync::Mutex<Vec<Weak<Inode>>>,
}

impl Store {
    /// A new inode, with the smallest free number.
    fn make(&self, counts: &Counts) -> Arc<Inode> {
        let mut inodes = self.inodes.lock().unwrap();
        let before = inodes.len();
        let place = inodes.iter().position(|inode| inode.strong_count() == 0).unwrap_or(before);
        let inode = Arc::new(Inode {
            key: (DEVICE, place as u64),
            content: FaultyFile::new(),
            openings: AtomicU64::new(0),
            failed_syncs: AtomicU64::new(0),
        });
        inodes.truncate(before);
        if place < before {
            count(&counts.reused);
            inodes[place] = Arc::downgrade(&inode);
        } else {
            inodes.push(Arc::downgrade(&inode));
        }
        inode
    }

    /// The store's syncfs.
    fn sync(&self) -> io::Result<()> {
        let inodes: Vec<_> = self.inodes.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
        inodes.iter().try_for_each(|inode| {
            thread::yield_now();
            let told = |_: &io::Error| count(&inode.failed_syncs);
            inode.content.sync_data().inspect_err(told)
        })
    }
}

/// A program's knowledge of its chunk of an inode: the value it last synced, and the values written
/// since.
#[derive(Clone)]
struct Known {
    inode: Weak<Inode>,
    since: Vec<u8>,
}

struct Run {
    files: Arc<Files>,
    store: Arc<Store>,
    other: Arc<Context>,
    /// Whether some call of a store is to fail.
    faulty: bool,
    counts: Arc<Counts>,
}

fn descriptor() -> DirFile {
    DirFile::new(rustix::fs::memfd_create("table", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
}

/// The first byte of a program's chunk, after checking that all of its bytes are equal; 0 if the file
/// ends before the chunk.
fn chunk(file: &Arc<File>, program: usize) -> content::Result<u8> {
    let mut bytes = [0; CHUNK];
    let n = file.read((program * CHUNK) as u64, &mut bytes)?;
    let first = if n == 0 { 0 } else { bytes[0] };
    assert!(bytes[..n].iter().all(|byte| *byte == first), "bytes of several writes");
    Ok(first)
}

impl Run {
    /// Opens the file as a program does, and creates it if the name does not exist.
    fn open(&self) -> Option<(Arc<Inode>, Arc<OpenFile>)> {
        let mut name = self.store.name.lock();
        let inode = match &*name {
            Some(inode) => inode.clone(),
            None => {
                let inode = self.store.make(&self.counts);
                *name = Some(inode.clone());
                // No other thread finds the name before the file is open.
                self.files.find_room();
                let file = File::fresh(Opened::new(&inode), self.files.context.clone());
                let shard = self.files.shard(inode.key);
                let open = self.files.enter(&mut shard.files.lock(), file, Arc::new(descriptor()), inode.key);
                return Some((inode, open));
            }
        };
        drop(name);
        let load = |_: &Arc<DirFile>| {
            if inode.openings.load(Ordering::Relaxed) > 0 {
                count(&self.counts.again);
            }
            File::open(Opened::new(&inode), self.files.context.clone())
        };
        match self.files.open_by(inode.key, descriptor(), load) {
            Ok(open) => Some((inode, open)),
            Err(e) => {
                assert!(inode.content.failed() > 0, "does not open: {e}");
                None
            }
        }
    }

    /// Repeats a program's actions: open, write, sync, check and close.
    fn program(&self, number: usize) {
        let mut known: HashMap<Key, Known> = HashMap::new();
        let mut value = 0;
        for _ in 0..2 + below(3) {
            let Some((inode, open)) = self.open() else { continue };
            count(&self.counts.opened);
            let fresh = || Known { inode: Arc::downgrade(&inode), since: vec![0] };
            let mine = known.entry(inode.key).or_insert_with(fresh);
            if mine.inode.as_ptr() != Arc::as_ptr(&inode) {
                *mine = fresh();
            }
            self.check(&open.file, &inode, number, mine);
            for _ in 0..below(3) {
                value += 1;
                mine.since.push(value);
                let written = open.file.write((number * CHUNK) as u64, &[value; CHUNK]);
                self.may_fail(&inode, written);
                if below(2) == 0 {
                    match self.files.sync(&open) {
                        Ok(()) => self.confirmed(&open, &inode, number, mine),
                        failed => self.may_fail(&inode, failed),
                    }
                }
            }
            self.check(&open.file, &inode, number, mine);
            self.may_fail(&inode, self.files.flush_at_close(&open));
            self.files.release(open);
            count(&self.counts.closed);
        }
    }

    fn may_fail(&self, inode: &Inode, result: content::Result<()>) {
        if let Err(e) = result {
            assert!(inode.content.failed() > 0, "fails without a cause: {e}");
        }
    }

    /// Checks that the file holds the value written last or, after a failure, one of those written since
    /// the last sync.
    fn check(&self, file: &Arc<File>, inode: &Inode, number: usize, known: &Known) {
        let read = chunk(file, number);
        let failed = inode.content.failed() > 0;
        let value = match read {
            Ok(value) => value,
            Err(e) => return assert!(failed, "does not read: {e}"),
        };
        let last = known.since.last();
        let right = if failed { known.since.contains(&value) } else { last == Some(&value) };
        assert!(right, "inode {}: program {number} reads {value}, not {:?}", inode.key.1, known.since);
    }

    /// Checks a synced value after a simulated power failure.
    fn confirmed(&self, open: &OpenFile, inode: &Inode, number: usize, known: &mut Known) {
        // A failed write may or may not have taken effect.
        self.check(&open.file, inode, number, known);
        let Ok(value) = chunk(&open.file, number) else { return };
        known.since = vec![value];
        let left = FaultyFile::at(&inode.content.snapshot().power_cut(|_| false, |_| 0));
        let file = File::open(left, self.other.clone()).expect("opens after a power cut");
        assert_eq!(chunk(&file, number).expect("reads after a power cut"), value, "what was synced");
        count(&self.counts.cuts);
    }

    /// Removes the name, and tells the table that the inode's last link is gone. Holds the inode
    /// meanwhile, as the vault does.
    fn unlink(&self) {
        let mut name = self.store.name.lock();
        let Some(inode) = name.take() else { return };
        count(&self.counts.unlinked);
        if below(2) == 0 {
            drop(name);
        }
        thread::yield_now();
        self.files.forget(inode.key);
    }

    fn flusher_round(&self) {
        self.files.flush_closed();
        self.files.tick();
        count(&self.counts.rounds);
    }

    /// Checks that everything is stored at the end, and that the table is empty.
    fn end(self) {
        let inode = self.store.name.lock().clone();
        inode.iter().for_each(|inode| inode.content.calm());
        let ended = self.files.shut_down();
        let Some(inode) = inode else { return };
        let failed = inode.content.failed() > 0;
        assert!(ended.is_ok() || self.faulty, "{ended:?}");
        if !failed {
            let calls = inode.content.calls();
            File::open(inode.content.clone(), self.other.clone()).expect("opens in the end");
            assert_eq!(inode.content.calls(), calls, "is not clean in the end");
        }
        assert!(failed || self.files.open_count() == 0, "{} files are left", self.files.open_count());
    }
}

fn below(n: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..n)
}

/// One run, in an order that the scheduler chooses.
fn run(counts: &Arc<Counts>) {
    let (context, work) = context_by_hand();
    let (other, _) = context_by_hand();
    let store = Arc::new(Store::default());
    let of_store = store.clone();
    let device = below(2) * DEVICE;
    let mut files = Files::without_flusher(context, device, Box::new(move || of_store.sync()));
    files.pace = FlushPace::TIMELESS;
    files.crowd = 1 + below(3) as usize;
    let faulty = below(3) == 0;
    let run = Arc::new(Run { files: Arc::new(files), store, other, faulty, counts: counts.clone() });
    let over = Arc::new(AtomicBool::new(false));
    let behind = {
        let over = over.clone();
        thread::spawn(move || {
            while work() || !over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        })
    };
    let mut threads = Vec::new();
    let mut spawn = |act: Box<dyn FnOnce(&Run) + Send>| {
        let run = run.clone();
        threads.push(thread::spawn(move || act(&run)));
    };
    (0..PROGRAMS).for_each(|number| spawn(Box::new(move |run| run.program(number))));
    spawn(Box::new(|run| (0..3).for_each(|_| run.flusher_round())));
    let unlinks = below(3);
    spawn(Box::new(move |run| (0..unlinks).for_each(|_| run.unlink())));
    if faulty {
        spawn(Box::new(|run| {
            let Some(inode) = run.store.name.lock().clone() else { return };
            let errno = [libc::EIO, libc::ENOSPC][below(2) as usize];
            let failure = [Failure::Errno(errno), Failure::Landed(errno), Failure::Lost(errno)];
            inode.content.fail_at(below(12), 1 + below(2), failure[below(3) as usize]);
            count(&run.counts.faults);
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    over.store(true, Ordering::Relaxed);
    behind.join().unwrap();
    Arc::into_inner(run).expect("all threads have ended").end();
    count(&counts.orders);
}

fn in_orders(seed: u64, orders: usize, counts: &Arc<Counts>) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.silence_warnings = true;
    let body = {
        let counts = counts.clone();
        move || run(&counts)
    };
    Runner::new(RandomScheduler::new_from_seed(seed, orders), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, orders), config).run(body);
}

/// Runs both schedulers on every core, `orders` times each.
fn explore(orders: usize) {
    let counts = Arc::new(Counts::default());
    std::thread::scope(|scope| {
        for seed in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let counts = &counts;
            scope.spawn(move || in_orders(seed as u64, orders, counts));
        }
    });
    println!("the table: {counts:?}");
    assert!(counts.again.load(Ordering::Relaxed) > 0 && counts.reused.load(Ordering::Relaxed) > 0);
}

#[test]
fn the_table_in_some_orders() {
    explore(2_000);
}

#[test]
#[ignore = "takes long: just prove"]
fn the_table_in_many_orders() {
    explore(25_000);
}
