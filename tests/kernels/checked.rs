//! Launches of seal and open that check themselves: their results, their verdicts, and the copies that
//! they keep.

use super::{
    batches::{Batch, ciphers_of},
    checks::{CONFIRMED, LAUNCH, LENGTHS, NUMBER, UNVERIFIED, verdict, words},
    layout::{DESK, TABLES},
    runner::{Argument, Geometry, Machine, Runner, on_threads, runners},
};
use crate::support::is_proof;
use crypto::{cipher::CipherFamily, integrity::Integrity};
use engine::Op;

/// Warps per block.
const WARPS: u32 = 4;

/// The results of a self-checking launch.
struct Left {
    output: Vec<u8>,
    tags: Vec<u8>,
    verdicts: Vec<u32>,
    /// Copies of input and output, 4096 bytes per chunk.
    kept: [Vec<u8>; 2],
}

fn name(op: Op, family: CipherFamily, integrity: Integrity) -> String {
    format!("{}_{}_{}_checked", op.name(), family.name(), integrity.name())
}

/// Runs with `blocks` blocks that seal or open, and `others` blocks that do not.
fn run(runner: &mut Runner, name: &str, batch: &Batch, op: Op, blocks: u32, others: u32) -> Left {
    let count = batch.chunks.len();
    let input = match op {
        Op::Seal => &batch.plain,
        Op::Open => &batch.sealed,
    };
    // The state that the completed previous launch left.
    let before = |value: u64, words: usize| Argument::Buffer(value.to_le_bytes().repeat(words));
    let arguments = vec![
        Argument::Buffer(batch.with_noise(input)),
        Argument::Buffer(vec![0; input.len()]),
        before(LAUNCH - 1, 5 * count),
        Argument::Number(LAUNCH),
        before((LAUNCH - 1) << 16 | 999, blocks as usize),
        before(LAUNCH - 1, blocks as usize),
        Argument::Number(NUMBER.into()),
        Argument::Buffer(vec![0; 16 * count]),
        Argument::Buffer(vec![0; 4 * count]),
        Argument::Number(blocks.into()),
        Argument::Buffer(vec![0x99; 4096 * count]),
        Argument::Buffer(vec![0x99; 4096 * count]),
    ];
    let geometry = Geometry { blocks: blocks + others, threads: 32 * WARPS, shared: TABLES + WARPS * DESK };
    let mut out = batch.run(runner, name, geometry, arguments);
    let kept_out = out.pop().expect("copies of the output");
    let kept = [out.pop().expect("copies of the input"), kept_out];
    let verdicts = words(&out.pop().expect("verdicts"));
    Left { tags: out.pop().expect("tags"), verdicts, output: out.swap_remove(1), kept }
}

/// For each chunk, its bytes in a buffer and in the copies.
fn texts<'a>(batch: &'a Batch, buffer: &'a [u8], copies: &'a [u8]) -> impl Iterator<Item = [&'a [u8]; 2]> {
    let of_chunk = move |(at, len): (usize, usize)| {
        let start = batch.chunks[at].source as usize;
        [&buffer[start..start + len], &copies[4096 * at..4096 * at + len]]
    };
    batch.chunks.iter().map(|chunk| usize::from(chunk.length)).enumerate().map(of_chunk)
}

fn each(mut test: impl FnMut(&mut Runner, Machine, Batch, &str, Op)) {
    for (machine, mut runner) in runners() {
        for integrity in Integrity::ALL {
            for family in CipherFamily::ALL {
                for op in [Op::Seal, Op::Open] {
                    let batch = Batch::new(&ciphers_of(family), integrity, &LENGTHS);
                    test(&mut runner, machine, batch, &name(op, family, integrity), op);
                }
            }
        }
    }
}

#[test]
fn what_they_make_is_right_and_confirmed() {
    each(|runner, machine, batch, name, op| {
        for (blocks, others) in [(3, 2), (14, 14), (2, 5)] {
            let left = run(runner, name, &batch, op, blocks, others);
            let (input, output) = match op {
                Op::Seal => (&batch.plain, &batch.sealed),
                Op::Open => (&batch.sealed, &batch.plain),
            };
            let called = format!("{name}, {blocks} and {others} blocks, on {machine:?}");
            assert!(left.verdicts.iter().all(|word| *word == verdict(CONFIRMED)), "{called}");
            assert!(op == Op::Open || left.tags == batch.tags(), "tags of {called}");
            let mine = texts(&batch, &left.output, &left.kept[1]);
            let right = mine.zip(texts(&batch, output, &left.kept[1]));
            assert!(right.into_iter().all(|(mine, right)| mine == right && mine[0] == mine[1]), "{called}");
            let copies = texts(&batch, input, &left.kept[0]);
            assert!(copies.into_iter().all(|[input, copy]| input == copy), "copies of {called}");
        }
    });
}

#[test]
fn what_does_not_verify_is_said() {
    each(|runner, machine, mut batch, name, op| {
        if op == Op::Seal {
            return;
        }
        for at in [2, 7, 13] {
            batch.chunks[at].tag[at] ^= 4;
        }
        let left = run(runner, name, &batch, op, 3, 3);
        for (at, word) in left.verdicts.into_iter().enumerate() {
            let state = if [2, 7, 13].contains(&at) { UNVERIFIED } else { CONFIRMED };
            assert_eq!(word, verdict(state), "{name}: chunk {at} on {machine:?}");
        }
    });
}

/// On the CPU, blocks alternate between two multiprocessors, so the third block is on the same one as
/// the first.
#[test]
fn what_nobody_else_can_check_has_no_verdict() {
    each(|runner, machine, batch, name, op| {
        if machine != Machine::Cpu {
            return;
        }
        let left = run(runner, name, &batch, op, 2, 1);
        for (at, word) in left.verdicts.into_iter().enumerate() {
            // Neighbouring chunks are assigned to different blocks.
            assert_eq!(word, if at % 2 == 1 { verdict(CONFIRMED) } else { 0 }, "{name}: chunk {at}");
        }
    });
}

/// Here all blocks run concurrently, so checks overlap with the work being checked.
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
            let left = run(&mut runner, &name(op, family, integrity), &batch, op, 2, 2);
            assert!(left.verdicts.iter().all(|word| *word == verdict(CONFIRMED)), "{family:?} {op:?}");
        }
    }
}
