//! Files with a history: snapshots of the store, and the file's content at each.

use content::{Background, Budget, Buffered, ContentKeys, Context, Durability, File, SlotMemory, Space};
use crypto::{chunk::CHUNK, cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};
use engine::{EngineChoice, Router};
use format::{
    layout::PAGE,
    record::{RECORD, Record},
};
use std::sync::{Arc, LazyLock};
use store::FaultyFile;

/// A moment in a file's history.
pub struct Past {
    /// All stored bytes.
    pub image: Vec<u8>,
    /// The file's content.
    pub content: Vec<u8>,
    /// The valid newest record.
    pub record: Record,
}

/// Moments of a file, of a copy of it that diverged, and of another file.
pub static PASTS: LazyLock<Vec<Past>> = LazyLock::new(lives);

fn lives() -> Vec<Past> {
    let mut one = Life::new(FaultyFile::new(), Vec::new(), 1);
    one.begin();
    let mut copy = Life::new(stored(&one.store.bytes()), one.content.clone(), 2);
    one.go_on();
    copy.go_on();
    let mut other = Life::new(FaultyFile::new(), Vec::new(), 3);
    other.begin();
    other.go_on();
    [one.pasts, copy.pasts, other.pasts].into_iter().flatten().collect()
}

/// Contexts for opening files read-only and for writing.
pub static CONTEXTS: LazyLock<[Arc<Context>; 2]> = LazyLock::new(|| {
    [true, false].map(|read_only| {
        let budget = Budget::of(16 << 20);
        Arc::new(Context {
            keys: ContentKeys::new(0, keys()),
            overwrites_in_place: true,
            vacate: Box::new(|_| Ok(())),
            rewrites: None,
            bounds: None,
            router: Router::new(EngineChoice::Cpu, budget.buffers).expect("the CPU"),
            durability: Durability::Strict,
            read_only,
            sharing: None,
            guard: Box::new(|| Ok(())),
            buffered: Arc::new(Buffered::new(budget.behind)),
            ahead: Arc::default(),
            slots: SlotMemory::new(budget.slots),
            space: Space::endless(),
            budget,
            background: Background::new(),
        })
    })
});

fn keys() -> FileKdf {
    FileKdf::new(Secret::new_with(|key| key.fill(7)), Cipher::Aes128, Integrity::TurboShake128x4)
}

/// A stored file with these bytes.
pub fn stored(bytes: &[u8]) -> Arc<FaultyFile> {
    let store = FaultyFile::new();
    store.tamper(|all| all.extend_from_slice(bytes));
    store
}

/// The newest record of a stored file, or `None` if a sector that is not empty is invalid. A file
/// shorter than a page was never committed.
pub fn newest_record(image: &[u8]) -> Option<Record> {
    let (sectors, _) = image.get(..PAGE as usize)?[..2 * RECORD].as_chunks::<RECORD>();
    let held = sectors.iter().filter(|sector| sector.iter().any(|byte| *byte != 0));
    let records = held.map(|sector| {
        let key = Record::peek_key(sector).ok()?;
        Record::decode(sector, &keys().keys(&key.salt).record).ok()
    });
    records.collect::<Option<Vec<_>>>()?.into_iter().max_by_key(|record| record.sequence)
}

/// Makes a file clean, as a mount does once it is idle.
///
/// # Errors
/// Returns the file's error.
pub fn rest(file: &Arc<File>) -> content::Result<()> {
    let rest = file.cleaner().flush()?;
    file.cleaner().sync()?;
    if file.cleaner().settle(rest)? {
        file.cleaner().sync()?;
        file.cleaner().finish(rest)?;
    }
    Ok(())
}

/// A file being written to, and its moments so far.
struct Life {
    store: Arc<FaultyFile>,
    file: Arc<File>,
    content: Vec<u8>,
    number: u8,
    pasts: Vec<Past>,
}

impl Life {
    fn new(store: Arc<FaultyFile>, content: Vec<u8>, number: u8) -> Life {
        let file = File::open(store.clone(), CONTEXTS[1].clone()).expect("a whole file");
        Life { store, file, content, number, pasts: Vec::new() }
    }

    /// Three chunks in a first epoch, then two more epochs.
    fn begin(&mut self) {
        self.write(0, 2 * CHUNK + 100);
        self.keep();
        self.file.sync().expect("sync");
        self.keep();
        self.rest();
        self.write(CHUNK, CHUNK);
        self.keep();
        self.write(CHUNK + 5, 10);
        self.write(3 * CHUNK - 1, 2);
        self.keep();
        self.rest();
    }

    /// Growth over two group boundaries, a truncation, a hole, and the state after a crash.
    fn go_on(&mut self) {
        self.write(47 * CHUNK, 2 * CHUNK);
        self.keep();
        self.file.sync().expect("sync");
        self.write(0, 1);
        self.keep();
        self.cut(48 * CHUNK + 7);
        self.keep();
        self.rest();
        self.file.punch(0, 2 * CHUNK as u64).expect("punch");
        self.content[..2 * CHUNK].fill(0);
        self.keep();
        self.write(113 * CHUNK, 9);
        self.keep();
        self.rest();
        self.cut(48 * CHUNK);
        self.keep();
        self.write(2 * CHUNK, 2 * CHUNK);
        self.keep();
        self.rest();
        self.cut(0);
        self.keep();
        self.write(0, 3 * CHUNK);
        self.keep();
    }

    /// Writes bytes that occur nowhere else.
    fn write(&mut self, at: usize, len: usize) {
        let moment = self.pasts.len() as u8;
        let bytes: Vec<u8> = (at..at + len).map(|i| (i / 256) as u8 ^ (moment * 8 + self.number)).collect();
        self.file.write(at as u64, &bytes).expect("write");
        self.content.resize(self.content.len().max(at + len), 0);
        self.content[at..at + len].copy_from_slice(&bytes);
    }

    fn cut(&mut self, size: usize) {
        self.file.truncate(size as u64).expect("truncate");
        self.content.truncate(size);
    }

    fn rest(&mut self) {
        rest(&self.file).expect("rest");
        self.keep();
    }

    fn keep(&mut self) {
        self.file.flush().expect("flush");
        let image = self.store.bytes();
        let record = newest_record(&image).expect("a record");
        assert_eq!(record.target.size, self.content.len() as u64);
        self.pasts.push(Past { image, content: self.content.clone(), record });
    }
}
