//! Committed data survives every failure and crash.

use super::*;
use crate::anchor::database::Database;

const NUMBER: &str = "number";

fn number(database: &Database) -> Option<u64> {
    let bytes = database.read(|reader| reader.about(NUMBER)).unwrap()?;
    Some(u64::from_be_bytes(bytes.try_into().unwrap()))
}

#[test]
fn what_was_written_stays() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let file = FaultyFile::new();
        let database = Database::open(file.clone()).unwrap();
        let mut written = None;
        for round in 0..20 {
            if rng.below(2) == 0 {
                file.fail_at(rng.below(12), 1 + rng.below(2), rng.failure());
            }
            let done = database.write(|writer| writer.set_about(NUMBER, &u64::to_be_bytes(round)));
            file.calm();
            if done.is_ok() {
                written = Some(round);
                assert_eq!(number(&database), written, "seed {seed}, round {round}");
            }
            let left = file.snapshot();
            for _ in 0..3 {
                let cut = left.power_cut(|_| true, |n| rng.below(n as u64) as usize);
                let found = number(&Database::open(FaultyFile::at(&cut)).unwrap());
                assert!(
                    found >= written && found <= Some(round),
                    "seed {seed}, round {round}: {found:?} in place of {written:?}"
                );
            }
        }
    }
}

#[test]
fn a_full_disk_is_told_and_works_again() {
    let file = FaultyFile::new();
    let database = Database::open(file.clone()).unwrap();
    let large = vec![7; 100_000];
    let write = |number: u64| {
        database.write(|writer| {
            writer.set_about("large", &large[number as usize..])?;
            writer.set_about(NUMBER, &number.to_be_bytes())
        })
    };
    write(1).unwrap();
    file.fill(libc::ENOSPC, false);
    // Space that was freed may allow one more write.
    let full = (2..10).find_map(|number| write(number).err()).expect("no room");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    assert!(number(&database).is_some_and(|number| number >= 1));
    file.free();
    write(10).unwrap();
    assert_eq!(number(&database), Some(10));
    let cut = file.snapshot().power_cut(|_| false, |_| 0);
    assert_eq!(number(&Database::open(FaultyFile::at(&cut)).unwrap()), Some(10));
}

#[test]
fn other_files_are_no_anchors() {
    for content in [&b"some text"[..], &[0; 5000], &[0xff; 70_000]] {
        let file = FaultyFile::new();
        file.tamper(|bytes| *bytes = content.to_vec());
        assert!(Database::open(file).is_err());
    }
}
