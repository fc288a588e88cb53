//! The amount of memory shared with a GPU's process.

use crate::{
    batches::{self, SMALL},
    fake,
    faults::{TRIES, await_service},
    support::{mounted::program_path, random::Random, say},
};
use crypto::chunk::ChunkKeys;
use engine::{Batch, BufferPool, CpuEngine, Engine, GpuEngine, Shape, start_gpus_with};
use rustix::process::{Signal, kill_process};
use std::{
    fs, process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;

/// Address ranges of memory shared with GPU processes.
fn shared() -> Vec<std::ops::Range<usize>> {
    shared_in(&fs::read_to_string("/proc/self/maps").expect("the mappings of this process"))
}

/// The shared ranges among the mappings of a process.
fn shared_in(maps: &str) -> Vec<std::ops::Range<usize>> {
    let place = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        Some(address(start)..address(end))
    };
    maps.lines().filter(|line| line.contains("/memfd:gpu")).filter_map(place).collect()
}

fn bytes_shared() -> usize {
    shared().into_iter().map(|place| place.len()).sum()
}

fn is_shared(buffer: &[u8]) -> bool {
    shared().iter().any(|place| place.contains(&(buffer.as_ptr() as usize)))
}

#[test]
fn a_pool_moves_to_the_memory_that_is_shared() {
    fake::run_here("memory::over_fake_moves", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_moves() {
    let engine = batches::open(SMALL, Duration::from_secs(1)).expect("a device");
    let before = bytes_shared();
    let pool = BufferPool::new(8 * MIB);
    let used = pool.get_pair(MIB);
    drop([pool.get_pair(MIB), pool.get_pair(MIB)]);
    assert!(!is_shared(&used.0) && !is_shared(&used.1));
    engine.supply(&pool);
    assert_eq!(bytes_shared() - before, 4 * MIB, "what was kept is replaced at once");
    assert!(!is_shared(&used.0) && !is_shared(&used.1));
    drop(used);
    let all: Vec<_> = (0..4).map(|_| pool.get_pair(MIB)).collect();
    assert!(all.iter().all(|(first, second)| is_shared(first) && is_shared(second)));
    assert_eq!(bytes_shared() - before, 8 * MIB, "all that the pool may take");
    drop(all);
    drop(pool.get(2 * MIB));
    assert!(bytes_shared() - before <= 8 * MIB, "buffers of another length take the place of some");
    drop(pool);
    assert_eq!(bytes_shared(), before);
}

#[test]
fn what_is_not_shared_is_gathered_in_little() {
    fake::run_here("memory::over_fake_gathers", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_gathers() {
    let shape = Shape { piece: 16 * MIB, slots: 2, ..SMALL };
    let engine = batches::open(shape, Duration::from_secs(1)).expect("a device");
    let (before, own, mut random) = (bytes_shared(), BufferPool::new(usize::MAX), Random::new("gathered"));
    let mut most = 0;
    for chunks in [16, 400, 20] {
        let mut batch: Batch = batches::random_batch(&mut random, &batches::all_keys(), &own, chunks);
        most = most.max(batch.input.len().next_power_of_two());
        engine.run(&mut batch).expect("done");
        assert!(batch.jobs.iter().all(|job| job.ok) && !is_shared(&batch.input));
        // At most input and output of both slots.
        assert!(bytes_shared() - before <= 4 * most, "{} of {most}", bytes_shared() - before);
    }
}

#[test]
fn a_process_that_is_busy_forgets_all_the_same() {
    fake::run_here("memory::over_fake_forgets", &[], 300);
}

/// Frees more buffers at once than the socket has room for notices, while the process reads none of
/// them.
#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_forgets() {
    const LEN: usize = 64 << 10;
    const MANY: usize = 1000;
    let engine = batches::open(SMALL, Duration::from_secs(1)).expect("a device");
    let [process] = fake::processes_of(process::id())[..] else { panic!("one process") };
    let mapped = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", process.as_raw_nonzero())).ok()?;
        Some(shared_in(&maps).into_iter().map(|place| place.len()).sum::<usize>())
    };
    let (before, places) = (bytes_shared(), shared().len());
    let pool = BufferPool::new(MANY * LEN);
    engine.supply(&pool);
    drop((0..MANY).map(|_| pool.get(LEN)).collect::<Vec<_>>());
    assert_eq!(bytes_shared() - before, MANY * LEN, "all are kept");

    kill_process(process, Signal::STOP).expect("it is there");
    let end = Instant::now() + Duration::from_secs(60);
    let all = thread::scope(|scope| {
        // This buffer replaces the others. Its request to share memory is queued behind the notices.
        let asking = scope.spawn(|| pool.get(MANY * LEN));
        while shared().len() != places + 1 {
            assert!(Instant::now() < end, "nothing is freed");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(300)); // It has its memory and is about to send the request.
        kill_process(process, Signal::CONT).expect("it is there");
        asking.join().expect("no panic")
    });
    assert!(is_shared(&all), "the process gave no memory");
    drop((all, pool));
    let mut random = Random::new("forgets");
    let batch = batches::random_batch(&mut random, &batches::all_keys(), &BufferPool::new(usize::MAX), 40);
    batches::compare(&engine, &CpuEngine::new(), batch).expect("the process works");
    assert_eq!(fake::processes_of(process::id()), [process]);
    if mapped().is_none() {
        return say("SKIPPED: the mappings of the GPU's process: only root sees them");
    }
    while mapped() != Some(bytes_shared()) {
        assert!(Instant::now() < end, "{:?} bytes there, {} here", mapped(), bytes_shared());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn only_the_memory_of_a_device_that_failed_is_left() {
    fake::run_here("memory::over_fake_is_left", &[("FAKE_CUDA_DEVICES", "2")], 300);
}

/// A batch in memory lent by a device. A device that has just returned to service may fail once more,
/// because of an order that was meant for its previous batch.
fn shared_batch(random: &mut Random, keys: &[Arc<ChunkKeys>], pool: &BufferPool) -> Batch {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let batch = batches::random_batch(random, keys, pool, 40);
        if is_shared(&batch.input) && is_shared(&batch.output) {
            return batch;
        }
        assert!(Instant::now() < end, "no memory is lent");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The memory of a batch may belong to another device, which keeps working.
#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_is_left() {
    const PAUSE: Duration = Duration::from_millis(10);
    start_gpus_with(program_path());
    let [fails, other] = [0, 1].map(|device| GpuEngine::with_shape(device, SMALL, PAUSE).expect("a device"));
    let (keys, mut random) = (batches::all_keys(), Random::new("left"));
    for (lender, stays) in [(&other, true), (&fails, false)] {
        let pool = BufferPool::new(usize::MAX);
        lender.supply(&pool);
        let mut batch = shared_batch(&mut random, &keys, &pool);
        let places = |batch: &Batch| [&batch.input, &batch.output].map(|buffer| buffer.as_ptr());
        let before = places(&batch);
        // Memory of the self-test may still be being freed, in which case the fault hits the free.
        let failed = (0..TRIES).any(|_| {
            fake::order("cuLaunchKernel", "error");
            fails.run(&mut batch).is_err()
        });
        assert!(failed, "no batch failed");
        let stayed = places(&batch) == before;
        assert_eq!([stayed, is_shared(&batch.input), is_shared(&batch.output)], [stays; 3]);
        // A device that was already out of service has not carried out the last order.
        fake::withdraw();
        await_service(&fails, "the one that failed");
    }
    assert!(other.in_service());
}
