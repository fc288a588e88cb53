//! A stored file that an attacker changes, before it is opened and while it is open. Reads return data
//! that the file held, all of one version if the record is a clean one. Recovery loses nothing that was
//! readable before it. Data written and confirmed afterwards is present.
#![no_main]

use arbitrary::Arbitrary;
use content::{Error, File};
use format::{
    layout::{CHUNK, chunks},
    record::{Claim, Record},
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use store::FaultyFile;
use warpcrypt_fuzz::{
    past::{CONTEXTS, PASTS, Past, newest_record, rest, stored},
    tamper::{Tamper, tamper},
};

#[derive(Debug, Arbitrary)]
struct Input {
    /// The snapshot that is modified.
    moment: u8,
    before: Vec<Tamper>,
    /// Changes made while the file is open.
    live: Vec<Tamper>,
    writes: Vec<Write>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Write {
    Bytes { at: u32, len: u16 },
    Cut { to: u32 },
    Punch { at: u32, len: u16 },
    Sync,
    Rest,
}

/// A file's chunks; `None` for one that cannot be read.
type Reading = Vec<Option<Vec<u8>>>;

/// The largest file that the target writes.
const LARGEST: u64 = 130 * CHUNK;

fuzz_target!(|input: Input| {
    let images: Vec<&[u8]> = PASTS.iter().map(|past| &past.image[..]).collect();
    let mut image = images[usize::from(input.moment) % images.len()].to_vec();
    tamper(&mut image, &input.before, &images);
    let record = newest_record(&image);
    let Some(shown) = look(&stored(&image), true) else {
        assert!(look(&stored(&image), false).is_none(), "only a writer opens it");
        return;
    };
    judge(&shown, &image, record.as_ref());
    let store = stored(&image);
    let reading = look(&store, false).expect("only a reader opens it");
    assert_eq!(brief(&reading), brief(&shown), "a reader and a writer see different files");
    let again = look(&store, false).expect("a recovered file does not open");
    assert_eq!(brief(&again), brief(&reading), "recovery changed what reads");

    let file = open(&store, false).expect("a recovered file does not open");
    let written = write(&file, reading.clone(), &input.writes);
    drop(file);
    if let Some(written) = written {
        match look(&store, false) {
            Some(again) => {
                assert_eq!(again.len(), written.len(), "its size is not what was confirmed");
                // Recovery may make a chunk readable that was not.
                let same = again.iter().zip(&written).all(|(now, before)| before.is_none() || now == before);
                assert!(same, "what was confirmed is not there");
            }
            // A page of entries was already damaged. While a file is dirty, that makes the whole file
            // unreadable.
            None => assert!(reading.contains(&None), "a file that was written to does not open"),
        }
    }

    let store = stored(&image);
    let file = open(&store, false).expect("it opened before");
    let first = file.read(0, &mut [0; 10]);
    store.tamper(|bytes| tamper(bytes, &input.live, &images));
    let live = read(&file);
    assert_eq!(live.len(), reading.len(), "its size changed while it was open");
    for (now, before) in live.iter().zip(&reading) {
        // A chunk that could not be read may have been restored.
        let same = now.is_none() || before.is_none() || now == before;
        assert!(same, "an open file reads as something else");
    }
    drop(first);
    write(&file, live, &input.writes);
});

/// Opens a stored file; `None` if it is refused.
fn open(store: &Arc<FaultyFile>, read_only: bool) -> Option<Arc<File>> {
    match File::open(store.clone(), CONTEXTS[usize::from(!read_only)].clone()) {
        Ok(file) => Some(file),
        Err(Error::Damaged(_)) => None,
        Err(error) => panic!("the store is in order, but: {error}"),
    }
}

fn look(store: &Arc<FaultyFile>, read_only: bool) -> Option<Reading> {
    open(store, read_only).map(|file| read(&file))
}

/// Reads the whole file at once, or chunk by chunk if part of it cannot be read.
fn read(file: &Arc<File>) -> Reading {
    let size = file.size() as usize;
    if let Some(whole) = piece(file, 0, size) {
        assert_eq!(whole.len(), size);
        return whole.chunks(CHUNK as usize).map(|chunk| Some(chunk.to_vec())).collect();
    }
    (0..chunks(size as u64)).map(|index| piece(file, index * CHUNK, CHUNK as usize)).collect()
}

fn piece(file: &Arc<File>, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    match file.read(at, &mut bytes) {
        Ok(len) => {
            bytes.truncate(len);
            Some(bytes)
        }
        Err(Error::Damaged(_)) => None,
        Err(error) => panic!("the store is in order, but: {error}"),
    }
}

/// A short, printable form for comparison: each chunk's length, and a hash of its bytes.
fn brief(reading: &Reading) -> Vec<Option<(usize, u64)>> {
    let hash = |chunk: &[u8]| {
        chunk.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
    };
    reading.iter().map(|chunk| chunk.as_ref().map(|chunk| (chunk.len(), hash(chunk)))).collect()
}

/// Asserts that this image may give this reading.
fn judge(reading: &Reading, image: &[u8], record: Option<&Record>) {
    let Some(record) = record else {
        // Nothing was ever committed, or it looks that way, which is the format's documented limitation.
        assert!(reading.is_empty(), "contents without a record");
        return;
    };
    let mut versions = vec![record.target];
    versions.extend(record.base());
    if let Claim::Dirty { between, .. } = &record.claim {
        versions.extend(between.previous);
        versions.extend(between.barrier);
    }
    let names = |past: &Past| {
        let of = past.record.target;
        versions.iter().any(|version| (version.size, version.root) == (of.size, of.root))
    };
    let same_key = PASTS.iter().filter(|past| past.record.key == record.key);
    let mut may_be: Vec<&[u8]> = same_key.filter(|past| names(past)).map(|past| &past.content[..]).collect();
    if record.base().is_some_and(|base| base.size == 0) {
        may_be.push(&[]);
    }
    // A dirty file may end earlier, within the data being appended.
    let sizes = || may_be.iter().map(|content| chunks(content.len() as u64));
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let ends = reading.len() as u64;
    let fits = least <= ends && ends <= most && (record.base().is_some() || sizes().any(|size| size == ends));
    assert!(fits, "{ends} chunks, but it had {least} to {most}: {record:?}");
    if record.base().is_none() {
        may_be.truncate(1);
    }
    for (index, chunk) in reading.iter().enumerate() {
        let Some(chunk) = chunk else { continue };
        let from = index * CHUNK as usize;
        let fits = |content: &&[u8]| {
            let mut was =
                content.get(from..content.len().min(from + chunk.len())).unwrap_or_default().to_vec();
            was.resize(chunk.len(), 0);
            was == *chunk
        };
        assert!(may_be.iter().any(fits), "chunk {index} reads as it never was");
    }
    let untouched = PASTS.iter().find(|past| past.image == image);
    assert!(untouched.is_none() || reading.iter().all(Option::is_some), "an untouched file does not read");
}

/// Writes to a file that reads as `before`. Returns the expected content if everything was confirmed.
fn write(file: &Arc<File>, before: Reading, writes: &[Write]) -> Option<Reading> {
    let mut is = Model { chunks: before, size: file.size() };
    for write in writes.iter().take(20) {
        match *write {
            Write::Bytes { at, len } => {
                let (at, bytes) = (u64::from(at) % LARGEST, vec![0xda; usize::from(len)]);
                file.write(at, &bytes).ok()?;
                is.write(at, &bytes);
            }
            Write::Cut { to } => {
                let size = u64::from(to) % LARGEST;
                file.truncate(size).ok()?;
                is.resize(size);
            }
            Write::Punch { at, len } => {
                let at = u64::from(at) % LARGEST;
                file.punch(at, len.into()).ok()?;
                let end = is.size.min(at + u64::from(len));
                is.write(at.min(end), &vec![0; end.saturating_sub(at) as usize]);
            }
            Write::Sync => file.sync().ok()?,
            Write::Rest => rest(file).ok()?,
        }
    }
    file.sync().ok()?;
    assert_eq!(brief(&read(file)), brief(&is.chunks), "what was written does not read");
    Some(is.chunks)
}

/// Expected content of a file.
struct Model {
    chunks: Reading,
    size: u64,
}

impl Model {
    fn resize(&mut self, size: u64) {
        self.size = size;
        self.chunks.resize(chunks(size) as usize, Some(Vec::new()));
        let len = |index: usize| (size - index as u64 * CHUNK).min(CHUNK) as usize;
        let all = self.chunks.iter_mut().enumerate();
        all.for_each(|(index, chunk)| {
            if let Some(bytes) = chunk {
                bytes.resize(len(index), 0);
            }
        });
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.resize(self.size.max(at + bytes.len() as u64));
        for (at, byte) in (at as usize..).zip(bytes) {
            let (index, place) = (at / CHUNK as usize, at % CHUNK as usize);
            let len = (self.size - index as u64 * CHUNK).min(CHUNK) as usize;
            // An unreadable chunk is only ever replaced as a whole.
            self.chunks[index].get_or_insert_with(|| vec![0; len])[place] = *byte;
        }
    }
}
