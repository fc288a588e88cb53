//! Entries from any bytes decode, and what they decode to survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpcrypt::format::entry::{ENTRY, Entry};

fuzz_target!(|bytes: &[u8]| {
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    for bytes in entries {
        let entry = Entry::decode(bytes);
        let mut again = [0; ENTRY];
        entry.encode(&mut again);
        assert_eq!(Entry::decode(&again), entry);
    }
});
