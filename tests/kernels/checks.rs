//! The check of a launch: it confirms correct results and refutes any wrong bit, whatever the launch's
//! geometry.

use super::{
    batches::{Batch, ciphers_of},
    layout::{CHECK_DESK, TABLES},
    runner::{Argument, Geometry, Machine, Runner, on_threads, runners},
};
use crate::support::is_proof;
use crypto::{cipher::CipherFamily, integrity::Integrity};
use engine::Op;

pub const LENGTHS: [usize; 14] = [4096, 1, 15, 16, 17, 999, 1000, 1001, 2040, 3000, 4000, 4001, 4095, 4096];
/// Launch number, which always has its highest bit set.
pub const LAUNCH: u64 = 0x8000_0000_0007;
/// Order number, and the states of a verdict.
pub const NUMBER: u32 = 0x2fff_fff1;
pub const CONFIRMED: u32 = 1;
pub const UNVERIFIED: u32 = 2;
const REFUTED: u32 = 3;

/// Results of a launch, and how to check them.
struct Checked<'a> {
    batch: &'a Batch,
    op: Op,
    /// Tags or verdicts produced by the launch.
    made: Vec<u8>,
    blocks: u32,
    run: u32,
    /// The multiprocessor on which every block ran.
    done_by: u64,
    checkers: u32,
    /// Threads per block.
    threads: u32,
}

impl<'a> Checked<'a> {
    /// Correct results of a batch, produced on other multiprocessors by three blocks that took one chunk
    /// at a time.
    fn right(batch: &'a Batch, op: Op) -> Self {
        let made = match op {
            Op::Seal => batch.tags(),
            Op::Open => verified(batch.chunks.iter().map(|_| true)),
        };
        Checked { batch, op, made, blocks: 3, run: 1, done_by: 999, checkers: 2, threads: 512 }
    }

    /// Returns the tags and verdicts of the check.
    fn run(&self, runner: &mut Runner, name: &str) -> (Vec<u8>, Vec<u32>) {
        let count = self.batch.chunks.len();
        let [input, output] = match self.op {
            Op::Seal => [&self.batch.plain, &self.batch.sealed],
            Op::Open => [&self.batch.sealed, &self.batch.plain],
        };
        let by_block = |value: u64| Argument::Buffer(value.to_le_bytes().repeat(self.blocks as usize));
        let arguments = vec![
            Argument::Buffer(self.batch.with_noise(input)),
            Argument::Buffer(self.batch.with_noise(output)),
            Argument::Buffer(self.made.clone()),
            Argument::Number(LAUNCH),
            by_block(LAUNCH << 16 | self.done_by),
            by_block(LAUNCH - 1),
            Argument::Number(NUMBER.into()),
            Argument::Buffer(vec![0; 16 * count]),
            Argument::Buffer(vec![0; 4 * count]),
            Argument::Number((self.op == Op::Open).into()),
            Argument::Number(self.blocks.into()),
            Argument::Number(self.run.into()),
        ];
        let geometry = Geometry { blocks: self.checkers, threads: self.threads, shared: TABLES + CHECK_DESK };
        let mut out = self.batch.run(runner, name, geometry, arguments);
        let verdicts = words(&out.pop().expect("verdicts"));
        (out.pop().expect("tags"), verdicts)
    }
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

pub fn verdict(state: u32) -> u32 {
    NUMBER << 2 | state
}

/// The verdicts of an opening launch, as it stores them.
fn verified(good: impl IntoIterator<Item = bool>) -> Vec<u8> {
    good.into_iter().flat_map(|good| u32::from(good).to_le_bytes()).collect()
}

/// Runs a test on batches of every cipher and integrity function, with the name of the matching check.
fn each(mut test: impl FnMut(&mut Runner, Machine, &dyn Fn() -> Batch, &str, Op)) {
    for (machine, mut runner) in runners() {
        for integrity in Integrity::ALL {
            for family in CipherFamily::ALL {
                let batch = || Batch::new(&ciphers_of(family), integrity, &LENGTHS);
                let name = format!("check_{}_{}", family.name(), integrity.name());
                for op in [Op::Seal, Op::Open] {
                    test(&mut runner, machine, &batch, &name, op);
                }
            }
        }
    }
}

/// Launch geometries: number of blocks, and chunks that a block takes at a time.
const GEOMETRIES: [(u32, u32); 4] = [(3, 1), (14, 1), (1, 32), (2, 8)];

#[test]
fn what_is_right_is_confirmed() {
    each(|runner, machine, batch, name, op| {
        let batch = batch();
        for (blocks, run) in GEOMETRIES {
            let checked = Checked { blocks, run, ..Checked::right(&batch, op) };
            let (tags, verdicts) = checked.run(runner, name);
            assert!(verdicts.iter().all(|word| *word == verdict(CONFIRMED)), "{name} {op:?} on {machine:?}");
            assert!(op == Op::Open || tags == batch.tags(), "{name}: tags on {machine:?}");
        }
    });
}

/// A wrong bit at the beginning or the end of the output text, or in the launch's tags or verdicts:
/// exactly that chunk is refuted.
#[test]
fn a_wrong_bit_is_refuted() {
    each(|runner, machine, batch, name, op| {
        for (number, spoilt) in [0, 1, 5, 6, 12, 13].into_iter().enumerate() {
            let mut batch = batch();
            let mut made = Checked::right(&batch, op).made;
            let each = made.len() / LENGTHS.len();
            let (start, len) = (batch.chunks[spoilt].source as usize, LENGTHS[spoilt]);
            let output = match op {
                Op::Seal => &mut batch.sealed,
                Op::Open => &mut batch.plain,
            };
            match number % 3 {
                0 => output[start + len - 1] ^= 0x80,
                1 => output[start] ^= 1,
                _ => made[spoilt * each] ^= 1,
            }
            let (blocks, run) = GEOMETRIES[number % 4];
            let checked = Checked { made, blocks, run, ..Checked::right(&batch, op) };
            let (_, verdicts) = checked.run(runner, name);
            for (at, word) in verdicts.into_iter().enumerate() {
                let state = if at == spoilt { REFUTED } else { CONFIRMED };
                assert_eq!(word, verdict(state), "{name} {op:?}: chunk {at} of way {number} on {machine:?}");
            }
        }
    });
}

/// Chunks with a different tag: both the launch and the check report that, and the text does not matter.
#[test]
fn what_does_not_verify_is_told_from_what_is_wrong() {
    each(|runner, machine, batch, name, op| {
        if op == Op::Seal {
            return;
        }
        let mut batch = batch();
        for at in [2, 7, 13] {
            batch.chunks[at].tag[at] ^= 4;
            let start = batch.chunks[at].source as usize;
            batch.plain[start..start + LENGTHS[at]].fill(0);
        }
        let made = verified((0..LENGTHS.len()).map(|at| ![2, 7].contains(&at)));
        let checked = Checked { made, ..Checked::right(&batch, op) };
        for (at, word) in checked.run(runner, name).1.into_iter().enumerate() {
            let state = match at {
                2 | 7 => UNVERIFIED,
                13 => REFUTED, // The launch accepted it.
                _ => CONFIRMED,
            };
            assert_eq!(word, verdict(state), "{name}: chunk {at} on {machine:?}");
        }
    });
}

/// On the CPU, block 0 runs on multiprocessor 0, and block 1 on the other.
#[test]
fn nobody_checks_what_its_own_multiprocessor_made() {
    each(|runner, machine, batch, name, op| {
        if machine != Machine::Cpu {
            return;
        }
        let batch = batch();
        for (done_by, checkers, state) in
            [(0, 1, 0), (0, 2, verdict(CONFIRMED)), (1, 1, verdict(CONFIRMED)), (1, 2, verdict(CONFIRMED))]
        {
            let checked = Checked { done_by, checkers, ..Checked::right(&batch, op) };
            let (_, verdicts) = checked.run(runner, name);
            assert!(verdicts.iter().all(|word| *word == state), "{name} {op:?}, {checkers} blocks");
        }
    });
}

#[test]
fn no_thread_races_another() {
    let Some(mut runner) = on_threads() else { return };
    for family in CipherFamily::ALL {
        for op in [Op::Seal, Op::Open] {
            if !is_proof() && (op == Op::Open) != (family == CipherFamily::Kuznyechik) {
                continue;
            }
            let integrity = Integrity::TurboShake128x4;
            let batch = Batch::new(&ciphers_of(family), integrity, &[40, 1300, 7, 16]);
            let name = format!("check_{}_{}", family.name(), integrity.name());
            let checked = Checked { blocks: 2, threads: 96, ..Checked::right(&batch, op) };
            let (_, verdicts) = checked.run(&mut runner, &name);
            assert!(verdicts.iter().all(|word| *word == verdict(CONFIRMED)), "{family:?} {op:?}");
        }
    }
}
