//! Buffers of a pool: bound, order and reuse.

use super::*;
use std::{os::unix::fs::FileExt, sync::mpsc, thread};

#[test]
fn buffers_are_aligned_and_as_long_as_asked_for() {
    let pool = BufferPool::new(1 << 20);
    for len in [0, 1, 4095, 4096, 4097, 65536, 65537, 300_000] {
        let mut buffer = pool.get(len);
        assert_eq!(buffer.len(), len);
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        buffer.fill(1);
    }
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn a_returned_buffer_is_used_again() {
    let pool = BufferPool::new(1 << 20);
    let first = pool.get(100_000).as_ptr() as usize;
    assert_eq!(pool.get(90_000).as_ptr() as usize, first);
}

#[test]
fn kept_buffers_count_towards_the_bound() {
    let pool = BufferPool::new(1 << 20);
    for len in [1 << 19, 1 << 18, 1 << 17, 1 << 20, 4096, 70_000] {
        drop(pool.get_pair(len));
        let state = pool.shared.state.lock();
        assert!(state.kept.bytes() <= 1 << 20);
        assert_eq!(state.kept.bytes(), state.kept.all().map(Memory::capacity).sum::<usize>());
    }
}

#[test]
fn a_pool_that_nobody_asks_keeps_nothing() {
    let pool = BufferPool::new(1 << 20);
    drop(pool.get_pair(100_000));
    assert!(!pool.rest(), "came back since the last call");
    assert!(pool.rest());
    assert!(!pool.rest(), "there are no more");
    assert_eq!(pool.shared.state.lock().kept.len(), 0);
    assert_eq!(pool.shared.state.lock().kept.bytes(), 0);
    assert_eq!(pool.get(100_000).len(), 100_000);
}

/// Bytes of this process, which the heap may already have unmapped.
fn found_at(place: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let memory = std::fs::File::open("/proc/self/mem").expect("this process");
    // If that fails, the memory is no longer mapped.
    let _ = memory.read_exact_at(&mut bytes, place as u64);
    bytes
}

#[test]
fn what_is_freed_is_wiped() {
    let free: [fn(&BufferPool); 2] = [
        |pool| assert!(!pool.rest() && pool.rest()),
        // Takes the room of the kept buffer.
        |pool| drop(pool.get(GRAIN)),
    ];
    for free in free {
        let pool = BufferPool::new(GRAIN);
        let mut buffer = pool.get(PAGE);
        buffer.fill(0x5a);
        let place = buffer.as_ptr() as usize;
        drop(buffer);
        assert!(found_at(place, PAGE) == [0x5a; PAGE], "it is kept as it is");
        free(&pool);
        let left = found_at(place, PAGE);
        assert!(left.iter().filter(|byte| **byte == 0x5a).count() < PAGE / 2);
    }
}

#[test]
fn an_exhausted_pool_waits_for_a_return() {
    let pool = Arc::new(BufferPool::new(2 * GRAIN));
    let held = pool.get_pair(GRAIN);
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn({
        let pool = pool.clone();
        move || {
            sender.send(pool.get(GRAIN).len()).expect("the receiver waits");
        }
    });
    assert!(receiver.recv_timeout(STALL / 10).is_err());
    drop(held);
    assert_eq!(receiver.recv_timeout(STALL * 10), Ok(GRAIN));
    waiter.join().expect("no panic");
}

#[test]
fn a_request_beyond_the_bound_is_served_alone() {
    let pool = BufferPool::new(GRAIN);
    let held = pool.get(GRAIN);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.get(10 * GRAIN).len());
        drop(held);
        assert_eq!(waiter.join().expect("no panic"), 10 * GRAIN);
    });
}

#[test]
fn a_try_neither_waits_nor_takes_what_is_spared() {
    let pool = BufferPool::new(4 * GRAIN);
    assert!(pool.try_get_pair(GRAIN, 3 * GRAIN).is_none());
    let pair = pool.try_get_pair(GRAIN, 2 * GRAIN);
    assert!(pair.is_some());
    assert!(pool.try_get_pair(GRAIN, GRAIN).is_none());
    assert_eq!(pool.usage().in_use, 2 * GRAIN);
    drop(pair);
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn callers_that_hold_one_and_want_another_do_not_wait_for_ever() {
    let pool = BufferPool::new(2 * GRAIN);
    let both_hold = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let first = pool.get(GRAIN);
                both_hold.wait();
                assert_eq!(pool.get(GRAIN).len(), first.len());
            });
        }
    });
}

#[test]
fn many_threads_stay_within_the_bound() {
    let pool = BufferPool::new(8 * GRAIN);
    thread::scope(|scope| {
        for worker in 1..9 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..200 {
                    let (a, b) = pool.get_pair(worker * GRAIN / 2);
                    assert_ne!(a.as_ptr(), b.as_ptr());
                    assert!(pool.usage().in_use <= 8 * GRAIN);
                }
            });
        }
    });
    assert_eq!(pool.usage().in_use, 0);
}
