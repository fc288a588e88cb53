//! A modified record sector: no forgery verifies, and any record that a key holder could have written
//! round-trips.
#![no_main]

use crypto::integrity::{Integrity, IntegrityKey};
use format::record::{Between, Claim, KeyId, RECORD, Record, Recovery, Version};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt_fuzz::{Edit, edited};

static KEY: LazyLock<IntegrityKey> =
    LazyLock::new(|| IntegrityKey::new(Integrity::Kmac128, &[1; 32], b"fuzz"));

fuzz_target!(|input: (u8, Vec<Edit>)| {
    let (claim, edits) = input;
    let version = |epoch| Version { epoch, size: 100_000, root: [4; 32] };
    let between = Between { previous: Some(version(7)), barrier: Some(version(6)) };
    let claim = match claim % 3 {
        0 => Claim::Clean,
        1 => Claim::Dirty { base: version(5), between },
        _ => Claim::Recovery(Recovery { base: version(5), limit: 7, unreadable: vec![0, 9] }),
    };
    let written =
        Record { sequence: 3, key: KeyId { generation: 1, salt: [5; 32] }, target: version(8), claim };
    let written = written.encode(&KEY);
    let changed = edited(&written, &edits);
    let Some((head, _)) = changed.split_first_chunk::<{ RECORD - 32 }>() else { return };
    let mut sector = [0; RECORD];
    let len = changed.len().min(RECORD);
    sector[..len].copy_from_slice(&changed[..len]);
    assert_eq!(Record::decode(&sector, &KEY).is_ok(), sector == written);
    sector[RECORD - 32..].copy_from_slice(&KEY.digest(&[], head));
    if let Ok(record) = Record::decode(&sector, &KEY) {
        assert_eq!(record.encode(&KEY), sector);
    }
});
