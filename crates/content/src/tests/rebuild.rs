//! Rebuilding: whatever the damage, every chunk still intact can be read afterwards, and no wrong data.

use super::*;
use crate::Rebuilt;

const CHUNK: usize = layout::CHUNK as usize;

/// Chunks that are holes: all of group 3, and some others.
fn is_hole(index: usize) -> bool {
    index % 7 == 3 || layout::group_of(index as u64) == 3
}

/// A clean file with holes, and its content. With two or more groups it has a node page.
fn sparse(chunks: usize, context: &Arc<Context>) -> (Vec<u8>, Arc<FaultyFile>) {
    let mut content = Rng(chunks as u64).bytes(chunks * CHUNK - 1000);
    let store = FaultyFile::new();
    let file = open(&store, context);
    for index in 0..chunks {
        let end = content.len().min((index + 1) * CHUNK);
        let range = index * CHUNK..end;
        if is_hole(index) {
            content[range].fill(0);
        } else {
            file.write(range.start as u64, &content[range]).unwrap();
        }
    }
    file.truncate(content.len() as u64).unwrap();
    clean(&file);
    (content, store)
}

/// Whether each chunk can be read. Asserts that no wrong data is read.
fn readable(store: &Arc<FaultyFile>, context: &Arc<Context>, content: &[u8], what: &str) -> Vec<bool> {
    let file = File::open(store.clone(), context.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
    file.check_length().unwrap_or_else(|e| panic!("{what}: {e}"));
    for group in 0..layout::groups(file.size()) {
        file.check_group(group).unwrap_or_else(|e| panic!("{what}: group {group}: {e}"));
    }
    let read = |(index, wanted): (usize, &[u8])| {
        let mut out = vec![0; wanted.len()];
        let read = file.read((index * CHUNK) as u64, &mut out);
        assert!(read.is_err() || out == wanted, "{what}: chunk {index} is false");
        read.is_ok()
    };
    content.chunks(CHUNK).enumerate().map(read).collect()
}

fn rebuild(store: &Arc<FaultyFile>, context: &Arc<Context>) -> Rebuilt {
    crate::rebuild(store.clone(), context.clone(), || Ok(())).unwrap()
}

fn lost(readable: &[bool]) -> Vec<usize> {
    (0..readable.len()).filter(|index| !readable[*index]).collect()
}

#[test]
fn one_changed_byte_costs_one_chunk_at_most_and_no_other_group() {
    let context = context();
    let (content, store) = sparse(250, &context);
    let good = store.bytes();
    let header = (0..layout::PAGE as usize).step_by(3);
    let pages = [layout::node_offset(1, 0), layout::entries_offset(2), layout::entries_offset(3)];
    let in_pages = pages.iter().flat_map(|page| (*page as usize..*page as usize + CHUNK).step_by(41));
    for at in header.chain(in_pages) {
        store.tamper(|bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 1 << (at % 8);
        });
        let what = format!("byte {at}");
        assert_ne!(rebuild(&store, &context), Rebuilt::Foreign, "{what}");
        let lost = lost(&readable(&store, &context, &content, &what));
        let in_entries = [0, 2, 3]
            .map(layout::entries_offset)
            .into_iter()
            .position(|page| (page as usize..(page | 4095) as usize + 1).contains(&at));
        assert!(in_entries.is_some() || lost.is_empty(), "{what}: lost {lost:?}");
        // If a slot is lost, the holes of its group are no longer proven.
        assert!(lost.iter().filter(|index| !is_hole(**index)).count() <= 1, "{what}: lost {lost:?}");
        assert!(
            lost.windows(2).all(|two| layout::group_of(two[0] as u64) == layout::group_of(two[1] as u64))
        );
    }
}

#[test]
fn a_lost_header_costs_the_chunks_whose_entries_are_in_it() {
    let context = context();
    let (content, store) = sparse(250, &context);
    // A blank header means a file that was never committed, which is not detectable damage.
    store.tamper(|bytes| bytes[..512].fill(0xee));
    let good = store.bytes();
    // The other record has everything that is needed.
    assert_eq!(rebuild(&store, &context), Rebuilt::Exact);
    assert_eq!(lost(&readable(&store, &context, &content, "record A")), [0; 0]);
    // A salt is enough, but holes are then no longer proven.
    store.tamper(|bytes| {
        bytes.clone_from(&good);
        bytes[512..520].fill(1);
    });
    assert_eq!(rebuild(&store, &context), Rebuilt::Salvaged);
    let holes = lost(&readable(&store, &context, &content, "both records"));
    assert!(holes.iter().all(|index| layout::group_of(*index as u64) == 3), "{holes:?}");
    // Without a salt there is no key.
    store.tamper(|bytes| {
        bytes.clone_from(&good);
        bytes[..1024].fill(9);
    });
    assert_eq!(rebuild(&store, &context), Rebuilt::Foreign);
}

#[test]
fn a_cut_or_grown_file_gets_its_length_back() {
    let context = context();
    let (content, store) = sparse(250, &context);
    let good = store.bytes();
    store.tamper(|bytes| bytes.extend([7; 5000]));
    assert_eq!(rebuild(&store, &context), Rebuilt::Exact);
    assert_eq!(lost(&readable(&store, &context, &content, "grown")), [0; 0]);
    store.tamper(|bytes| {
        bytes.clone_from(&good);
        bytes.truncate(layout::chunk_offset(120) as usize + 100);
    });
    assert_eq!(rebuild(&store, &context), Rebuilt::Salvaged);
    let lost = lost(&readable(&store, &context, &content, "cut"));
    // The entries of group 2 are intact, so its holes are proven. Those of group 4 are lost.
    let expected = |index: &usize| match layout::group_of(*index as u64) {
        2 => *index >= 120 && !is_hole(*index),
        group => group == 4,
    };
    assert_eq!(lost, (0..250).filter(expected).collect::<Vec<_>>());
}

#[test]
fn whatever_is_damaged_nothing_false_is_read_and_what_is_whole_is_kept() {
    let context = context();
    let (content, store) = sparse(250, &context);
    let good = store.bytes();
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let mut bytes = good.clone();
        for _ in 0..1 + rng.below(4) {
            let at = (rng.below(bytes.len() as u64) & !(511 * rng.below(2))) as usize;
            let longest = if rng.below(2) == 0 { 64 } else { 9000 };
            let len = 1 + rng.below(longest) as usize;
            let end = bytes.len().min(at + len);
            match rng.below(4) {
                0 => bytes[at..end].fill(0),
                1 => bytes[at..end].copy_from_slice(&Rng(seed + 1).bytes(end - at)),
                2 => bytes.copy_within(at..end, (at + 4096).min(good.len() - (end - at)).min(at)),
                _ if rng.below(3) == 0 => bytes.truncate(at.max(5000)),
                _ => bytes[at] ^= 1,
            }
        }
        store.tamper(|stored| stored.clone_from(&bytes));
        if bytes[..1024] == [0; 1024] || rebuild(&store, &context) == Rebuilt::Foreign {
            continue;
        }
        let what = format!("seed {seed}");
        let read = readable(&store, &context, &content, &what);
        // A chunk with intact data, length and slot can be read.
        for (index, readable) in read.iter().enumerate() {
            let offset = layout::chunk_offset(index as u64) as usize;
            let entry = layout::entries_offset(layout::group_of(index as u64)) as usize
                + layout::place_in_group(index as u64) * 64;
            let ranges = [offset..offset + CHUNK.min(content.len() - index * CHUNK), entry..entry + 64];
            let whole = |range: std::ops::Range<usize>| bytes.get(range.clone()) == Some(&good[range]);
            let last = index + 1 == 250; // Its length may be lost with the records.
            assert!(
                *readable || is_hole(index) || last || !ranges.into_iter().all(whole),
                "{what}: chunk {index}"
            );
        }
        write_on(&store, &context, &content, &what);
    }
}

/// The file can be used again: lost chunks can be rewritten.
fn write_on(store: &Arc<FaultyFile>, context: &Arc<Context>, content: &[u8], what: &str) {
    let file = open(store, context);
    file.truncate(content.len() as u64).unwrap();
    file.write(0, content).unwrap();
    clean(&file);
    drop(file);
    assert_eq!(read_all(&open(store, context)).unwrap(), content, "{what}");
}

#[test]
fn an_unfinished_write_over_damage_keeps_what_verifies() {
    let context = context();
    let (mut content, store) = sparse(120, &context);
    let file = open(&store, &context);
    let new = Rng(99).bytes(3 * CHUNK);
    file.write(10 * CHUNK as u64, &new).unwrap();
    file.sync().unwrap();
    content[10 * CHUNK..13 * CHUNK].copy_from_slice(&new);
    drop(file);
    // The record is dirty, and an entry is damaged, so neither version is proven.
    store.tamper(|bytes| bytes[layout::entries_offset(1) as usize + 70] ^= 1);
    assert!(File::open(store.clone(), context.clone()).is_err());
    assert_eq!(rebuild(&store, &context), Rebuilt::Salvaged);
    let read = readable(&store, &context, &content, "dirty");
    let lost = lost(&read);
    assert!(lost.iter().all(|index| is_hole(*index) || *index == 49), "{lost:?}");
}

#[test]
fn a_rebuild_that_is_cut_short_costs_nothing_more() {
    let context = context();
    let (content, store) = sparse(250, &context);
    // Group 3 is a hole, so its entries are not read.
    store.tamper(|bytes| {
        bytes[layout::entries_offset(2) as usize + 70] ^= 1;
        bytes[layout::entries_offset(3) as usize..][..64].fill(7);
    });
    store.sync_data().unwrap();
    store.record();
    assert_eq!(rebuild(&store, &context), Rebuilt::Salvaged);
    let wanted = lost(&readable(&store, &context, &content, "at once"));
    assert!(!wanted.is_empty() && wanted.iter().all(|index| layout::group_of(*index as u64) == 2));
    for (call, before) in store.recorded().iter().enumerate() {
        for seed in 0..20 {
            let what = format!("before call {call}, seed {seed}");
            let mut rng = Rng(seed);
            let cut = match seed {
                0 => FaultyFile::killed(before),
                _ => FaultyFile::at(&before.power_cut(|_| false, |n| rng.below(n as u64) as usize)),
            };
            rebuild(&cut, &context);
            assert_eq!(lost(&readable(&cut, &context, &content, &what)), wanted, "{what}");
        }
    }
}
