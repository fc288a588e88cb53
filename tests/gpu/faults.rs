//! A device that fails while working: the batch still ends correctly, and the engine comes back into
//! service.

use crate::{
    batches::{SMALL, all_keys, assert_same, copy, damaged, open, random_batch},
    fake::{self, order, processes_of},
    support::{is_proof, random::Random, say},
};
use engine::{Batch, BufferPool, CpuEngine, Engine, GpuEngine, Shape, Timeouts};
use rustix::process::{Signal, kill_process};
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

const CALLS: [&str; 10] = [
    "cuCtxSetCurrent",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoDAsync_v2:4",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamWaitEvent",
    "cuStreamWriteValue32_v2",
    "cuMemsetD8Async:2",
    "cuEventRecord",
    "cuEventSynchronize:2",
];

/// Maximum number of times that a fault is ordered until it hits a batch.
pub const TRIES: usize = 5;

/// For tests whose device hangs. On a busy machine a good device may take seconds.
const HASTE: Timeouts = Timeouts { base: Duration::from_secs(4), per_mib: Duration::ZERO };

/// How long a device may take to come back. Its process is started again and tested first, which takes more than 30
/// seconds beside compilers.
pub const RETURN_LIMIT: Duration = Duration::from_secs(150);

/// Waits until the device has passed its test.
pub fn await_service(gpu: &GpuEngine, what: &str) {
    let end = Instant::now() + RETURN_LIMIT;
    while !gpu.in_service() {
        assert!(Instant::now() < end, "{what}: it does not come back");
        sleep(Duration::from_millis(5));
    }
}

/// Runs a batch with a fault ordered. The result must equal the CPU's, whichever engine computed it.
fn with_fault(gpu: &GpuEngine, cpu: &CpuEngine, mut batch: Batch, call: &str, fault: &str) {
    let mut expected = copy(&batch);
    cpu.run(&mut expected).expect("a good batch");
    // Memory of the self-test may still be being freed. In that case the fault hits the free, and the
    // batch succeeds.
    let failed = (0..TRIES).find_map(|_| {
        order(call, fault);
        let done = gpu.run(&mut batch);
        if done.is_ok() {
            say(format_args!("{call} {fault}: ordered again"));
            assert_same(&batch, &expected);
        }
        done.err()
    });
    let failed = failed.unwrap_or_else(|| panic!("{call} {fault}: no batch failed"));
    assert!(!failed.to_string().is_empty());
    assert!(batch.input[..] == expected.input[..], "{call} {fault}: the input was changed");
    cpu.run(&mut batch).expect("a good batch");
    assert_same(&batch, &expected);
    // Work still in flight on the device must not reach the batch.
    sleep(Duration::from_millis(30));
    assert_same(&batch, &expected);
    await_service(gpu, &format!("{call} {fault}"));
}

#[test]
fn errors_cost_no_batch() {
    fake::run_here("faults::over_fake_errors_cost_no_batch", &[], 400);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_errors_cost_no_batch() {
    let gpu = open(SMALL, Duration::from_millis(10)).expect("a device");
    let (cpu, keys, mut random) = (CpuEngine::new(), all_keys(), Random::new("faults"));
    let [heap, locked] = [(); 2].map(|()| BufferPool::new(usize::MAX));
    gpu.supply(&locked);
    for (number, call) in CALLS.into_iter().enumerate() {
        for (other, fault) in ["error", "memory", "lost"].into_iter().enumerate() {
            if !is_proof() && other != number % 3 {
                continue;
            }
            let pool = if (number + other) % 2 == 0 { &heap } else { &locked };
            let mut batch = big_batch(&mut random, &keys, pool);
            if other == 1 {
                cpu.run(&mut batch).expect("a good batch");
                batch = damaged(&mut random, &batch, pool);
            }
            with_fault(&gpu, &cpu, batch, call, fault);
        }
    }
    for pool in [&heap, &locked] {
        let batch = big_batch(&mut random, &keys, pool);
        with_fault(&gpu, &cpu, batch, "cuLaunchKernel", "wrong");
    }
}

/// A batch of several pieces for a small ring.
fn big_batch(
    random: &mut Random,
    keys: &[std::sync::Arc<crypto::chunk::ChunkKeys>],
    pool: &BufferPool,
) -> Batch {
    loop {
        let batch = random_batch(random, keys, pool, 90);
        if batch.jobs.len() > 40 {
            return batch;
        }
    }
}

#[test]
fn a_device_that_hangs_holds_up_nobody() {
    fake::run_here("faults::over_fake_hangs", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_hangs() {
    let shape = Shape { timeouts: HASTE, ..SMALL };
    let gpu = open(shape, Duration::from_millis(10)).expect("a device");
    let (cpu, keys, mut random) = (CpuEngine::new(), all_keys(), Random::new("hangs"));
    for call in [
        "cuMemcpyHtoDAsync_v2:2",
        "cuLaunchKernel",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamWriteValue32_v2",
        "cuEventRecord",
    ] {
        let pool = BufferPool::new(usize::MAX);
        gpu.supply(&pool);
        let batch = big_batch(&mut random, &keys, &pool);
        with_fault(&gpu, &cpu, batch, call, "hang");
    }
}

#[test]
fn a_device_that_has_much_to_do_may_take_long() {
    fake::run_here("faults::over_fake_slow", &[], 300);
}

/// A stream hangs for longer than a small batch may take, but not as long as a large one may.
#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_slow() {
    let timeouts = Timeouts { base: Duration::from_secs(2), per_mib: Duration::from_secs(60) };
    let gpu = open(Shape { piece: 1 << 20, timeouts, ..SMALL }, Duration::from_millis(10)).expect("a device");
    let (cpu, keys, mut random) = (CpuEngine::new(), all_keys(), Random::new("slow"));
    let pool = BufferPool::new(usize::MAX);
    let large = loop {
        let batch = random_batch(&mut random, &keys, &pool, 256);
        if batch.jobs.len() > 200 {
            break batch;
        }
    };
    order("cuLaunchKernel", "slow");
    crate::batches::compare(&gpu, &cpu, large).expect("its time was not over");
    assert!(!fake::is_ordered(), "nothing was slow");
    with_fault(&gpu, &cpu, random_batch(&mut random, &keys, &pool, 20), "cuLaunchKernel", "hang");
}

#[test]
fn a_process_that_ends_or_stands_still_costs_no_batch() {
    fake::run_here("faults::over_fake_process_is_hit", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_process_is_hit() {
    let shape = Shape { timeouts: HASTE, ..SMALL };
    let gpu = open(shape, Duration::from_millis(10)).expect("a device");
    let (cpu, keys, mut random) = (CpuEngine::new(), all_keys(), Random::new("processes"));
    let [heap, lent] = [(); 2].map(|()| BufferPool::new(usize::MAX));
    gpu.supply(&lent);
    for (number, signal) in [Signal::KILL, Signal::STOP, Signal::ABORT, Signal::KILL].into_iter().enumerate()
    {
        for pool in [&heap, &lent] {
            let mut batch = big_batch(&mut random, &keys, pool);
            let mut expected = copy(&batch);
            cpu.run(&mut expected).expect("a good batch");
            let [process] = processes_of(std::process::id())[..] else { panic!("one process") };
            if number < 3 {
                kill_process(process, signal).expect("it is there");
                gpu.run(&mut batch).expect_err("its process was hit");
            } else {
                // While a batch runs that would never end.
                order("cuLaunchKernel", "hang");
                std::thread::scope(|scope| {
                    let running = scope.spawn(|| gpu.run(&mut batch).expect_err("its process was hit"));
                    sleep(Duration::from_millis(200));
                    kill_process(process, signal).expect("it is there");
                    running.join().expect("no panic");
                });
            }
            assert!(batch.input[..] == expected.input[..], "{signal:?}: the input was changed");
            cpu.run(&mut batch).expect("a good batch");
            assert_same(&batch, &expected);
            await_service(&gpu, &format!("{signal:?}"));
            // A new process has replaced it and works.
            assert!(!processes_of(std::process::id()).contains(&process), "{signal:?}: it is still there");
            crate::batches::compare(&gpu, &cpu, big_batch(&mut random, &keys, pool)).expect("a good batch");
        }
    }
    drop(gpu);
    assert!(processes_of(std::process::id()).is_empty(), "a process is left");
}

#[test]
fn many_callers_survive_a_lost_device() {
    fake::run_here("faults::over_fake_many_callers", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_many_callers() {
    let gpu = open(SMALL, Duration::from_millis(10)).expect("a device");
    let (cpu, keys, pool) = (CpuEngine::new(), all_keys(), BufferPool::new(usize::MAX));
    gpu.supply(&pool);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (gpu, cpu, keys, pool) = (&gpu, &cpu, &keys, &pool);
            scope.spawn(move || {
                let mut random = Random::new(&format!("callers {thread}"));
                for n in 0..8 {
                    let mut batch = random_batch(&mut random, keys, pool, 40);
                    let mut expected = copy(&batch);
                    cpu.run(&mut expected).expect("a good batch");
                    if thread == 0 && n % 3 == 1 {
                        order("cuLaunchKernel", "lost");
                    }
                    if gpu.run(&mut batch).is_err() {
                        cpu.run(&mut batch).expect("a good batch");
                    }
                    assert_same(&batch, &expected);
                }
            });
        }
    });
    await_service(&gpu, "callers");
}
