//! Every stored size has a plaintext size, which is the largest that fits. No two structures overlap.
#![no_main]

use format::layout::{
    CHUNK, FANOUT, MAX_LEVELS, MAX_SIZE, PAGE, chunk_offset, chunks, entries_offset, first_chunk, group_of,
    groups, node_offset, place_in_group, plain_size, stored_size,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|numbers: (u64, u64, u8)| {
    let (stored, index, level) = numbers;
    let plain = plain_size(stored);
    assert!(plain <= MAX_SIZE);
    if stored >= PAGE {
        assert!(stored_size(plain) <= stored);
        assert!(plain == MAX_SIZE || stored < stored_size(plain + 1));
        assert_eq!(plain_size(stored_size(plain)), plain);
    }
    // Between two consecutive chunks there is nothing, or only the pages of the later chunk's group.
    let index = index % chunks(MAX_SIZE);
    let (group, at) = (group_of(index), chunk_offset(index));
    assert_eq!(first_chunk(group) + place_in_group(index) as u64, index);
    let before = if index == 0 { 0 } else { chunk_offset(index - 1) + CHUNK };
    if place_in_group(index) > 0 {
        assert_eq!(at, before);
    } else if group > 0 {
        assert_eq!(at, entries_offset(group) + PAGE);
        assert!(before <= entries_offset(group));
        assert!(entries_offset(group) - before <= PAGE * u64::from(MAX_LEVELS));
    }
    // A node page directly precedes the leaf page of a group below it, or another node page.
    let level = 1 + u32::from(level) % MAX_LEVELS;
    let page = index % groups(MAX_SIZE).div_ceil(FANOUT.pow(level));
    let beside = if page == 0 { FANOUT.pow(level - 1) } else { page * FANOUT.pow(level) };
    let place = node_offset(level, page);
    assert!(place >= chunk_offset(first_chunk(beside) - 1) + CHUNK && place + PAGE <= entries_offset(beside));
});
