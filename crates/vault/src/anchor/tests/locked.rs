//! The anchor of a vault that is locked and unlocked while the anchor's disk is full.

use super::*;
use crate::{AnchorError, anchor::GENERATION};

fn bring_back(anchor: &Anchor, (config, master): &(VaultConfig, Secret<32>)) -> Result<(), AnchorError> {
    anchor.bring_back(&Owner { config, master })
}

fn has_keys(anchor: &Anchor) -> bool {
    anchor.keys.read().is_some()
}

#[test]
fn a_full_disk_keeps_nobody_from_a_vault_that_has_not_changed() {
    let (file, known) = (FaultyFile::new(), owner());
    let anchor = made(&file, &known);
    anchor.wipe();
    file.fail_from(0, Failure::Errno(libc::ENOSPC));
    bring_back(&anchor, &known).unwrap();
    assert!(has_keys(&anchor));
}

#[test]
fn one_that_cannot_be_written_stays_without_keys() {
    let (file, mut known) = (FaultyFile::new(), owner());
    let anchor = made(&file, &known);
    known.0.outdate(&known.1, 0).unwrap();
    anchor.wipe();
    file.fail_from(0, Failure::Errno(libc::ENOSPC));
    match bring_back(&anchor, &known) {
        Err(AnchorError::File { source, .. }) => assert_eq!(source.raw_os_error(), Some(libc::ENOSPC)),
        other => panic!("{other:?}"),
    }
    assert!(!has_keys(&anchor));
    file.mend();
    bring_back(&anchor, &known).unwrap();
    assert!(has_keys(&anchor));
    assert_eq!(anchor.confirmed().unwrap(), known.0.generation());
}

#[test]
fn another_master_key_is_taken_up_and_no_number_is_lowered() {
    let (file, known) = (FaultyFile::new(), owner());
    let anchor = made(&file, &known);
    anchor.database.write(|writer| writer.set_about(GENERATION, &99_u64.to_be_bytes())).unwrap();
    anchor.take_up(&Owner { config: &known.0, master: &known.1 }).unwrap();
    assert_eq!(anchor.confirmed().unwrap(), 99);
    let other = Secret::new_with(|key| key.fill(9));
    anchor.take_up(&Owner { config: &known.0, master: &other }).unwrap();
    drop(anchor);
    assert!(has_keys(&open(&file, &(known.0, other))));
}
