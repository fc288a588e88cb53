//! Readers with a pattern read the same data as without read-ahead, within the memory limit.

use super::{
    super::{ahead_memory::ReadAheadMemory, read::Ahead},
    *,
};

const MIB: usize = 1 << 20;

fn read_to(file: &Arc<File>, offset: usize, len: usize) -> Vec<u8> {
    file.read_to(offset as u64, len, &mut Vec::new(), <[u8]>::to_vec).unwrap()
}

/// A file with every kind of chunk: stored, holes, punched, and some still buffered.
fn mixed(context: &Arc<Context>, size: usize) -> (Arc<File>, Vec<u8>) {
    let mut content = Rng(1).bytes(size);
    let store = stored(&content, context);
    let file = open(&store, context);
    file.punch(3 << 20, 100_000).unwrap();
    content[3 << 20..(3 << 20) + 100_000].fill(0);
    file.flush().unwrap();
    for offset in [5_000, 4_100_000, size - 10] {
        file.write(offset as u64, &[7; 10]).unwrap();
        content[offset..offset + 10].fill(7);
    }
    file.truncate(size as u64 + 300_000).unwrap();
    content.resize(size + 300_000, 0);
    (file, content)
}

#[test]
fn readers_in_steps_read_what_is_there() {
    let context = context();
    let (file, content) = mixed(&context, 9 * MIB + 1234);
    for (len, step) in [
        (4096, 4096),
        (131_072, 131_072),
        (MIB, MIB as i64),
        (1_000_000, 1_000_000),
        (777, 777),
        (65_536, -65_536),
        (4096, -4096),
        (32_768, 200_000),
        (20_000, -123_456),
        (5 * MIB, 5 * MIB as i64),
    ] {
        let mut at = if step > 0 { 0 } else { content.len() as i64 + step };
        while (0..content.len() as i64).contains(&at) {
            let from = at as usize;
            let want = &content[from..(from + len).min(content.len())];
            assert!(read_to(&file, from, len) == want, "{len} bytes at {at}, step {step}");
            at += step;
        }
    }
}

#[test]
fn a_range_that_was_cut_off_before_it_was_opened_is_empty() {
    let context = context();
    let file = open(&stored(&Rng(1).bytes(3 * MIB), &context), &context);
    file.truncate(300_000).unwrap();
    for chunks in [256..512, 74..75] {
        let start = chunks.start * layout::CHUNK;
        assert!(
            crate::read::RangeReader::of(&file.core)
                .decrypt_range(chunks)
                .unwrap()
                .part(start, 100)
                .is_empty()
        );
    }
}

#[test]
fn two_readers_and_requests_out_of_order_are_told_apart() {
    let context = context();
    let (file, content) = mixed(&context, 8 * MIB);
    let piece = 256 << 10;
    for turn in 0..12 {
        for start in [0, 4 * MIB] {
            for place in [2 * turn + 1, 2 * turn] {
                let at = start + place * piece;
                let want = &content[at.min(content.len())..(at + piece).min(content.len())];
                assert!(read_to(&file, at, piece) == want);
            }
        }
    }
}

#[test]
fn what_was_written_is_read_whatever_was_opened_before() {
    let context = context();
    let file = open(&stored(&vec![1; 4 * MIB], &context), &context);
    for round in 2..30 {
        for at in (0..MIB).step_by(64 << 10) {
            assert!(read_to(&file, at, 64 << 10).iter().all(|b| *b == round - 1));
        }
        file.write(0, &vec![round; 4 * MIB]).unwrap();
    }
    file.truncate(MIB as u64).unwrap();
    assert_eq!(read_to(&file, MIB - 10, 100).len(), 10);
    assert_eq!(read_to(&file, MIB, 100).len(), 0);
}

#[test]
fn windows_are_bounded_and_go_with_the_file() {
    let context = context();
    let content = vec![5; 24 * MIB];
    let files: Vec<_> = (0..8).map(|_| open(&stored(&content, &context), &context)).collect();
    for at in (0..16 * MIB).step_by(MIB) {
        for file in &files {
            assert!(read_to(file, at, MIB) == content[at..at + MIB]);
            assert!(context.ahead.bytes() <= context.budget.ahead);
            // Besides the shared memory, each file has the slots of one window.
            assert!(context.slots.bytes() <= 2 << 20);
        }
    }
    assert!(context.ahead.bytes() > 0, "something is opened ahead");
    drop(files);
    assert_none_left(&context);
}

/// Waits, because jobs still in the queue hold their windows a little longer.
fn assert_none_left(context: &Context) {
    for _ in 0..1000 {
        if context.ahead.bytes() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("windows are left");
}

#[test]
fn damage_ahead_is_told_only_to_who_reads_it() {
    let context = context();
    let store = stored(&vec![1; 4 * MIB], &context);
    let bad = 2 * MIB + 5;
    let place = layout::chunk_offset(bad as u64 / 4096) + 5;
    store.write_at(&[0xaa; 1], place).unwrap();
    let file = open(&store, &context);
    for at in (0..4 * MIB).step_by(128 << 10) {
        let read = file.read_to(at as u64, 128 << 10, &mut Vec::new(), <[u8]>::len);
        let hit = (at..at + (128 << 10)).contains(&bad);
        assert_eq!(read.is_err(), hit, "at {at}: {read:?}");
    }
}

/// Repeatedly reading a header between reads elsewhere, as databases do, is not recognised as a
/// sequential reader.
#[test]
fn nothing_is_opened_ahead_of_a_header_that_is_read_again() {
    let context = context();
    let (file, content) = mixed(&context, 4 * MIB);
    let mut rng = Rng(5);
    for turn in 0..40 {
        assert!(read_to(&file, 0, 100) == content[..100]);
        if turn > 0 {
            assert_none_left(&context);
        }
        for _ in 0..turn % 20 {
            let at = 4096 + rng.below(3 << 20) as usize;
            assert!(read_to(&file, at, 50) == content[at..at + 50]);
        }
    }
    // A reader that continues is recognised again.
    read_to(&file, 0, 65_536);
    read_to(&file, 65_536, 65_536);
    assert!(context.ahead.bytes() > 0);
}

/// In a random order, some places are adjacent by chance.
#[test]
fn next_to_nothing_is_opened_ahead_of_a_reader_of_random_places() {
    for (len, size) in [(4096, 8 << 20), (4096, 64 << 20), (65_536, 64 << 20)] {
        let (mut rng, mut begun) = (Rng(len ^ size), 0);
        for _ in 0..10 {
            let mut ahead = Ahead::new(Arc::default(), 1 << 30, 16);
            let mut places: Vec<u64> = (0..size / len).collect();
            while !places.is_empty() {
                let start = len * places.swap_remove(rng.below(places.len() as u64) as usize);
                let found = ahead.note(start..start + len, size, 1);
                begun += found.begun.iter().map(|w| (w.chunks.end - w.chunks.start) * 4096).sum::<u64>();
            }
        }
        assert!(begun < size / 2, "{begun} of ten times {size} bytes, {len} at once");
    }
}

/// With many files being read, each gets its share of the read-ahead memory.
#[test]
fn all_readers_of_many_files_find_windows() {
    let (all, piece) = (Arc::default(), MIB as u64);
    let mut files: Vec<Ahead> = (0..16).map(|_| Ahead::new(Arc::clone(&all), 64 * MIB, 16)).collect();
    for step in 0..100 {
        let bytes = step * piece..(step + 1) * piece;
        let missed = files
            .iter_mut()
            .filter_map(|file| file.note(bytes.clone(), 1 << 30, 1).windows.is_empty().then_some(()));
        // The first files took more before the last ones arrived.
        let missed = missed.count();
        assert!(step < 20 || missed == 0, "{missed} at step {step}");
    }
}

/// Readers that reached the end, forward or backward, and one that stopped, leave the memory to the
/// others.
#[test]
fn a_file_that_is_read_time_and_again_finds_windows_every_time() {
    let (all, piece, size) = (Arc::<ReadAheadMemory>::default(), MIB as u64, 32 * MIB as u64);
    let mut file = Ahead::new(Arc::clone(&all), 64 * MIB, 16);
    file.note(0..piece, size, 1);
    file.note(piece..2 * piece, size, 1);
    for round in 0..40 {
        let mut missed = 0;
        for step in 0..32 {
            let at = if round % 4 < 3 { step } else { 31 - step };
            let found = file.note(at * piece..(at + 1) * piece, size, 1);
            missed += usize::from(found.windows.is_empty());
        }
        assert!(missed < 4, "{missed} in round {round}");
        assert!(round < 2 || all.bytes() <= 24 * MIB, "{} bytes in round {round}", all.bytes());
    }
}

/// Slots loaded along with a long read are not needed yet, so damage is reported only to the reader that
/// needs them.
#[test]
fn slots_come_along_with_a_long_read_as_far_as_they_can_be_had() {
    let context = context();
    let store = stored(&vec![1; 4 * MIB], &context);
    let bad = layout::group_of((3 * MIB / 4096) as u64);
    store.write_at(&[0xaa; 8], layout::entries_offset(bad)).unwrap();
    let file = open(&store, &context);
    let loaded = |group| file.core.state.read().stored.tree.is_loaded(group);
    read_to(&file, 0, 16 << 10);
    assert!(!loaded(2));
    assert!(read_to(&file, 0, MIB).iter().all(|byte| *byte == 1));
    assert!(loaded(bad - 1) && !loaded(bad) && loaded(bad + 1));
    assert!(file.read_to(3 * MIB as u64, MIB, &mut Vec::new(), |_| ()).is_err());
}
