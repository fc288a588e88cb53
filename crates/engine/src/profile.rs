//! Time that an engine takes for a batch, by size and function.

use super::{Batch, Op};
use crypto::{chunk::CHUNK, cipher::Cipher, integrity::Integrity};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest size considered for the crossover, in bytes.
pub(super) const LARGEST: usize = 64 << 20;

/// Properties of a batch, besides its size, that determine its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The cipher.
    pub cipher: Cipher,
    /// The integrity function.
    pub integrity: Integrity,
    /// Seal or open.
    pub op: Op,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} {}", self.op.name(), self.cipher.name(), self.integrity.name())
    }
}

impl Function {
    /// Number of functions.
    pub const COUNT: usize = Cipher::ALL.len() * Integrity::ALL.len() * Op::ALL.len();

    /// All functions, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Function> {
        (0..Self::COUNT).map(|number| Function {
            cipher: Cipher::ALL[number / (Integrity::ALL.len() * Op::ALL.len())],
            integrity: Integrity::ALL[number / Op::ALL.len() % Integrity::ALL.len()],
            op: Op::ALL[number % Op::ALL.len()],
        })
    }

    /// Number of the function, below `COUNT`.
    pub(super) fn number(self) -> usize {
        let functions = self.cipher as usize * Integrity::ALL.len() + self.integrity as usize;
        functions * Op::ALL.len() + self.op as usize
    }

    /// Function of a batch, taken from its first key. All keys of a batch belong to one vault and use the
    /// same functions.
    pub(super) fn of(batch: &Batch) -> Option<Function> {
        let (cipher, integrity) = batch.keys.first()?.functions();
        Some(Function { cipher, integrity, op: batch.op })
    }
}

/// Time of a batch by its size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Pairs of bytes and nanoseconds, sorted by size.
    pub points: Vec<(usize, u64)>,
}

impl Curve {
    /// Expected nanoseconds for a batch of `bytes`. Interpolates between the two measured sizes around it,
    /// or extrapolates from the two nearest ones.
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

    /// Bytes per second at the largest measured size.
    pub fn rate(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0 as f64 * 1e9 / point.1.max(1) as f64)
    }

    /// Nanoseconds per byte at the fastest size: the cost of a batch to an engine that has other batches to
    /// overlap it with.
    pub(super) fn per_byte(&self) -> f64 {
        let each = self.points.iter().map(|point| point.1 as f64 / point.0.max(1) as f64);
        each.fold(f64::INFINITY, f64::min).min(1e6)
    }
}

/// An engine's curves, one for each measured function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    curves: Vec<Option<Curve>>,
}

impl Profile {
    /// An empty profile.
    pub(super) fn new() -> Self {
        Profile { curves: vec![None; Function::COUNT] }
    }

    /// The curve of a function, if it was measured.
    pub fn curve(&self, function: Function) -> Option<&Curve> {
        self.curves[function.number()].as_ref()
    }

    /// Records a function's curve.
    pub(super) fn put(&mut self, function: Function, curve: Curve) {
        self.curves[function.number()] = Some(curve);
    }

    /// Whether the profile is well formed; one read from a file may not be.
    pub(super) fn is_sound(&self) -> bool {
        let rises = |curve: &Curve| !curve.points.is_empty() && curve.points.is_sorted_by(|a, b| a.0 < b.0);
        self.curves.len() == Function::COUNT && self.curves.iter().flatten().all(rises)
    }
}

/// The smallest batch, in bytes, that an idle GPU is expected to finish before an idle CPU. `None` if there
/// is none up to 64 MiB.
pub fn crossover(cpu: &Curve, gpu: &Curve) -> Option<usize> {
    let mut sizes = (16..=LARGEST / CHUNK).map(|chunks| chunks * CHUNK);
    sizes.find(|size| gpu.nanoseconds(*size) < cpu.nanoseconds(*size))
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
        let found = |cpu: &[(usize, u64)], gpu: &[(usize, u64)]| crossover(&curve(cpu), &curve(gpu));
        let lines = found(&[(0, 0), (1 << 20, 1 << 20)], &[(0, 1 << 19), (1 << 20, (1 << 19) + (1 << 18))]);
        let exact = (1usize << 19) * 4 / 3;
        assert_eq!(lines, Some((exact / CHUNK + 1) * CHUNK));
        assert_eq!(found(&[(0, 0), (1 << 20, 10)], &[(0, 5), (1 << 20, 20)]), None);
        assert_eq!(found(&[(0, 9), (1 << 20, 99)], &[(0, 5), (1 << 20, 20)]), Some(16 * CHUNK));
    }

    #[test]
    fn what_is_not_a_profile_is_told_apart() {
        let mut profile = Profile::new();
        let function = Function { cipher: Cipher::Aes128, integrity: Integrity::Kmac128, op: Op::Seal };
        assert!(profile.is_sound() && profile.curve(function).is_none());
        profile.put(function, curve(&[(1, 1), (2, 2)]));
        assert!(profile.is_sound() && profile.curve(function) == Some(&curve(&[(1, 1), (2, 2)])));
        assert!(!Profile { curves: profile.curves[1..].to_vec() }.is_sound());
        for odd in [&[(2, 1), (1, 2)][..], &[]] {
            profile.put(function, curve(odd));
            assert!(!profile.is_sound(), "{odd:?}");
        }
    }
}
