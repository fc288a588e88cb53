//! Several devices, one of which fails: the others keep working.

use crate::{
    batches::{all_keys, assert_same, copy, random_batch},
    fake::{self, order},
    faults::RETURN_LIMIT,
    real,
    support::{mounted::program_path, random::Random, setting},
};
use crypto::chunk::ChunkKeys;
use engine::{
    Batch, BufferPool, CpuEngine, Engine, EngineChoice, EngineCounters, Router, gpus, start_gpus_with,
};
use std::{
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

const DEVICES: [&str; 2] = ["2", "3"];

#[test]
fn all_devices_work() {
    for devices in DEVICES {
        fake::run_here("several::over_fake_all_work", &[("FAKE_CUDA_DEVICES", devices)], 300);
    }
}

/// As below, on real devices.
#[test]
fn all_real_devices_work() {
    if real::several() {
        let count = gpus().expect("devices").to_string();
        fake::run_real("several::over_fake_all_work", &[("FAKE_CUDA_DEVICES", &count)], 300);
    }
}

#[test]
#[ignore = "runs over the fake driver, or where it is told to on real ones"]
fn over_fake_all_work() {
    let router = router();
    work(&router);
    let counters = router.counters();
    assert_eq!(counters.len(), 1 + devices());
    for (number, counters) in counters.iter().enumerate().skip(1) {
        assert_eq!(counters.name, format!("gpu {}", number - 1));
        // On a busy machine, the fake device may exceed its deadline.
        assert!(counters.batches > 0 && counters.bytes > 0 || counters.failed > 0, "{counters:?}");
    }
}

#[test]
fn one_that_fails_at_work_is_left_out_and_comes_back() {
    for devices in DEVICES {
        fake::run_here("several::over_fake_one_fails", &[("FAKE_CUDA_DEVICES", devices)], 300);
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_one_fails() {
    let router = router();
    order("cuLaunchKernel:5", "error");
    work(&router);
    let counters = router.counters();
    let failed: Vec<&EngineCounters> = counters.iter().filter(|c| c.failed > 0).collect();
    assert!(!failed.is_empty() && counters[0].batches >= failed[0].failed, "{counters:?}");
    let end = Instant::now() + RETURN_LIMIT;
    while !router.counters().iter().all(|counters| counters.in_service) {
        assert!(Instant::now() < end, "it does not come back");
        sleep(Duration::from_millis(20));
    }
    work(&router);
    let of_failed = router.counters().into_iter().find(|c| c.name == failed[0].name).expect("it is there");
    let given = |counters: &EngineCounters| counters.batches + counters.failed;
    assert!(given(&of_failed) > given(failed[0]), "it is back and does nothing");
}

#[test]
fn one_that_fails_at_the_start_is_left_out() {
    for devices in DEVICES {
        fake::run_here("several::over_fake_one_does_not_start", &[("FAKE_CUDA_DEVICES", devices)], 300);
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_one_does_not_start() {
    order("cuCtxCreate_v2", "error");
    let router = router();
    work(&router);
    let counters = router.counters();
    assert_eq!(counters.len(), devices());
    assert!(counters[1..].iter().all(|counters| counters.batches + counters.failed > 0), "{counters:?}");
}

fn router() -> Router {
    start_gpus_with(program_path());
    Router::new(EngineChoice::Gpu, usize::MAX).expect("devices")
}

fn devices() -> usize {
    setting("FAKE_CUDA_DEVICES").expect("a number")
}

/// Runs six callers at once. The outcome of every batch must equal the CPU's.
fn work(router: &Router) {
    let (cpu, keys) = (CpuEngine::with_threads(1), all_keys());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (cpu, keys) = (&cpu, &keys);
            scope.spawn(move || {
                let mut random = Random::new(&format!("several {thread}"));
                for _ in 0..3 {
                    let mut batch = large_batch(&mut random, keys, &router.buffers);
                    let mut expected = copy(&batch);
                    cpu.run(&mut expected).expect("a good batch");
                    router.run(&mut batch).expect("a good batch");
                    assert_same(&batch, &expected);
                }
            });
        }
    });
}

/// A batch with enough chunks for a GPU.
fn large_batch(random: &mut Random, keys: &[Arc<ChunkKeys>], pool: &BufferPool) -> Batch {
    let mut batches = std::iter::repeat_with(|| random_batch(random, keys, pool, 30));
    batches.find(|batch| batch.jobs.len() >= 16).expect("it is endless") // invariant: half of them are
}
