//! The measured subjects, in groups that do the same work in different ways.

use crate::batches::batch;
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::Cipher,
    integrity::Integrity,
    tags::Sealed,
    variants::{self, AnyKey},
};
use ctr::{
    Ctr128BE,
    cipher::{KeyIvInit, StreamCipher},
};
use engine::{BufferPool, CpuEngine, Engine, Function, GpuEngine, Op};
use sha3::{Digest, Sha3_256};
use std::{hint::black_box, sync::Arc};

/// Chunks processed by ciphers and tags: few enough to fit easily into the second-level cache.
const CHUNKS: usize = 16;
/// Chunks per batch of the engines: 4 MiB.
const BATCH: usize = 1024;

/// Work that is repeated.
type Work = Box<dyn FnMut()>;

/// Work whose rate is measured.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) name: String,
    /// Bytes processed by one call of the work.
    pub(super) bytes: usize,
    /// Creates the work, on the thread that runs it.
    pub(super) start: Arc<dyn Fn() -> Work + Send + Sync>,
}

impl Subject {
    fn new(
        name: impl Into<String>,
        bytes: usize,
        start: impl Fn() -> Work + Send + Sync + 'static,
    ) -> Subject {
        Subject { name: name.into(), bytes, start: Arc::new(start) }
    }
}

/// Subjects that are compared.
#[derive(Clone)]
pub(super) struct Group {
    /// File name of its table.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) subjects: Vec<Subject>,
    /// Index of the subject that the others are compared with.
    pub(super) beside: Option<usize>,
    /// Whether a subject uses a single core, so that a run on all cores at once is informative.
    pub(super) is_per_core: bool,
}

/// Every cipher in CTR mode.
pub(super) fn ciphers() -> Vec<Group> {
    Cipher::ALL.into_iter().map(cipher).collect()
}

fn cipher(cipher: Cipher) -> Group {
    let (name, theirs) = match cipher {
        Cipher::Aes128 => ("aes and ctr crates", stream::<Ctr128BE<aes::Aes128>>(cipher)),
        Cipher::Aes192 => ("aes and ctr crates", stream::<Ctr128BE<aes::Aes192>>(cipher)),
        Cipher::Aes256 => ("aes and ctr crates", stream::<Ctr128BE<aes::Aes256>>(cipher)),
        Cipher::Kuznyechik => {
            ("kuznyechik and ctr crates", stream::<Ctr128BE<kuznyechik::Kuznyechik>>(cipher))
        }
    };
    let mut subjects = vec![Subject { name: name.to_owned(), ..theirs }];
    subjects.extend(variants::ctrs(cipher).into_iter().map(|ctr| {
        Subject::new(ctr.name, CHUNKS * CHUNK, move || {
            let key = AnyKey::new(cipher, key(cipher));
            let mut data = vec![0; CHUNKS * CHUNK];
            Box::new(move || {
                data.chunks_mut(CHUNK).for_each(|chunk| ctr.in_place(&key, &[0; 16], chunk));
            })
        })
    }));
    Group {
        name: cipher.name().to_owned(),
        title: format!("{} on one core", cipher.name()),
        text: "In place; the crates one long stream, ours a new counter block for every 4 KiB.".to_owned(),
        subjects,
        beside: Some(0),
        is_per_core: true,
    }
}

fn key(cipher: Cipher) -> &'static [u8] {
    &[0x5a; 32][..cipher.key_len()]
}

/// A stream cipher from the crates.
fn stream<C: KeyIvInit + StreamCipher + 'static>(cipher: Cipher) -> Subject {
    Subject::new("", CHUNKS * CHUNK, move || {
        let mut data = vec![0; CHUNKS * CHUNK];
        let Ok(mut cipher) = C::new_from_slices(key(cipher), &[0; 16]) else { return Box::new(|| {}) };
        Box::new(move || cipher.apply_keystream(&mut data))
    })
}

/// Tags of chunks with every integrity function.
pub(super) fn tags() -> Vec<Group> {
    Integrity::ALL.into_iter().map(tag).collect()
}

fn tag(integrity: Integrity) -> Group {
    let sha3 = Subject::new("sha3 crate, SHA3-256", CHUNKS * CHUNK, || {
        let data = vec![0; CHUNKS * CHUNK];
        Box::new(move || data.chunks(CHUNK).for_each(|chunk| _ = black_box(Sha3_256::digest(chunk))))
    });
    let mut subjects = vec![sha3];
    subjects.extend(variants::tags().into_iter().map(|variant| {
        Subject::new(variant.name, CHUNKS * CHUNK, move || {
            let keys = chunk_keys(Cipher::Aes256, integrity);
            let data = vec![0; CHUNKS * CHUNK];
            Box::new(move || {
                let chunks: Vec<Sealed> = data
                    .chunks(CHUNK)
                    .map(|ciphertext| Sealed { keys: &keys, id: &ID, ciphertext })
                    .collect();
                let mut out = [[0; 16]; CHUNKS];
                let mut done = 0;
                while done < CHUNKS {
                    done += variant.make(&chunks[done..], &mut out[done..]);
                }
                black_box(out);
            })
        })
    }));
    Group {
        name: integrity.name().to_owned(),
        title: format!("{} tags on one core", integrity.name()),
        text: "Of chunks of 4 KiB.".to_owned(),
        subjects,
        beside: Some(0),
        is_per_core: true,
    }
}

const ID: ChunkId = ChunkId { index: 0, epoch: 1, nonce: [7; 10] };

fn chunk_keys(cipher: Cipher, integrity: Integrity) -> ChunkKeys {
    ChunkKeys::new(cipher, integrity, key(cipher), &[0xa5; 32])
}

/// Chunks sealed and opened by the engine on the calling thread, a few at a time, as for small requests.
pub(super) fn chunks() -> Vec<Group> {
    [Cipher::Aes256, Cipher::Kuznyechik].into_iter().map(few).collect()
}

fn few(cipher: Cipher) -> Group {
    let mut subjects = Vec::new();
    subjects.push(Subject::new("seal 1, inline", CHUNK, move || {
        let keys = chunk_keys(cipher, Integrity::DEFAULT);
        let (plain, mut out) = ([0; CHUNK], [0; CHUNK]);
        Box::new(move || _ = black_box(keys.seal(&ID, &plain, &mut out)))
    }));
    subjects.push(Subject::new("open 1, inline", CHUNK, move || {
        let keys = chunk_keys(cipher, Integrity::DEFAULT);
        let (mut sealed, mut out) = ([0; CHUNK], [0; CHUNK]);
        let tag = keys.seal(&ID, &[0; CHUNK], &mut sealed);
        Box::new(move || _ = black_box(keys.open(&ID, &tag, &sealed, &mut out)))
    }));
    for count in [1, 2, 4, 7, 8, 64] {
        for (op, name) in [(Op::Seal, "seal"), (Op::Open, "open")] {
            subjects.push(Subject::new(format!("{name} {count}"), count * CHUNK, move || {
                let engine = CpuEngine::with_threads(1);
                let function = Function { cipher, integrity: Integrity::DEFAULT, op };
                runs(function, Arc::new(engine), &BufferPool::new(usize::MAX), count)
            }));
        }
    }
    Group {
        name: format!("{}-chunks", cipher.name()),
        title: format!("Chunks with {} and {}, on one core", cipher.name(), Integrity::DEFAULT.name()),
        text: "A number of chunks of 4 KiB, cipher and tag, as batches of the CPU engine.".to_owned(),
        subjects,
        beside: None,
        is_per_core: false,
    }
}

/// A batch of `count` chunks, run repeatedly. Does nothing if the engine fails.
fn runs(function: Function, engine: Arc<dyn Engine>, pool: &BufferPool, count: usize) -> Work {
    let Ok(mut batch) = batch(function, &*engine, pool, count) else { return Box::new(|| {}) };
    Box::new(move || _ = black_box(engine.run(&mut batch)))
}

/// Every engine of this machine on large batches.
pub(super) fn engines() -> Vec<Group> {
    let cpu: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let mut engines = vec![(cpu, Arc::new(BufferPool::new(usize::MAX)))];
    if let Ok(gpu) = GpuEngine::open(0) {
        let pool = BufferPool::new(usize::MAX);
        gpu.supply(&pool);
        engines.push((Arc::new(gpu), Arc::new(pool)));
    }
    let mut subjects = Vec::new();
    for cipher in Cipher::ALL {
        for (op, does) in [(Op::Seal, "seal"), (Op::Open, "open")] {
            for (engine, pool) in &engines {
                let (engine, pool) = (engine.clone(), pool.clone());
                let name = format!("{} {does} {}", engine.name(), cipher.name());
                subjects.push(Subject::new(name, BATCH * CHUNK, move || {
                    let function = Function { cipher, integrity: Integrity::DEFAULT, op };
                    runs(function, engine.clone(), &pool, BATCH)
                }));
            }
        }
    }
    vec![Group {
        name: "engines".to_owned(),
        title: format!("Engines, with {}", Integrity::DEFAULT.name()),
        text: "Batches of 4 MiB, one after the other; the CPU's is shared by all cores.".to_owned(),
        subjects,
        beside: None,
        is_per_core: false,
    }]
}
