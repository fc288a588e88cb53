//! What each engine takes for a batch, by its size: measured once for a machine, used to choose.

use super::{Batch, BufferPool, ChunkJob, CpuEngine, Engine, EngineError, GpuEngine, Op};
use crate::crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::Cipher,
    mac::Integrity,
};
use serde::{Deserialize, Serialize};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Sizes of the batches that are timed, in bytes.
const SIZES: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Runs of each size: the best one counts, after one that does not.
const RUNS: usize = 3;
/// Sizes beyond the first one that takes longer than this are not timed.
const LONG: Duration = Duration::from_millis(25);
/// Sizes that are looked at for the crossover, up to this one.
const LARGEST: usize = 64 << 20;

/// A batch's time by its size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Bytes and nanoseconds, by size.
    pub points: Vec<(usize, u64)>,
}

impl Curve {
    /// Nanoseconds that a batch of `bytes` is expected to take: on the line through the two measured sizes
    /// around it, or nearest to it.
    pub fn nanoseconds(&self, bytes: usize) -> u64 {
        let (from, to) = match self.points.iter().position(|point| point.0 >= bytes) {
            _ if self.points.len() < 2 => return self.of_one(bytes),
            Some(at) if at > 0 => (self.points[at - 1], self.points[at]),
            Some(_) => (self.points[0], self.points[1]),
            None => (self.points[self.points.len() - 2], self.points[self.points.len() - 1]),
        };
        let slope = (to.1 as f64 - from.1 as f64).max(0.0) / (to.0 as f64 - from.0 as f64).max(1.0);
        (from.1 as f64 + slope * (bytes as f64 - from.0 as f64)).max(0.0) as u64
    }

    fn of_one(&self, bytes: usize) -> u64 {
        self.points.first().map_or(u64::MAX / 4, |point| {
            (point.1 as f64 * (bytes as f64 / point.0.max(1) as f64).max(1.0)) as u64
        })
    }

    /// Bytes per second of the largest size.
    pub fn rate(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0 as f64 * 1e9 / point.1.max(1) as f64)
    }
}

/// Both engines on batches of one cipher and one integrity function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The cipher's name.
    pub cipher: String,
    /// The integrity function's name.
    pub integrity: String,
    /// The CPU's times.
    pub cpu: Curve,
    /// The GPU's times.
    pub gpu: Curve,
}

impl Comparison {
    /// The smallest batch, in bytes, that the GPU is expected to finish first; none up to 64 MiB if `None`.
    pub fn crossover(&self) -> Option<usize> {
        let mut sizes = (16..=LARGEST / CHUNK).map(|chunks| chunks * CHUNK);
        sizes.find(|size| self.gpu.nanoseconds(*size) < self.cpu.nanoseconds(*size))
    }
}

/// Times both engines with every cipher and integrity function.
///
/// # Errors
/// If an engine fails.
pub(super) fn compare(
    cpu: &CpuEngine,
    gpu: &GpuEngine,
    pool: &BufferPool,
) -> Result<Vec<Comparison>, EngineError> {
    let pairs = Cipher::ALL.into_iter().flat_map(|c| Integrity::ALL.into_iter().map(move |i| (c, i)));
    let compare = |(cipher, integrity): (Cipher, Integrity)| {
        let keys = Arc::new(ChunkKeys::new(cipher, integrity, &[1; 32][..cipher.key_len()], &[2; 32]));
        Ok(Comparison {
            cipher: cipher.name().to_owned(),
            integrity: integrity.name().to_owned(),
            cpu: time(cpu, &keys, pool)?,
            gpu: time(gpu, &keys, pool)?,
        })
    };
    pairs.map(compare).collect()
}

fn time(engine: &dyn Engine, keys: &Arc<ChunkKeys>, pool: &BufferPool) -> Result<Curve, EngineError> {
    let mut points = Vec::with_capacity(SIZES.len());
    for size in SIZES {
        let mut batch = batch(keys, pool, size);
        engine.run(&mut batch)?;
        let mut best = Duration::MAX;
        for _ in 0..RUNS {
            let start = Instant::now();
            engine.run(&mut batch)?;
            best = best.min(start.elapsed());
            if best > LONG {
                break;
            }
        }
        points.push((size, u64::try_from(best.as_nanos()).unwrap_or(u64::MAX)));
        if best > LONG {
            break;
        }
    }
    Ok(Curve { points })
}

/// A batch of whole chunks. What is sealed is of no matter.
fn batch(keys: &Arc<ChunkKeys>, pool: &BufferPool, bytes: usize) -> Batch {
    let (input, output) = pool.get_pair(bytes);
    let job = |n: usize| {
        let id = ChunkId { index: n as u64, epoch: 1, nonce: [0; 10] };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(usize, u64)]) -> Curve {
        Curve { points: points.to_vec() }
    }

    #[test]
    fn a_curve_goes_through_its_points_and_on_beyond_them() {
        let curve = curve(&[(100, 1000), (200, 1500), (400, 3500)]);
        for (bytes, nanoseconds) in
            [(100, 1000), (150, 1250), (200, 1500), (300, 2500), (500, 4500), (50, 750)]
        {
            assert_eq!(curve.nanoseconds(bytes), nanoseconds, "{bytes}");
        }
        let falling = Curve { points: vec![(100, 1000), (200, 900)] };
        assert_eq!(falling.nanoseconds(1000), 1000, "noise does not make a batch of any size free");
        assert_eq!(Curve { points: vec![(100, 7)] }.nanoseconds(1000), 70);
        assert!(Curve { points: vec![] }.nanoseconds(1) > 1 << 60, "an engine without times is not chosen");
    }

    #[test]
    fn the_crossover_is_where_the_gpu_begins_to_win() {
        let compare = |cpu: &[(usize, u64)], gpu: &[(usize, u64)]| Comparison {
            cipher: String::new(),
            integrity: String::new(),
            cpu: curve(cpu),
            gpu: curve(gpu),
        };
        let lines = compare(&[(0, 0), (1 << 20, 1 << 20)], &[(0, 1 << 19), (1 << 20, (1 << 19) + (1 << 18))]);
        let exact = (1usize << 19) * 4 / 3;
        assert_eq!(lines.crossover(), Some((exact / CHUNK + 1) * CHUNK));
        assert_eq!(compare(&[(0, 0), (1 << 20, 10)], &[(0, 5), (1 << 20, 20)]).crossover(), None);
        assert_eq!(compare(&[(0, 9), (1 << 20, 99)], &[(0, 5), (1 << 20, 20)]).crossover(), Some(16 * CHUNK));
    }
}
