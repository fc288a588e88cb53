//! How much memory is shared with the process of a GPU.

use crate::{
    batches::{self, SMALL},
    fake,
    support::random::Random,
};
use std::{fs, time::Duration};
use warpcrypt::engine::{Batch, BufferPool, Engine, Shape};

const MIB: usize = 1 << 20;

/// Addresses of what is shared.
fn shared() -> Vec<std::ops::Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
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
        // Input and output, of both slots at most.
        assert!(bytes_shared() - before <= 4 * most, "{} of {most}", bytes_shared() - before);
    }
}
