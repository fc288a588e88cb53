use super::*;
use proptest::prelude::*;

/// Lays out a file page by page, following the text of the format document, and compares every formula.
#[test]
fn a_page_by_page_walk_agrees() {
    let mut offset = PAGE;
    for index in 0..GROUP0 {
        assert_eq!(
            (chunk_offset(index), group_of(index), place_in_group(index)),
            (offset, 0, index as usize)
        );
        offset += CHUNK;
    }
    let mut next = [0_u64; 4];
    for group in 1..40_000_u64 {
        for level in 1..=4_u32 {
            let span = 128_u64.pow(level);
            let due_first = next[level as usize - 1] == 0 && group == span / 128;
            if due_first || group % span == 0 {
                let k = next[level as usize - 1];
                assert_eq!(node_offset(level, k), offset, "level {level} page {k}");
                assert_eq!(k, group / span);
                next[level as usize - 1] += 1;
                offset += PAGE;
            }
        }
        assert_eq!(entries_offset(group), offset, "leaf {group}");
        offset += PAGE;
        for place in 0..GROUP {
            let index = first_chunk(group) + place;
            assert_eq!(chunk_offset(index), offset);
            assert_eq!((group_of(index), place_in_group(index)), (group, place as usize));
            offset += CHUNK;
        }
    }
}

/// Number of node pages of `level` (from 1) over `groups` groups; 0 if that level does not exist.
fn nodes(level: u32, groups: u64) -> u64 {
    if level > levels(groups) { 0 } else { ((groups - 1) >> (FANOUT_BITS * level)) + 1 }
}

/// The node pages that exist are exactly those for which the layout reserves space.
#[test]
fn node_pages_end_where_the_file_does() {
    for count in (1..20_000_u64).chain([128 * 128 * 128, 128 * 128 * 128 + 1]) {
        let size = first_chunk(count) * CHUNK;
        assert_eq!((groups(size), groups(size + 1)), (count, count + 1));
        let total: u64 = (1..=levels(count)).map(|level| nodes(level, count)).sum();
        let expected = if count == 1 { 0 } else { nodes_through(count - 1) };
        assert_eq!(total, expected, "{count} groups");
        assert_eq!(nodes(levels(count).max(1), count), u64::from(count > 1), "{count} groups have one root");
    }
}

#[test]
fn sizes_at_the_edges_of_groups_and_levels_invert() {
    let mut sizes = vec![0, 1, CHUNK - 1, CHUNK, CHUNK + 1, MAX_SIZE - 1, MAX_SIZE];
    let cubes = 128_u64.pow(3);
    for group in [1, 2, 127, 128, 129, 255, 256, 16383, 16384, 16385, cubes - 1, cubes, cubes + 1] {
        let edge = first_chunk(group) * CHUNK;
        sizes.extend([edge - 1, edge, edge + 1, edge + CHUNK - 1, edge + CHUNK, edge + CHUNK + 1]);
    }
    sizes.sort();
    for pair in sizes.windows(2) {
        assert!(pair[0] == pair[1] || stored_size(pair[0]) < stored_size(pair[1]));
    }
    for size in sizes {
        assert_eq!(plain_size(stored_size(size)), size);
    }
}

/// For a million random sizes: the inverse holds, order is preserved, and any stored size rounds down.
#[test]
fn a_million_random_sizes_invert() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut sizes: Vec<u64> = (0..1_000_000)
        .map(|i| if i % 2 == 0 { random() % MAX_SIZE } else { (random() >> (20 + random() % 44)) % MAX_SIZE })
        .collect();
    sizes.sort();
    let mut last = None;
    for size in sizes {
        let stored = stored_size(size);
        assert_eq!(plain_size(stored), size);
        assert!(last.is_none_or(|(s, t)| s == size || t < stored));
        last = Some((size, stored));
        let any = stored + 1 + random() % (3 * PAGE);
        let floor = plain_size(any);
        assert!(stored_size(floor) <= any);
        assert!(floor == MAX_SIZE || any < stored_size(floor + 1), "size {size}, stored {any}");
    }
}

#[test]
fn room_is_what_its_files_fill() {
    for stored in [0, PAGE, 1 << 30, MAX_STORED - 1, MAX_STORED, 3 * MAX_STORED + (1 << 40), u64::MAX] {
        let plain = room_for_contents(stored);
        let (whole, rest) = (plain / MAX_SIZE, plain % MAX_SIZE);
        assert!(whole * MAX_STORED + if rest == 0 { 0 } else { stored_size(rest) } <= stored, "{stored}");
        assert!(stored < PAGE || stored - plain <= stored / 60 + PAGE, "{stored}");
    }
}

#[test]
fn worked_sizes() {
    for (plain, stored, level) in [
        (0, 4096, 0),
        (1, 4097, 0),
        (4096, 8192, 0),
        (196_608, 200_704, 0),
        (196_609, 208_897, 1),
        (1 << 20, 1_073_152, 1),
    ] {
        assert_eq!((stored_size(plain), levels(groups(plain))), (stored, level), "{plain}");
    }
    assert_eq!(MAX_LEVELS, 4);
}

#[test]
fn levels_are_the_least_that_cover() {
    for (count, expected) in
        [(0, 0), (1, 0), (2, 1), (128, 1), (129, 2), (16384, 2), (16385, 3), (u64::MAX, 10)]
    {
        assert_eq!(levels(count), expected, "{count}");
    }
}

#[test]
fn chunk_lengths() {
    assert_eq!(chunk_len(0, 0), 0);
    assert_eq!(chunk_len(1, 0), 1);
    assert_eq!(chunk_len(4096, 0), 4096);
    assert_eq!(chunk_len(4097, 1), 1);
    assert_eq!(chunk_len(4097, 2), 0);
    assert_eq!(chunk_len(4097, u64::MAX), 0);
}

proptest! {
    #[test]
    fn plain_size_is_total(stored in any::<u64>(), shift in 0..64_u32) {
        for stored in [stored, stored >> shift, u64::MAX - (stored >> shift)] {
            let plain = plain_size(stored);
            prop_assert!(plain <= MAX_SIZE);
            prop_assert!(stored < PAGE || stored_size(plain) <= stored);
        }
    }
}
