//! Random batches, processed by an engine and compared with the CPU's results.

use crate::{
    fake,
    support::{mounted::program_path, random::Random},
};
use crypto::{
    chunk::{ChunkId, ChunkKeys},
    cipher::Cipher,
    integrity::Integrity,
};
use engine::{
    Batch, BufferPool, ChunkJob, CpuEngine, Engine, EngineError, Fault, GpuEngine, Op, Shape, Timeouts,
    TransferModes, start_gpus_with,
};
use std::{sync::Arc, time::Duration};

/// A ring shape that small batches fill.
pub const SMALL: Shape = Shape {
    piece: 64 << 10,
    slots: 3,
    modes: TransferModes { wide: 12, direct: 6, watched: 10 },
    timeouts: Timeouts { base: Duration::from_secs(20), per_mib: Duration::ZERO },
};

/// Opens the engine on the first device, with the program under test as its process.
pub fn open(shape: Shape, pause: Duration) -> Result<GpuEngine, Fault> {
    start_gpus_with(program_path());
    GpuEngine::with_shape(0, shape, pause)
}

/// Keys for every combination of cipher and integrity function.
pub fn all_keys() -> Vec<Arc<ChunkKeys>> {
    let pairs = Cipher::ALL.into_iter().flat_map(|c| Integrity::ALL.into_iter().map(move |i| (c, i)));
    let keys = |(n, (cipher, integrity)): (usize, (Cipher, Integrity))| {
        let key = [n as u8 + 1; 32];
        Arc::new(ChunkKeys::new(cipher, integrity, &key[..cipher.key_len()], &key))
    };
    pairs.enumerate().map(keys).collect()
}

/// A batch to seal: up to `most` chunks of any length, using some of the keys, some preceded by gaps.
pub fn random_batch(random: &mut Random, keys: &[Arc<ChunkKeys>], pool: &BufferPool, most: u64) -> Batch {
    let chunks = 1 + random.below(most);
    let (gaps, whole, first, kinds) =
        (random.below(3) == 0, random.below(2) == 0, random.below(12), 1 + random.below(3));
    let (mut jobs, mut offset) = (Vec::new(), 0);
    for _ in 0..chunks {
        if gaps && random.below(4) == 0 {
            offset += random.below(9000) as usize;
        }
        let len = if whole { 4096 } else { 1 + random.below(4096) as usize };
        let mut nonce = [0; 10];
        random.fill(&mut nonce);
        let id = ChunkId { index: random.below(1 << 40), epoch: random.below(1 << 48), nonce };
        let key = ((first + random.below(kinds)) % keys.len() as u64) as usize;
        jobs.push(ChunkJob { key, id, len, offset, tag: [0; 16], ok: false });
        offset += len;
    }
    for at in (1..jobs.len()).rev() {
        jobs.swap(at, random.below(at as u64 + 1) as usize);
    }
    let (mut input, mut output) = pool.get_pair(offset);
    random.fill(&mut input);
    output.fill(0xee);
    Batch { op: Op::Seal, keys: keys.to_vec(), jobs, input, output }
}

/// A batch that opens what was sealed, with some chunks damaged.
pub fn damaged(random: &mut Random, sealed: &Batch, pool: &BufferPool) -> Batch {
    let (mut input, mut output) = pool.get_pair(sealed.output.len());
    input.copy_from_slice(&sealed.output);
    output.fill(0xee);
    let mut jobs = sealed.jobs.clone();
    for job in &mut jobs {
        match random.below(12) {
            0 => job.tag[random.below(16) as usize] ^= 1 << random.below(8),
            1 => input[job.offset + random.below(job.len as u64) as usize] ^= 1 << random.below(8),
            2 => job.id.epoch ^= 1,
            _ => {}
        }
    }
    Batch { op: Op::Open, keys: sealed.keys.clone(), jobs, input, output }
}

/// The same batch in separate memory.
pub fn copy(batch: &Batch) -> Batch {
    let (mut input, mut output) = BufferPool::new(usize::MAX).get_pair(batch.input.len());
    input.copy_from_slice(&batch.input);
    output.copy_from_slice(&batch.output);
    Batch { op: batch.op, keys: batch.keys.clone(), jobs: batch.jobs.clone(), input, output }
}

/// Asserts that two batches had the same outcome: every byte of the output and input, and every result.
pub fn assert_same(found: &Batch, expected: &Batch) {
    for (a, b) in found.jobs.iter().zip(&expected.jobs) {
        assert_eq!((a.ok, a.tag), (b.ok, b.tag), "{:?} {b:?}", expected.op);
    }
    assert!(found.output[..] == expected.output[..], "{:?}: other output", expected.op);
    assert!(found.input[..] == expected.input[..], "{:?}: the input was changed", expected.op);
}

/// Runs a batch on both engines and compares.
pub fn compare(gpu: &GpuEngine, cpu: &CpuEngine, mut batch: Batch) -> Result<Batch, EngineError> {
    let mut expected = copy(&batch);
    cpu.run(&mut expected).expect("a good batch");
    gpu.run(&mut batch)?;
    assert_same(&batch, &expected);
    Ok(batch)
}

/// Seals and opens one random batch.
pub fn round(
    gpu: &GpuEngine,
    cpu: &CpuEngine,
    random: &mut Random,
    keys: &[Arc<ChunkKeys>],
    pool: &BufferPool,
    most: u64,
) {
    let batch = random_batch(random, keys, pool, most);
    let sealed = compare(gpu, cpu, batch).expect("sealing");
    let batch = damaged(random, &sealed, pool);
    compare(gpu, cpu, batch).expect("opening");
}

#[test]
fn agrees_with_the_cpu() {
    fake::run_here("batches::over_fake_agrees_with_the_cpu", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_agrees_with_the_cpu() {
    let gpu = open(SMALL, Duration::from_millis(20)).expect("a device");
    assert_eq!(gpu.description().name, "Fake GPU");
    let (cpu, keys) = (CpuEngine::new(), all_keys());
    let [heap, locked] = [(); 2].map(|()| BufferPool::new(usize::MAX));
    gpu.supply(&locked);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (gpu, cpu, keys, heap, locked) = (&gpu, &cpu, &keys, &heap, &locked);
            scope.spawn(move || {
                let mut random = Random::new(&format!("batches {thread}"));
                for n in 0..8 {
                    let pool = if n % 2 == 0 { heap } else { locked };
                    round(gpu, cpu, &mut random, keys, pool, 60);
                }
            });
        }
    });
    assert!(gpu.in_service());
    let mut empty = Batch { op: Op::Seal, keys, jobs: vec![], input: heap.get(0), output: heap.get(0) };
    gpu.run(&mut empty).expect("nothing to do");
}

#[test]
fn refuses_bad_jobs() {
    fake::run_here("batches::over_fake_refuses_bad_jobs", &[], 120);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_refuses_bad_jobs() {
    let gpu = open(SMALL, Duration::from_millis(20)).expect("a device");
    let (pool, keys) = (BufferPool::new(usize::MAX), all_keys());
    type Spoil = fn(&mut ChunkJob);
    let spoils: [Spoil; 6] = [
        |job| job.key = usize::MAX,
        |job| job.len = 0,
        |job| job.len = 4097,
        |job| job.offset = usize::MAX,
        |job| job.id.index = ChunkId::INDEX_END,
        |job| job.len += 1,
    ];
    for spoil in spoils {
        let job = |n: usize| {
            let id = ChunkId { index: 1, epoch: 1, nonce: [0; 10] };
            ChunkJob { key: 0, id, len: 4096, offset: n * 4096, tag: [0; 16], ok: true }
        };
        let (input, mut output) = pool.get_pair(20 * 4096);
        output.fill(0xee);
        let mut batch =
            Batch { op: Op::Open, keys: keys.clone(), jobs: (0..20).map(job).collect(), input, output };
        spoil(&mut batch.jobs[7]);
        assert!(matches!(gpu.run(&mut batch), Err(EngineError::BadJob { .. })));
        assert!(batch.jobs.iter().all(|job| !job.ok) && batch.output.iter().all(|byte| *byte == 0xee));
        assert!(gpu.in_service(), "a bad job is not the device's fault");
    }
}
