//! Times an engine: one function, batches of several sizes.

use super::{
    Batch, BufferPool, ChunkJob, CpuEngine, Engine, EngineError, Op,
    profile::{Curve, Function},
};
use crypto::chunk::{CHUNK, ChunkId, ChunkKeys};
use std::{
    mem,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

/// Sizes of the timed batches, as powers of two: 64 KiB to 8 MiB. Times between them are interpolated, and
/// those of larger ones extrapolated.
const POWERS: RangeInclusive<u32> = 16..=23;
/// Batches larger than this, in bytes, do not fit in any cache, so it does not matter which engine used
/// them before.
const CACHED: usize = 16 << 20;
/// Timed runs of each size, after one warm-up run.
const RUNS: usize = 5;
/// Index of the time used, with the shortest first. Other load makes a run longer but hardly ever shorter.
const COUNTS: usize = 1;
/// No size is timed after the first one that takes longer than this.
const LONG: Duration = Duration::from_millis(25);

/// Times an engine with a function; takes some tens of milliseconds. `cpu` seals the chunks for an open.
///
/// # Errors
/// If an engine fails.
pub(super) fn curve(
    engine: &dyn Engine,
    cpu: &CpuEngine,
    function: Function,
    pool: &BufferPool,
) -> Result<Curve, EngineError> {
    curve_by(Instant::now, engine, cpu, function, pool)
}

/// Like `curve`, but reads the time from `now`.
fn curve_by(
    now: impl Fn() -> Instant,
    engine: &dyn Engine,
    cpu: &CpuEngine,
    function: Function,
    pool: &BufferPool,
) -> Result<Curve, EngineError> {
    let mut points = Vec::new();
    for size in POWERS.map(|power| 1 << power) {
        let mut batch = batch(function, cpu, pool, size)?;
        let content = batch.input[..size.min(CACHED)].to_vec();
        engine.run(&mut batch)?;
        let mut times = Vec::with_capacity(RUNS);
        while times.len() < RUNS && times.last().is_none_or(|time| *time < LONG) {
            // Every engine starts from the same state: the CPU has just read the data from a store.
            if size <= CACHED {
                batch.input.copy_from_slice(&content);
                batch.output.fill(0);
            }
            let start = now();
            engine.run(&mut batch)?;
            times.push(now() - start);
        }
        times.sort();
        let time = times[COUNTS.min(times.len() - 1)];
        points.push((size, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        if time > LONG {
            break;
        }
    }
    Ok(Curve { points })
}

/// A batch of whole chunks. If `function` opens, the chunks verify.
///
/// # Errors
/// If `cpu` fails.
pub(super) fn batch(
    function: Function,
    cpu: &CpuEngine,
    pool: &BufferPool,
    bytes: usize,
) -> Result<Batch, EngineError> {
    let Function { cipher, integrity, op } = function;
    let key = Arc::new(ChunkKeys::new(cipher, integrity, &[1; 32][..cipher.key_len()], &[2; 32]));
    let (input, output) = pool.get_pair(bytes);
    let job = |n: usize| {
        let id = ChunkId { index: n as u64, epoch: 1, nonce: [0; 10] };
        ChunkJob { key: 0, id, len: CHUNK, offset: n * CHUNK, tag: [0; 16], ok: false }
    };
    let jobs = (0..bytes / CHUNK).map(job).collect();
    let mut batch = Batch { op: Op::Seal, keys: vec![key], jobs, input, output };
    if op == Op::Open {
        cpu.run(&mut batch)?;
        mem::swap(&mut batch.input, &mut batch.output);
        batch.op = Op::Open;
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the runs of each size and does nothing.
    struct CountingEngine(parking_lot::Mutex<Vec<usize>>);

    impl Engine for CountingEngine {
        fn name(&self) -> &str {
            "counting"
        }

        fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
            self.0.lock().push(batch.input.len());
            Ok(())
        }
    }

    #[test]
    fn each_size_is_timed_a_few_times() {
        let (cpu, pool) = (CpuEngine::with_threads(1), BufferPool::new(usize::MAX));
        // On a busy machine even nothing may take long.
        let start = Instant::now();
        for function in Function::all() {
            let engine = CountingEngine(parking_lot::Mutex::default());
            let curve = curve_by(|| start, &engine, &cpu, function, &pool).expect("it runs");
            let sizes = POWERS.map(|power| 1 << power);
            assert!(curve.points.iter().map(|point| point.0).eq(sizes.clone()));
            assert!(engine.0.into_inner().into_iter().eq(sizes.flat_map(|size| [size; RUNS + 1])));
        }
    }
}
