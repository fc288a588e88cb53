//! A record sector from any bytes: no forgery verifies, and an authentic one reads back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use warpcrypt::{
    crypto::mac::{Integrity, MacKey},
    format::record::{RECORD, Record},
};

static KEY: LazyLock<MacKey> = LazyLock::new(|| MacKey::new(Integrity::Kmac128, &[1; 32], b"fuzz"));

fuzz_target!(|bytes: &[u8]| {
    let Some((head, _)) = bytes.split_first_chunk::<{ RECORD - 32 }>() else { return };
    let mut sector = [0; RECORD];
    sector[..RECORD - 32].copy_from_slice(head);
    assert!(Record::decode(&sector, &KEY).is_err());
    sector[RECORD - 32..].copy_from_slice(&KEY.digest(&[head]));
    if let Ok(record) = Record::decode(&sector, &KEY) {
        assert_eq!(record.encode(&KEY), sector);
    }
});
