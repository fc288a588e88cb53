//! Individually buffered chunks on their way to the store, while the application continues.

use super::*;
use crate::background::BackgroundJob;
use crossbeam_channel::Receiver;

/// Chunks of the file, and the number of written chunks that starts a write.
const CHUNKS: u64 = 700;
const FULL: u64 = 256;

fn in_flight(file: &Arc<File>) -> usize {
    file.core.state.read().dirty.in_flight.len()
}

/// A store, its context, the queue of jobs that the test runs, the open file and its content.
type Opened = (Arc<FaultyFile>, Arc<Context>, Receiver<BackgroundJob>, Arc<File>, Vec<u8>);

/// A clean file of `CHUNKS` chunks.
fn opened() -> Opened {
    let (background, jobs) = Background::by_hand();
    let context = Arc::new(context_over(background));
    let content = Rng(1).bytes(CHUNKS as usize * 4096);
    let store = stored(&content, &context);
    let file = open(&store, &context);
    jobs.try_iter().for_each(drop);
    (store, context, jobs, file, content)
}

/// Writes `count` chunks, every second one from `first`.
fn scatter(file: &Arc<File>, want: &mut [u8], first: u64, count: u64) {
    for index in (first..first + 2 * count).step_by(2) {
        let data = Rng(index + 99).bytes(4096);
        file.write(index * 4096, &data).unwrap();
        want[index as usize * 4096..][..4096].copy_from_slice(&data);
    }
}

#[test]
fn two_writes_of_different_chunks_are_in_flight_at_once() {
    let (store, context, jobs, file, mut want) = opened();
    scatter(&file, &mut want, 0, FULL + 1);
    assert_eq!(in_flight(&file), 1);
    scatter(&file, &mut want, 1, FULL);
    assert_eq!(in_flight(&file), 2, "no chunk of the first is in the second");
    let calls = store.calls();
    scatter(&file, &mut want, 2 * FULL + 2, 50);
    // Reading chunks that are not in flight does not complete any write.
    let (at, mut chunk) = ((2 * FULL + 150) as usize * 4096, [0; 4096]);
    file.read(at as u64, &mut chunk).unwrap();
    assert!(chunk == want[at..][..4096]);
    assert_eq!((in_flight(&file), store.calls()), (2, calls));
    assert!(read_all(&file).unwrap() == want);
    assert_eq!(in_flight(&file), 0, "a read of what is in flight completes it");
    clean(&file);
    jobs.try_iter().for_each(|job| job());
    assert!(read_all(&open(&store, &context)).unwrap() == want);
}

#[test]
fn a_chunk_on_its_way_does_not_fly_again_beside_itself() {
    for completed in [0, 1, 2] {
        let (store, context, jobs, file, mut want) = opened();
        scatter(&file, &mut want, 0, FULL + 1);
        scatter(&file, &mut want, 1, FULL);
        assert_eq!(in_flight(&file), 2);
        jobs.try_iter().take(completed).for_each(|job| job());
        // These include a chunk of the second write, so both writes complete, and the epoch ends.
        scatter(&file, &mut want, 1, 1);
        scatter(&file, &mut want, 2 * FULL + 2, 80);
        scatter(&file, &mut want, 2 * FULL + 3, 80);
        want[8191..8193].fill(7);
        file.write(8191, &[7; 2]).unwrap();
        scatter(&file, &mut want, 3, 120);
        assert_eq!(in_flight(&file), 1, "after {completed}");
        assert!(read_all(&file).unwrap() == want);
        clean(&file);
        assert!(read_all(&open(&store, &context)).unwrap() == want);
    }
}
