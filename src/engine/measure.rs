//! What an engine takes for a batch, by its size and functions: measured once for a machine, used to choose.

use super::{Batch, BufferPool, ChunkJob, CpuEngine, Engine, EngineError, Op};
use crate::crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::Cipher,
    mac::Integrity,
};
use serde::{Deserialize, Serialize};
use std::{
    mem,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

/// Sizes of the batches that are timed: 64 KiB to 64 MiB, in bytes, as powers of two.
const POWERS: RangeInclusive<u32> = 16..=26;
/// Batches of more bytes than this stay in no cache, so it is of no matter who had them before.
const CACHED: usize = 16 << 20;
/// Runs of each size, after one that does not count; their median does.
const RUNS: usize = 9;
/// Sizes beyond the first one that takes longer than this are not timed.
const LONG: Duration = Duration::from_millis(25);
/// Sizes that are looked at for the crossover, up to this one.
const LARGEST: usize = 64 << 20;

/// What a batch's time depends on besides its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The cipher.
    pub cipher: Cipher,
    /// The integrity function.
    pub integrity: Integrity,
    /// Seal or open.
    pub op: Op,
}

impl Function {
    /// How many there are.
    pub const COUNT: usize = Cipher::ALL.len() * Integrity::ALL.len() * Op::ALL.len();

    /// All, by their numbers.
    pub fn all() -> impl Iterator<Item = Function> {
        (0..Self::COUNT).map(|number| Function {
            cipher: Cipher::ALL[number / (Integrity::ALL.len() * Op::ALL.len())],
            integrity: Integrity::ALL[number / Op::ALL.len() % Integrity::ALL.len()],
            op: Op::ALL[number % Op::ALL.len()],
        })
    }

    /// Its number, below `COUNT`.
    pub(super) fn number(self) -> usize {
        let cipher = Cipher::ALL.iter().position(|c| *c == self.cipher).unwrap_or(0);
        let integrity = Integrity::ALL.iter().position(|i| *i == self.integrity).unwrap_or(0);
        let op = Op::ALL.iter().position(|op| *op == self.op).unwrap_or(0);
        (cipher * Integrity::ALL.len() + integrity) * Op::ALL.len() + op
    }

    /// That of a batch. Batches have the keys of one vault, all of the same functions: the first one's hold
    /// for all.
    pub(super) fn of(batch: &Batch) -> Option<Function> {
        let (cipher, integrity) = batch.keys.first()?.functions();
        Some(Function { cipher, integrity, op: batch.op })
    }
}

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

    /// Nanoseconds for each byte where it is fastest: what a batch costs an engine that has others to do
    /// meanwhile.
    pub(super) fn per_byte(&self) -> f64 {
        let each = self.points.iter().map(|point| point.1 as f64 / point.0.max(1) as f64);
        each.fold(f64::INFINITY, f64::min).min(1e6)
    }
}

/// An engine's curves, one for each function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    curves: Vec<Curve>,
}

impl Profile {
    /// The curve of a function.
    pub fn curve(&self, function: Function) -> &Curve {
        &self.curves[function.number()]
    }

    /// Whether it has what a profile has; one that was read from a file may not.
    pub(super) fn is_whole(&self) -> bool {
        let rises = |curve: &Curve| curve.points.is_sorted_by(|a, b| a.0 < b.0);
        self.curves.len() == Function::COUNT && self.curves.iter().all(rises)
    }

    #[cfg(test)]
    pub(super) fn of(curve: &Curve) -> Self {
        Profile { curves: vec![curve.clone(); Function::COUNT] }
    }
}

/// The smallest batch of a function, in bytes, that an engine of the second profile is expected to finish before
/// one of the first; none up to 64 MiB if `None`.
pub fn crossover(cpu: &Profile, gpu: &Profile, function: Function) -> Option<usize> {
    let (cpu, gpu) = (cpu.curve(function), gpu.curve(function));
    let mut sizes = (16..=LARGEST / CHUNK).map(|chunks| chunks * CHUNK);
    sizes.find(|size| gpu.nanoseconds(*size) < cpu.nanoseconds(*size))
}

/// Times an engine with every function. `cpu` makes what it opens.
///
/// # Errors
/// If an engine fails.
pub(super) fn profile(
    engine: &dyn Engine,
    cpu: &CpuEngine,
    pool: &BufferPool,
) -> Result<Profile, EngineError> {
    let curves = Function::all().map(|function| time(engine, cpu, function, pool));
    Ok(Profile { curves: curves.collect::<Result<_, _>>()? })
}

fn time(
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
            // The CPU has just read it from a store: for each engine the same.
            if size <= CACHED {
                batch.input.copy_from_slice(&content);
                batch.output.fill(0);
            }
            let start = Instant::now();
            engine.run(&mut batch)?;
            times.push(start.elapsed());
        }
        times.sort();
        let median = times[times.len() / 2];
        points.push((size, u64::try_from(median.as_nanos()).unwrap_or(u64::MAX)));
        if median > LONG {
            break;
        }
    }
    Ok(Curve { points })
}

/// A batch of whole chunks; one to open verifies.
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

    fn curve(points: &[(usize, u64)]) -> Curve {
        Curve { points: points.to_vec() }
    }

    #[test]
    fn functions_are_numbered_in_their_order() {
        assert!(Function::all().map(Function::number).eq(0..Function::COUNT));
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
        let function = Function { cipher: Cipher::Aes128, integrity: Integrity::Kmac128, op: Op::Seal };
        let found = |cpu: &[(usize, u64)], gpu: &[(usize, u64)]| {
            crossover(&Profile::of(&curve(cpu)), &Profile::of(&curve(gpu)), function)
        };
        let lines = found(&[(0, 0), (1 << 20, 1 << 20)], &[(0, 1 << 19), (1 << 20, (1 << 19) + (1 << 18))]);
        let exact = (1usize << 19) * 4 / 3;
        assert_eq!(lines, Some((exact / CHUNK + 1) * CHUNK));
        assert_eq!(found(&[(0, 0), (1 << 20, 10)], &[(0, 5), (1 << 20, 20)]), None);
        assert_eq!(found(&[(0, 9), (1 << 20, 99)], &[(0, 5), (1 << 20, 20)]), Some(16 * CHUNK));
    }

    #[test]
    fn half_a_profile_is_none() {
        let whole = Profile::of(&curve(&[(1, 1), (2, 2)]));
        assert!(whole.is_whole());
        assert!(!Profile { curves: whole.curves[1..].to_vec() }.is_whole());
        assert!(!Profile::of(&curve(&[(2, 1), (1, 2)])).is_whole());
    }
}
