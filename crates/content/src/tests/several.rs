//! Compares small reads done together with the same reads done alone.

use super::{Rng, context, open};
use crate::{Error, File, Result, SmallRead};
use std::sync::Arc;
use store::{BackingFile, FaultyFile};

const SIZE: usize = 3 << 20;

fn together(file: &Arc<File>, places: &[(u64, usize)]) -> Vec<Result<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = places.iter().map(|(_, len)| vec![0xEE; *len]).collect();
    let reads = places.iter().zip(&mut buffers).map(|((offset, _), out)| SmallRead { offset: *offset, out });
    let done = file.read_together(&mut reads.collect::<Vec<_>>());
    done.into_iter().zip(buffers).map(|(done, bytes)| done.map(|len| bytes[..len].to_vec())).collect()
}

fn expected(content: &[u8], (offset, len): (u64, usize)) -> &[u8] {
    let from = content.len().min(offset as usize);
    &content[from..content.len().min(from + len)]
}

#[test]
fn reads_together_are_the_reads_alone() {
    let mut rng = Rng(11);
    let (store, context) = (FaultyFile::new(), context());
    let mut content = rng.bytes(SIZE + 1000);
    let file = open(&store, &context);
    file.write(0, &content).unwrap();
    file.sync().unwrap();
    let file = open(&store, &context); // Nothing of it is in memory.
    for round in 0..200 {
        if round % 10 == 9 {
            // Some chunks are in the buffer, and some are holes.
            let (at, new) = (rng.below(SIZE as u64), rng.bytes(5000));
            file.write(at, &new[..5000.min(content.len() - at as usize)]).unwrap();
            content[at as usize..][..5000.min(SIZE + 1000 - at as usize)]
                .copy_from_slice(&new[..5000.min(SIZE + 1000 - at as usize)]);
            let hole = rng.below(SIZE as u64);
            file.punch(hole, 9000).unwrap();
            let end = content.len().min(hole as usize + 9000);
            content[hole as usize..end].fill(0);
        }
        let mut place = || {
            let aligned = rng.below(2) == 0;
            let at = rng.below(SIZE as u64 + 6000);
            (if aligned { at & !4095 } else { at }, 1 + rng.below(4096) as usize)
        };
        let mut places: Vec<_> = (0..1 + round % 8).map(|_| place()).collect();
        places.push(places[0]); // the same chunk twice
        for (place, read) in places.iter().zip(together(&file, &places)) {
            assert!(read.unwrap() == expected(&content, *place), "{place:?}");
        }
    }
}

#[test]
fn damage_fails_the_reads_that_meet_it_and_no_others() {
    let mut rng = Rng(12);
    let (store, context) = (FaultyFile::new(), context());
    let content = rng.bytes(SIZE);
    let file = open(&store, &context);
    file.write(0, &content).unwrap();
    file.sync().unwrap();
    let offset = format::layout::chunk_offset(100);
    let mut byte = [0];
    store.read_at(&mut byte, offset).unwrap();
    store.write_at(&[byte[0] ^ 1], offset).unwrap();
    let file = open(&store, &context);
    let places = [(99 * 4096, 4096), (100 * 4096, 4096), (100 * 4096 + 4000, 200), (5 * 4096, 4096)];
    for _ in 0..2 {
        let reads = together(&file, &places);
        for (damaged, (place, read)) in [false, true, true, false].into_iter().zip(places.iter().zip(reads)) {
            match read {
                Ok(bytes) => assert!(!damaged && bytes == expected(&content, *place), "{place:?}"),
                Err(e) => assert!(damaged && matches!(e, Error::Damaged(_)), "{place:?}: {e}"),
            }
        }
    }
}
