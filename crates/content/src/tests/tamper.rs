//! Changed bytes (guarantee G1): the affected range fails, and wrong data is never read.

use super::*;

/// Reads each chunk separately: `None` if the read fails.
fn chunks_of(store: &Arc<FaultyFile>, context: &Arc<Context>) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let file = File::open(store.clone(), context.clone())?;
    let read = |index: u64| {
        let mut out = vec![0; 4096];
        file.read(index * 4096, &mut out).ok().map(|n| out[..n].to_vec())
    };
    Ok((0..layout::chunks(file.size())).map(read).collect())
}

fn content_chunks(content: &[u8]) -> Vec<Option<Vec<u8>>> {
    content.chunks(4096).map(|c| Some(c.to_vec())).collect()
}

#[test]
fn every_single_byte_of_a_small_file_counts() {
    let context = context();
    let content = Rng(1).bytes(5000);
    let store = stored(&content, &context);
    let good = store.bytes();
    for at in 0..good.len() {
        let changed = FaultyFile::new();
        changed.tamper(|bytes| {
            *bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
        });
        let Ok(read) = chunks_of(&changed, &context) else { continue };
        assert!(read.iter().any(Option::is_none), "byte {at} may be changed unseen");
        for (got, want) in read.iter().zip(content_chunks(&content)) {
            assert!(got.is_none() || *got == want, "byte {at}: something false was read");
        }
        let (first, second) = (4096..8192, 8192..good.len());
        if first.contains(&at) {
            assert!(read[0].is_none() && read[1].is_some(), "byte {at}: only chunk 0 is affected");
        } else if second.contains(&at) {
            assert!(read[0].is_some() && read[1].is_none(), "byte {at}: only chunk 1 is affected");
        }
    }
}

#[test]
fn a_changed_leaf_or_node_page_takes_only_its_groups() {
    let context = context();
    let content = Rng(2).bytes(1_000_000);
    let store = stored(&content, &context);
    let good = store.bytes();
    let leaf2 = layout::entries_offset(2) as usize;
    for (at, lost) in [(leaf2 + 40, 112..176u64), (1024 + 70, 0..48)] {
        store.tamper(|bytes| bytes[at] ^= 4);
        let read = chunks_of(&store, &context).unwrap();
        for (index, got) in read.iter().enumerate() {
            assert_eq!(got.is_none(), lost.contains(&(index as u64)), "chunk {index}");
        }
        store.tamper(|bytes| *bytes = good.clone());
    }
    store.tamper(|bytes| bytes[layout::node_offset(1, 0) as usize] ^= 1);
    assert!(chunks_of(&store, &context).unwrap().iter().all(Option::is_none));
}

#[test]
fn chunks_swapped_or_put_back_are_seen() {
    let context = context();
    let content = Rng(3).bytes(40_000);
    let store = stored(&content, &context);
    let (a, b) = (layout::chunk_offset(1) as usize, layout::chunk_offset(4) as usize);
    let good = store.bytes();
    store.tamper(|bytes| (0..4096).for_each(|i| bytes.swap(a + i, b + i)));
    let read = chunks_of(&store, &context).unwrap();
    assert_eq!(
        read.iter().map(Option::is_none).collect::<Vec<_>>(),
        (0..10).map(|i| i == 1 || i == 4).collect::<Vec<_>>()
    );
    store.tamper(|bytes| *bytes = good.clone());

    // An old version of a chunk, with its old entry.
    let file = open(&store, &context);
    file.write(4096, &[7; 4096]).unwrap();
    clean(&file);
    let newer = store.bytes();
    for what in ["chunk", "entry", "both"] {
        store.tamper(|bytes| {
            *bytes = newer.clone();
            if what != "entry" {
                bytes[a..a + 4096].copy_from_slice(&good[a..a + 4096]);
            }
            if what != "chunk" {
                bytes[1024..4096].copy_from_slice(&good[1024..4096]);
            }
        });
        let read = chunks_of(&store, &context);
        assert!(read.is_err() || read.unwrap()[1].is_none(), "{what}");
    }
}

#[test]
fn a_forged_hole_is_seen() {
    let context = context();
    let store = stored(&Rng(4).bytes(20_000), &context);
    let good = store.bytes();
    store.tamper(|bytes| bytes[1024..1024 + 64].fill(0));
    assert!(chunks_of(&store, &context).unwrap()[0].is_none());
    store.tamper(|bytes| {
        *bytes = good.clone();
        bytes[4096..8192].fill(0);
    });
    assert!(chunks_of(&store, &context).unwrap()[0].is_none());
}

#[test]
fn a_cut_or_grown_file_is_seen() {
    let context = context();
    let content = Rng(5).bytes(20_000);
    let good = stored(&content, &context).bytes();
    for len in [0, 1, 4095, 4096, 4097, 8192, 12_000, good.len() - 1, good.len() + 1, good.len() + 100_000] {
        let store = FaultyFile::new();
        store.tamper(|bytes| {
            *bytes = good.clone();
            bytes.resize(len, 0);
        });
        let Ok(file) = File::open(store.clone(), context.clone()) else { continue };
        if len < 4096 {
            assert_eq!(file.size(), 0, "emptied: the stated limit");
            continue;
        }
        assert!(read_all(&file).is_err(), "length {len}");
        assert!(file.write(0, b"x").is_err() && file.truncate(0).is_err());
        let mut start = [0; 4096];
        if len >= 12_288 {
            assert_eq!(file.read(0, &mut start).unwrap(), 4096);
            assert_eq!(start[..], content[..4096]);
        }
    }
}

#[test]
fn chunks_of_another_file_are_refused() {
    let context = context();
    let (a, b) = (stored(&[1; 9000], &context), stored(&[2; 9000], &context));
    let other = b.bytes();
    let good = a.bytes();
    for range in [4096..8192, 1024..4096, 1024..8192, 0..512, 512..1024, 0..1024] {
        a.tamper(|bytes| {
            *bytes = good.clone();
            bytes[range.clone()].copy_from_slice(&other[range.clone()]);
        });
        let read = chunks_of(&a, &context);
        assert!(read.is_err() || read.unwrap()[0].is_none(), "{range:?}");
    }
}

/// A copy of a file that was written separately has slots of the same epochs that also verify. They must
/// not count in an unfinished write of the other copy.
#[test]
fn an_unfinished_write_takes_nothing_of_a_copy() {
    let context = context();
    let content = Rng(3).bytes(4 * 4096);
    let begun = stored(&content, &context).bytes();
    let go_on = |chunk: u64| {
        let copy = FaultyFile::new();
        copy.tamper(|bytes| bytes.clone_from(&begun));
        let file = open(&copy, &context);
        file.write(chunk * 4096, &[chunk as u8; 4096]).unwrap();
        file.flush().unwrap();
        copy.bytes()
    };
    let (mut one, other) = (go_on(1), go_on(2));
    let entry = layout::GROUP0_ENTRIES as usize + 2 * 64;
    let data = layout::chunk_offset(2) as usize;
    one[entry..entry + 64].copy_from_slice(&other[entry..entry + 64]);
    one[data..data + 4096].copy_from_slice(&other[data..data + 4096]);
    let store = FaultyFile::new();
    store.tamper(|bytes| *bytes = one);
    let read = chunks_of(&store, &context).unwrap();
    assert_eq!(read[1..3], [None, None], "what was flushed is not proven, and over the base's");
    for chunk in [0, 3] {
        assert_eq!(read[chunk].as_deref(), Some(&content[chunk * 4096..][..4096]));
    }
}

#[test]
fn nothing_of_unused_slots_outlives_recovery() {
    let context = context();
    let mut content = Rng(7).bytes(9000);
    let dirty = {
        let store = FaultyFile::new();
        let file = open(&store, &context);
        file.write(0, &content).unwrap();
        file.sync().unwrap();
        store.bytes()
    };
    content[5] = b'x';
    // The second slot of chunk 1, and one past the end: a nonce or tag without an epoch, and the largest
    // epoch.
    for (at, len) in [(32, 1), (32 + 16, 16), (32 + 10, 6), (64 * 5, 10), (64 * 5 + 10, 6)] {
        let store = FaultyFile::new();
        store.tamper(|bytes| {
            *bytes = dirty.clone();
            bytes[1024 + 64 + at..][..len].fill(0xff);
        });
        read_all(&open(&store, &context)).unwrap();
        let file = open(&store, &context);
        file.write(5, b"x").unwrap();
        clean(&file);
        let again = File::open(store.clone(), context.clone()).and_then(|file| read_all(&file));
        assert!(again.is_ok_and(|read| read == content), "{len} bytes at {at}");
    }
}

#[test]
fn hostile_bytes_never_panic() {
    let context = context();
    let rng = &mut Rng(6);
    let clean = stored(&rng.bytes(300_000), &context).bytes();
    let dirty = {
        let store = FaultyFile::new();
        let file = open(&store, &context);
        file.write(0, &[1; 300_000]).unwrap();
        file.sync().unwrap();
        file.write(1000, &[2; 200_000]).unwrap();
        file.flush().unwrap();
        store.bytes()
    };
    for round in 0..400 {
        let store = FaultyFile::new();
        store.tamper(|bytes| {
            *bytes = if round % 2 == 0 { clean.clone() } else { dirty.clone() };
            for _ in 0..=rng.below(4) {
                let at =
                    if rng.below(2) == 0 { rng.below(4096) } else { rng.below(bytes.len() as u64) } as usize;
                let n = (1 + rng.below(600) as usize).min(bytes.len() - at);
                let noise = rng.bytes(n);
                bytes[at..at + n].copy_from_slice(&noise);
            }
            if rng.below(4) == 0 {
                bytes.truncate(rng.below(400_000) as usize);
            }
        });
        if let Ok(file) = File::open(store.clone(), context.clone()) {
            let _ = read_all(&file);
            let _ = file.write(rng.below(400_000), &[3; 10_000]);
            let _ = file.truncate(rng.below(400_000));
            let _ = file.sync();
            let _ = file.seek(0, false);
        }
    }
}
