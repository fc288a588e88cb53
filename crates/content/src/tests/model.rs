//! Random operations, checked against a byte vector.

use super::*;
use crypto::chunk::CHUNK;

/// Applies a random step to a file and its model.
pub(super) fn step(file: &Arc<File>, model: &mut Vec<u8>, rng: &mut Rng, largest: u64) -> &'static str {
    let offset = rng.below(model.len() as u64 + 5000).min(largest);
    let len = match rng.below(4) {
        0 => rng.below(10),
        1 => 4096,
        2 => rng.below(9000),
        _ => rng.below(70_000),
    };
    let offset = if rng.below(3) == 0 { offset / 4096 * 4096 } else { offset };
    match rng.below(9) {
        0..=3 => {
            let data = rng.bytes(len as usize);
            file.write(offset, &data).unwrap();
            let end = offset as usize + data.len();
            if !data.is_empty() && model.len() < end {
                model.resize(end, 0);
            }
            if !data.is_empty() {
                model[offset as usize..end].copy_from_slice(&data);
            }
            "write"
        }
        4 => {
            let size = rng.below(model.len() as u64 + 20_000).min(largest);
            let size = if rng.below(3) == 0 { size / 4096 * 4096 } else { size };
            file.truncate(size).unwrap();
            model.resize(size as usize, 0);
            "truncate"
        }
        5 => {
            file.punch(offset, len).unwrap();
            let end = (offset + len).min(model.len() as u64) as usize;
            if (offset as usize) < end {
                model[offset as usize..end].fill(0);
            }
            "punch"
        }
        6 => {
            file.flush().unwrap();
            "flush"
        }
        7 => {
            file.sync().unwrap();
            "sync"
        }
        _ => {
            let mut out = vec![1; len as usize];
            let n = file.read(offset, &mut out).unwrap();
            let start = (offset as usize).min(model.len());
            let want = &model[start..(start + len as usize).min(model.len())];
            assert_eq!(&out[..n], want);
            "read"
        }
    }
}

/// Whether whole chunks, read from a random one to beyond the end, match the model.
fn whole_chunks(file: &File, rng: &mut Rng, model: &[u8]) -> bool {
    let from = (rng.below(model.len() as u64 + 1) as usize) / CHUNK * CHUNK;
    let mut out = vec![0xA5; (model.len() - from).next_multiple_of(CHUNK) + CHUNK];
    let read = file.read_whole_chunks(from as u64, &mut out).unwrap();
    read.is_some_and(|read| out[..read] == model[from..])
}

fn sequences(seeds: std::ops::Range<u64>, steps: u64, largest: u64) {
    for seed in seeds {
        let rng = &mut Rng(seed);
        let (store, context) = (FaultyFile::new(), context());
        let mut file = open(&store, &context);
        let mut model = Vec::new();
        for at in 0..steps {
            let what = match rng.below(12) {
                0 => {
                    file.flush().unwrap();
                    drop(file);
                    file = open(&store, &context);
                    "reopened without a clean record"
                }
                1 => {
                    clean(&file);
                    drop(file);
                    file = open(&store, &context);
                    "reopened clean"
                }
                _ => step(&file, &mut model, rng, largest),
            };
            assert!(read_all(&file).unwrap() == model, "seed {seed}, step {at}: {what}");
            assert!(whole_chunks(&file, rng, &model), "seed {seed}, step {at}: {what}, whole chunks");
        }
    }
}

#[test]
fn random_operations_on_small_files() {
    sequences(0..150, 60, 40_000);
}

#[test]
fn random_operations_across_groups() {
    sequences(1000..1030, 80, 1_500_000);
}

#[test]
fn a_large_file_written_in_pieces_is_flushed_on_the_way() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let rng = &mut Rng(5);
    let data = rng.bytes(1_000_003);
    let mut model = Vec::new();
    for _ in 0..40 {
        file.append(&data).unwrap();
        model.extend_from_slice(&data);
    }
    assert!(store.calls() > 0, "the buffer is bounded");
    assert_eq!(store.syncs(), 0, "new data needs no barrier");
    assert!(read_all(&file).unwrap() == model);
    clean(&file);
    let file = open(&store, &context);
    assert!(read_all(&file).unwrap() == model);
}
