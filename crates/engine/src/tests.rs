//! Compares every engine with chunks sealed one by one, and gives it batches that no engine may run.

use super::*;
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::Cipher,
    integrity::Integrity,
    tags::Opened,
};
use proptest::prelude::*;
use std::{sync::Arc, thread};

/// The engines under test. Each must produce the same bytes as `ChunkKeys`.
fn engines() -> Vec<Box<dyn Engine>> {
    vec![Box::new(CpuEngine::with_threads(1)), Box::new(CpuEngine::with_threads(4))]
}

/// Number of pairs of cipher and integrity function.
const PAIRS: usize = Cipher::ALL.len() * Integrity::ALL.len();

/// Keys for every cipher with every integrity function.
fn all_keys() -> Vec<Arc<ChunkKeys>> {
    let pairs = Cipher::ALL.into_iter().flat_map(|c| Integrity::ALL.into_iter().map(move |i| (c, i)));
    pairs
        .enumerate()
        .map(|(n, (cipher, integrity))| {
            let key = [n as u8; 32];
            Arc::new(ChunkKeys::new(cipher, integrity, &key[..cipher.key_len()], &key))
        })
        .collect()
}

/// The `n`th job. The jobs use all keys and many lengths, and some have gaps before them.
fn job(n: usize, len: usize, offset: usize) -> ChunkJob {
    let id = ChunkId { index: n as u64 * 0x12_3456, epoch: n as u64, nonce: [n as u8; 10] };
    ChunkJob { key: n % PAIRS, id, len, offset, tag: [0; 16], ok: false }
}

/// A batch of chunks with these lengths and gaps, over a fixed pattern.
fn batch(pool: &BufferPool, op: Op, layout: &[(usize, usize)]) -> Batch {
    let total = layout.iter().map(|(len, gap)| len + gap).sum();
    let (mut input, mut output) = pool.get_pair(total);
    input.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 31 + i / 256) as u8);
    output.fill(0xee);
    let mut offset = 0;
    let jobs = layout.iter().enumerate().map(|(n, &(len, gap))| {
        offset += gap;
        let job = job(n, len, offset);
        offset += len;
        job
    });
    Batch { op, keys: all_keys(), jobs: jobs.collect(), input, output }
}

/// Seals the layout with `engine` and compares every chunk with one sealed alone. Then corrupts some of the
/// chunks and opens all of them.
fn engine_agrees(engine: &dyn Engine, layout: &[(usize, usize)]) {
    let pool = BufferPool::new(usize::MAX);
    let mut sealed = batch(&pool, Op::Seal, layout);
    sealed.jobs.reverse();
    engine.run(&mut sealed).expect("a good batch");
    for job in &sealed.jobs {
        let range = job.offset..job.offset + job.len;
        let mut alone = vec![0; job.len];
        let tag = sealed.keys[job.key].seal(&job.id, &sealed.input[range.clone()], &mut alone);
        assert!(job.ok);
        assert_eq!((tag, &alone[..]), (job.tag, &sealed.output[range]), "{job:?}");
    }
    opens_all_but_the_broken(engine, &pool, sealed);
}

fn opens_all_but_the_broken(engine: &dyn Engine, pool: &BufferPool, sealed: Batch) {
    let Batch { keys, mut jobs, input: plain, output: mut ciphertext, .. } = sealed;
    for (n, job) in jobs.iter_mut().enumerate() {
        match n % 7 {
            2 => ciphertext[job.offset + job.len / 2] ^= 0x10,
            3 => job.tag[n % 16] ^= 1,
            4 => job.id.epoch += 1,
            5 => job.id.index += 1,
            6 => job.id.nonce[n % 10] ^= 0x80,
            _ => {}
        }
    }
    let mut output = pool.get(ciphertext.len());
    output.fill(0xee);
    let mut opened = Batch { op: Op::Open, keys, jobs, input: ciphertext, output };
    engine.run(&mut opened).expect("a good batch");
    let mut covered = vec![false; plain.len()];
    for (n, job) in opened.jobs.iter().enumerate() {
        let range = job.offset..job.offset + job.len;
        assert_eq!(job.ok, n % 7 < 2, "{job:?}");
        let zeros = vec![0; job.len];
        let expected = if job.ok { &plain[range.clone()] } else { &zeros[..] };
        assert_eq!(&opened.output[range.clone()], expected, "{job:?}");
        covered[range].fill(true);
    }
    let outside = opened.output.iter().zip(covered).filter(|(_, covered)| !covered);
    assert!(outside.into_iter().all(|(byte, _)| *byte == 0xee), "bytes between the chunks were written");
}

#[test]
fn empty_small_and_large_batches_agree_with_single_chunks() {
    let lengths = [1, 2, 15, 16, 17, 137, 138, 139, 1023, 1024, 1025, 4095, 4096];
    for engine in engines() {
        for count in [0, 1, 2, 15, 16, 17, 33, 400] {
            let layout: Vec<_> = (0..count).map(|n| (lengths[n % 13], n % 3)).collect();
            engine_agrees(&*engine, &layout);
        }
    }
}

/// One chunk, sealed by every pair of functions with keys of the same bytes: the ciphertexts of different
/// ciphers differ, and so do the tags of different pairs.
#[test]
fn no_two_functions_seal_alike() {
    let pool = BufferPool::new(usize::MAX);
    let functions = |keys: &[Arc<ChunkKeys>], job: &ChunkJob| keys[job.key].functions();
    for engine in engines() {
        for len in [16, 17, 255, CHUNK] {
            let mut batch = batch(&pool, Op::Seal, &vec![(len, 0); 4 * PAIRS]);
            batch.input.fill(0x5a);
            for (n, key) in batch.keys.iter_mut().enumerate() {
                let (cipher, integrity) =
                    (Cipher::ALL[n / Integrity::ALL.len()], Integrity::ALL[n % Integrity::ALL.len()]);
                *key = Arc::new(ChunkKeys::new(cipher, integrity, &[7; 32][..cipher.key_len()], &[8; 32]));
            }
            batch.jobs.iter_mut().for_each(|job| job.id = ChunkId { index: 1, epoch: 2, nonce: [3; 10] });
            engine.run(&mut batch).expect("a good batch");
            for (at, one) in batch.jobs.iter().enumerate() {
                for other in &batch.jobs[..at] {
                    let (mine, its) = (functions(&batch.keys, one), functions(&batch.keys, other));
                    let text = |job: &ChunkJob| &batch.output[job.offset..][..16];
                    assert_eq!(text(one) == text(other), mine.0 == its.0, "{mine:?} and {its:?}");
                    assert_eq!(one.tag == other.tag, mine == its, "{mine:?} and {its:?}");
                }
            }
        }
    }
}

#[test]
fn any_number_of_chunks_is_opened_in_place_or_one_that_is_broken_found() {
    let id = |index| ChunkId { index, epoch: 1, nonce: [3; 10] };
    let router = Router::new(EngineChoice::Cpu, 1 << 20).expect("there is a CPU");
    for keys in all_keys() {
        for count in [0, 1, 15, 16, 17, 33, 100] {
            let mut data = vec![[0; CHUNK]; count];
            let seal = |(index, data): (usize, &mut [u8; CHUNK])| {
                keys.seal(&id(index as u64), &[index as u8; CHUNK], data)
            };
            let mut tags: Vec<_> = data.iter_mut().enumerate().map(seal).collect();
            let open = |data: &mut [[u8; CHUNK]], tags: &[[u8; 16]]| {
                let mut chunks = Vec::new();
                for (index, (data, tag)) in data.iter_mut().zip(tags).enumerate() {
                    chunks.push(Opened { id: id(index as u64), tag: *tag, data });
                }
                router.decrypt_run(&keys, &mut chunks)
            };
            let mut opened = data.clone();
            assert_eq!(open(&mut opened, &tags), Ok(()));
            assert!(opened.iter().enumerate().all(|(index, data)| *data == [index as u8; CHUNK]));
            if let Some(last) = tags.last_mut() {
                last[5] ^= 1;
                assert_eq!(open(&mut data, &tags), Err(count - 1));
            }
        }
    }
}

#[test]
fn parts_are_shared_each_once_and_a_panic_is_an_error() {
    for engine in [1, 4].map(CpuEngine::with_threads) {
        for count in [0, 1, 2, 5, 300] {
            let mut parts = vec![0; count];
            assert!(engine.share(&mut parts, |part| *part += 1).is_ok());
            assert_eq!(parts, vec![1; count]);
        }
        let failed = engine.share(&mut [1, 2, 3], |part| assert_ne!(*part, 2, "on purpose"));
        assert!(matches!(failed, Err(EngineError::Failed { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn random_batches_agree_with_single_chunks(
        layout in prop::collection::vec((1..=CHUNK, 0usize..5000), 0..120),
    ) {
        for engine in engines() {
            engine_agrees(&*engine, &layout);
        }
    }
}

#[test]
fn many_callers_share_one_engine() {
    let engine = CpuEngine::with_threads(3);
    thread::scope(|scope| {
        for caller in 0..8 {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..6 {
                    let layout: Vec<_> =
                        (0..40 + 9 * caller).map(|n| (1 + (n * 97 + round) % CHUNK, 0)).collect();
                    engine_agrees(engine, &layout);
                }
            });
        }
    });
}

/// Makes a good batch invalid.
type Spoil = fn(&mut Batch);

#[test]
fn a_bad_job_is_an_error_and_nothing_runs() {
    let pool = BufferPool::new(usize::MAX);
    let breaks: [(&str, Spoil); 11] = [
        ("unknown key", |b| b.jobs[7].key = PAIRS),
        ("empty", |b| b.jobs[7].len = 0),
        ("longer than a chunk", |b| b.jobs[7].len = CHUNK + 1),
        ("longest length", |b| b.jobs[7].len = usize::MAX),
        ("beyond the end", |b| b.jobs[19].offset += 1),
        ("far beyond the end", |b| b.jobs[7].offset = usize::MAX),
        ("overlap by one byte", |b| b.jobs[7].offset -= 1),
        ("the same place", |b| b.jobs[7].offset = b.jobs[8].offset),
        ("index too large", |b| b.jobs[7].id.index = ChunkId::INDEX_END),
        ("largest index", |b| b.jobs[7].id.index = u64::MAX),
        ("output too short", |b| b.output = BufferPool::new(1).get(b.input.len() - 1)),
    ];
    for engine in engines() {
        for (name, spoil) in breaks {
            for op in [Op::Seal, Op::Open] {
                let mut bad = batch(&pool, op, &[(100, 0); 20]);
                bad.jobs.iter_mut().for_each(|job| job.ok = true);
                spoil(&mut bad);
                bad.output.fill(0xee);
                let error = engine.run(&mut bad).expect_err(name);
                assert!(matches!(error, EngineError::BadJob { .. }), "{name}: {error}");
                assert!(bad.output.iter().all(|byte| *byte == 0xee), "{name}: output written");
                assert!(bad.jobs.iter().all(|job| !job.ok), "{name}: a job claims success");
            }
        }
    }
}

#[test]
fn the_router_runs_batches_whatever_is_chosen() {
    for choice in [EngineChoice::Auto, EngineChoice::Cpu] {
        let router = Router::new(choice, 1 << 20).expect("there is a CPU");
        assert!(router.threads() >= 1);
        let mut sealed = batch(&router.buffers, Op::Seal, &[(4096, 0); 32]);
        router.run(&mut sealed).expect("a good batch");
        let job = &sealed.jobs[31];
        let mut alone = sealed.output[job.offset..].to_vec();
        let keys = &sealed.keys[job.key];
        let opened = Opened { id: job.id, tag: job.tag, data: &mut alone };
        router.decrypt_few(keys, &mut [opened]).expect("it verifies");
        assert_eq!(alone, sealed.input[job.offset..]);
        let mut again = vec![0; alone.len()];
        assert_eq!(keys.seal(&job.id, &alone, &mut again), job.tag);
        assert_eq!(again, sealed.output[job.offset..]);
    }
}
