//! Malfunctioning hardware: no wrong result gets through, on the fake device and on a real one.

use crate::{
    batches::{SMALL, all_keys, assert_same, copy, damaged, open, random_batch},
    fake, real,
    support::{command::run, is_proof, random::Random, say, setting},
};
use crypto::chunk::ChunkKeys;
use engine::{Batch, BufferPool, CpuEngine, Engine, GpuEngine, Shape, TransferModes};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The faults that build-planted.sh can plant.
const FAULTS: [(u32, &str); 5] = [
    (1, "a bit of a table"),
    (2, "a bit of the table of the second time"),
    (3, "a register, now and then"),
    (4, "what a multiprocessor encrypts"),
    (5, "the tags of a multiprocessor"),
];

fn build(folder: &Path, more: &[&str]) -> bool {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/build-planted.sh"));
    let done = run(command.arg(folder).args(more), 600);
    if !done.status.success() {
        say(format_args!("the kernels with faults do not build: {}{}", done.text(), done.stderr));
    }
    done.status.success()
}

#[test]
fn nothing_wrong_passes() {
    if fake::driver().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("directory");
    assert!(build(folder.path(), &[]));
    say(fake::run_over(folder.path(), "planted::over_planted_nothing_wrong_passes", &[], 500));
}

/// The kernels are built on the spot, with an installed CUDA compiler.
#[test]
fn nothing_wrong_passes_on_a_real_gpu() {
    if !real::ready() {
        return;
    }
    let folder = tempfile::tempdir().expect("directory");
    if !build(folder.path(), &["nvcc", "native"]) {
        say("SKIPPED: faults planted into a real GPU: there is no nvcc");
        return;
    }
    let faulty: TempDir = fake::faulty(&real::driver());
    let fatbin = folder.path().join("planted.fatbin");
    let variables = [("PLANTED_FATBIN", fatbin.to_str().expect("a path")), ("PLANTED_CHUNKS", "2000")];
    say(fake::run_over(faulty.path(), "planted::over_planted_nothing_wrong_passes", &variables, 500));
}

#[test]
#[ignore = "runs over a driver with planted faults"]
fn over_planted_nothing_wrong_passes() {
    let (keys, mut random) = (all_keys(), Random::new("planted"));
    for (number, (fault, name)) in FAULTS.into_iter().enumerate() {
        for (other, modes) in TransferModes::FORCED.into_iter().enumerate() {
            // Each refused batch costs a device test, which takes long on the fake device.
            let is_real = std::env::var_os("PLANTED_FATBIN").is_some();
            if !is_real && !is_proof() && other != number % TransferModes::FORCED.len() {
                continue;
            }
            let (base, rounds) = if is_real { (Shape::default(), 8) } else { (SMALL, 1) };
            let shape = Shape { modes, ..base };
            let gpu = open(shape, Duration::from_millis(10)).expect("a device");
            let pool = BufferPool::new(usize::MAX);
            gpu.supply(&pool);
            // A batch of a few chunks may miss the multiprocessor, or the moment of the register fault.
            let (mut refused, mut batches) = (0, 0);
            while batches < 2 * rounds || refused == 0 && batches < 40 {
                refused += round(&gpu, &keys, &pool, &mut random, fault);
                batches += 2;
            }
            assert!(refused > 0, "{name}: it was not noticed ({modes:?})");
            say(format_args!("{name}: {refused} of {batches} batches were refused, none was wrong"));
        }
    }
}

/// Seals and opens a batch under the fault. Returns how many of the two failed, after asserting that no
/// result is wrong.
fn round(
    gpu: &GpuEngine,
    keys: &[Arc<ChunkKeys>],
    pool: &BufferPool,
    random: &mut Random,
    fault: u32,
) -> u32 {
    let cpu = CpuEngine::new();
    let batch = random_batch(random, keys, pool, setting("PLANTED_CHUNKS").unwrap_or(160));
    let mut sealed = copy(&batch);
    cpu.run(&mut sealed).expect("a good batch");
    let opening = damaged(random, &sealed, pool);
    [batch, opening].into_iter().map(|batch| u32::from(is_refused(gpu, &cpu, batch, fault))).sum()
}

fn is_refused(gpu: &GpuEngine, cpu: &CpuEngine, mut batch: Batch, fault: u32) -> bool {
    let mut expected = copy(&batch);
    cpu.run(&mut expected).expect("a good batch");
    plant(fault);
    let done = gpu.run(&mut batch);
    plant(0);
    let Err(why) = done else {
        assert_same(&batch, &expected);
        return false;
    };
    assert!(why.to_string().contains("otherwise the second time"), "noticed, but not by the device: {why}");
    let end = Instant::now() + Duration::from_secs(60);
    while !gpu.in_service() {
        assert!(Instant::now() < end, "it does not come back");
        sleep(Duration::from_millis(5));
    }
    true
}

/// Activates a fault from the next launch on.
fn plant(fault: u32) {
    let folder = PathBuf::from(std::env::var_os("CUDA_FAULTS").expect("a place for faults"));
    fs::write(folder.join("new"), format!("{fault}\n")).expect("a fault");
    fs::rename(folder.join("new"), folder.join("planted")).expect("a fault");
}
