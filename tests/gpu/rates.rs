//! Prints measurements of a real device: `cargo test --release --test gpu -- --ignored --nocapture
//! rates`.

use crate::real;
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::Cipher,
    integrity::Integrity,
};
use cudarc::driver::sys;
use engine::{Batch, BufferPool, ChunkJob, CpuEngine, Engine, GpuEngine, Op, Shape, TransferModes};
use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const PAIRS: [(Cipher, Integrity); 3] = [
    (Cipher::Aes256, Integrity::TurboShake128x4),
    (Cipher::Kuznyechik, Integrity::TurboShake128x4),
    (Cipher::Aes256, Integrity::Kmac128),
];

/// Bytes per second in each direction, both at once, with page-locked memory; the best of five.
fn duplex() -> f64 {
    const LEN: usize = 64 << 20;
    // SAFETY: every pointer is to live memory of that size; the streams are waited for before the end.
    unsafe {
        let mut context = ptr::null_mut();
        assert_eq!(sys::cuInit(0), sys::CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuCtxCreate_v2(&mut context, 0, 0), sys::CUresult::CUDA_SUCCESS);
        let mut lanes = [(ptr::null_mut::<c_void>(), 0, ptr::null_mut()); 2];
        for (host, device, stream) in &mut lanes {
            assert_eq!(sys::cuMemHostAlloc(host, LEN, 0), sys::CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuMemAlloc_v2(device, LEN), sys::CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuStreamCreate(stream, 1), sys::CUresult::CUDA_SUCCESS);
        }
        let mut best = 0f64;
        for _ in 0..5 {
            let (start, rounds) = (Instant::now(), 16);
            for _ in 0..rounds {
                assert_eq!(
                    sys::cuMemcpyHtoDAsync_v2(lanes[0].1, lanes[0].0, LEN, lanes[0].2),
                    sys::CUresult::CUDA_SUCCESS
                );
                assert_eq!(
                    sys::cuMemcpyDtoHAsync_v2(lanes[1].0, lanes[1].1, LEN, lanes[1].2),
                    sys::CUresult::CUDA_SUCCESS
                );
            }
            assert_eq!(sys::cuCtxSynchronize(), sys::CUresult::CUDA_SUCCESS);
            best = best.max((rounds * LEN) as f64 / start.elapsed().as_secs_f64());
        }
        sys::cuCtxDestroy_v2(context);
        best
    }
}

fn batch(keys: &Arc<ChunkKeys>, pool: &BufferPool, bytes: usize) -> Batch {
    let (mut input, output) = pool.get_pair(bytes);
    input.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let job = |n: usize| {
        let id = ChunkId { index: n as u64, epoch: 1, nonce: [n as u8; 10] };
        ChunkJob { key: 0, id, len: CHUNK, offset: n * CHUNK, tag: [0; 16], ok: false }
    };
    Batch {
        op: Op::Seal,
        keys: vec![keys.clone()],
        jobs: (0..bytes / CHUNK).map(job).collect(),
        input,
        output,
    }
}

/// A batch for this operation. For opening, a batch that verifies.
fn prepared(keys: &Arc<ChunkKeys>, pool: &BufferPool, bytes: usize, op: Op) -> Batch {
    let mut batch = batch(keys, pool, bytes);
    if op == Op::Open {
        CpuEngine::new().run(&mut batch).expect("a good batch");
        let ciphertext = batch.output.to_vec();
        batch.input.copy_from_slice(&ciphertext);
        batch.op = op;
    }
    batch
}

/// Bytes per second of `callers` threads with one batch each, measured over slightly less than a second.
fn rate(
    engine: &dyn Engine,
    keys: &Arc<ChunkKeys>,
    pool: &BufferPool,
    callers: usize,
    bytes: usize,
    op: Op,
) -> f64 {
    let done = AtomicUsize::new(0);
    let mut batches: Vec<Batch> = (0..callers).map(|_| prepared(keys, pool, bytes, op)).collect();
    let (start, length) = (Instant::now(), Duration::from_millis(400));
    thread::scope(|scope| {
        for batch in &mut batches {
            let done = &done;
            scope.spawn(move || {
                while start.elapsed() < length {
                    engine.run(batch).expect("a good batch");
                    done.fetch_add(bytes, Relaxed);
                }
                assert!(batch.jobs.iter().all(|job| job.ok));
            });
        }
    });
    done.into_inner() as f64 / start.elapsed().as_secs_f64()
}

/// Activity before each of several batches run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The CPU fills the batch's buffers, as when it reads from a store.
    Writing,
    /// The thread sleeps for one millisecond.
    Sleep,
}

/// Times of 201 batches run alone, sorted in ascending order.
fn latencies(
    engine: &dyn Engine,
    keys: &Arc<ChunkKeys>,
    pool: &BufferPool,
    bytes: usize,
    op: Op,
    before: Before,
) -> Vec<Duration> {
    let mut batch = prepared(keys, pool, bytes, op);
    let content = batch.input.to_vec();
    let mut times: Vec<Duration> = (0..201)
        .map(|_| {
            match before {
                Before::Nothing => {}
                Before::Writing => {
                    batch.input.copy_from_slice(&content);
                    batch.output.fill(0);
                }
                Before::Sleep => thread::sleep(Duration::from_millis(1)),
            }
            let start = Instant::now();
            engine.run(&mut batch).expect("a good batch");
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// Median of `latencies`, in microseconds.
fn latency(
    engine: &dyn Engine,
    keys: &Arc<ChunkKeys>,
    pool: &BufferPool,
    bytes: usize,
    op: Op,
    before: Before,
) -> u128 {
    latencies(engine, keys, pool, bytes, op, before)[100].as_micros()
}

fn named((cipher, integrity): (Cipher, Integrity)) -> String {
    format!("{}+{}", cipher.name(), integrity.name())
}

fn keys((cipher, integrity): (Cipher, Integrity)) -> Arc<ChunkKeys> {
    Arc::new(ChunkKeys::new(cipher, integrity, &[3; 32][..cipher.key_len()], &[4; 32]))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Each operation with several callers: its rate, and that as a share of plain copies measured just
/// before each round.
fn full_load(gpu: &GpuEngine, pool: &BufferPool, pair: (Cipher, Integrity), callers: usize) {
    let keys = keys(pair);
    // Memory is slower on first use.
    rate(gpu, &keys, pool, callers, 16 << 20, Op::Open);
    for op in [Op::Seal, Op::Open] {
        let rounds: Vec<(f64, f64)> =
            (0..7).map(|_| (duplex(), rate(gpu, &keys, pool, callers, 16 << 20, op))).collect();
        println!(
            "{}; {op:?}, {callers} callers of 16 MiB: {:.1} GB/s, {:.1} % of the copies alone (medians of 7)",
            named(pair),
            median(rounds.iter().map(|round| round.1 / 1e9).collect()),
            median(rounds.iter().map(|round| 100.0 * round.1 / round.0).collect()),
        );
    }
}

#[test]
#[ignore = "takes minutes and prints figures"]
fn rates() {
    if !real::ready() {
        return;
    }
    println!("duplex copies alone: {:.1} GB/s each way", duplex() / 1e9);
    let base = Shape::default();
    let shapes = [
        ("default", base),
        ("pieces of 8 MiB", Shape { piece: 8 << 20, ..base }),
        ("never direct", Shape { modes: TransferModes { direct: 0, ..base.modes }, ..base }),
    ];
    for (name, shape) in shapes {
        let gpu = GpuEngine::with_shape(0, shape, Duration::from_secs(1)).expect("a device");
        let pool = BufferPool::new(usize::MAX);
        gpu.supply(&pool);
        println!("{name}:");
        for pair in PAIRS {
            [8, 16].into_iter().for_each(|callers| full_load(&gpu, &pool, pair, callers));
            let keys = keys(pair);
            for (callers, bytes) in [(1, 16 << 20), (1, 64 << 20), (4, 1 << 20), (8, 4 << 20)] {
                let [seal, open] =
                    [Op::Seal, Op::Open].map(|op| rate(&gpu, &keys, &pool, callers, bytes, op) / 1e9);
                println!(
                    "{}; {callers} callers of {} MiB: seal {seal:.1}, open {open:.1} GB/s",
                    named(pair),
                    bytes >> 20
                );
            }
            for bytes in [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20] {
                let [seal, open] =
                    [Op::Seal, Op::Open].map(|op| latency(&gpu, &keys, &pool, bytes, op, Before::Nothing));
                println!(
                    "{}; one batch of {} KiB alone: seal {seal}, open {open} us",
                    named(pair),
                    bytes >> 10
                );
            }
        }
    }
    let (cpu, pool) = (CpuEngine::new(), BufferPool::new(usize::MAX));
    for pair in PAIRS {
        let keys = keys(pair);
        let [seal, open] = [Op::Seal, Op::Open].map(|op| rate(&cpu, &keys, &pool, 1, 16 << 20, op) / 1e9);
        println!(
            "cpu, {} threads; {}; 16 MiB: seal {seal:.2}, open {open:.2} GB/s",
            cpu.threads(),
            named(pair)
        );
    }
}

/// Batches up to a given number of chunks are read and written directly in host memory, and larger ones
/// are copied.
#[test]
#[ignore = "prints figures"]
fn direct_and_copied() {
    if !real::ready() {
        return;
    }
    for round in 0..2 {
        for direct in [0, 256, 512, 1024] {
            let base = Shape::default();
            let shape = Shape { modes: TransferModes { direct, ..base.modes }, ..base };
            let gpu = GpuEngine::with_shape(0, shape, Duration::from_secs(1)).expect("a device");
            let pool = BufferPool::new(usize::MAX);
            gpu.supply(&pool);
            for pair in PAIRS {
                let keys = keys(pair);
                for bytes in [512 << 10, 1 << 20, 3 << 19, 2 << 20, 3 << 20, 4 << 20] {
                    let [seal, open] = [Op::Seal, Op::Open]
                        .map(|op| latency(&gpu, &keys, &pool, bytes, op, Before::Writing));
                    println!(
                        "round {round}, direct up to {direct}, {}; {} KiB: seal {seal}, open {open} us",
                        named(pair),
                        bytes >> 10
                    );
                }
            }
        }
    }
}

/// One batch alone, in several series: its time, and the variation. Also the throughput of several
/// callers with such batches.
#[test]
#[ignore = "prints figures"]
fn alone() {
    if !real::ready() {
        return;
    }
    let gpu = GpuEngine::open(0).expect("a device");
    let pool = BufferPool::new(usize::MAX);
    gpu.supply(&pool);
    for round in 0..5 {
        for (pair, op) in [(PAIRS[0], Op::Seal), (PAIRS[1], Op::Open)] {
            let keys = keys(pair);
            for bytes in [1 << 20, 4 << 20] {
                for before in [Before::Nothing, Before::Writing, Before::Sleep] {
                    let times = latencies(&gpu, &keys, &pool, bytes, op, before);
                    let [low, median, high] = [20, 100, 180].map(|place| times[place].as_micros());
                    println!(
                        "round {round}, {}; {op:?} {} KiB, before it {before:?}: median {median} us, \
                         four fifths within {low} to {high}",
                        named(pair),
                        bytes >> 10
                    );
                }
            }
            for (callers, bytes) in [(4, 1 << 20), (8, 4 << 20)] {
                let rate = rate(&gpu, &keys, &pool, callers, bytes, op) / 1e9;
                println!("round {round}, {}; {op:?}, {callers} callers: {rate:.1} GB/s", named(pair));
            }
        }
    }
}
