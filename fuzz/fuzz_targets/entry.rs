//! Entries decode from any bytes, and encode to the same bytes except for those of empty slots. The
//! current slot is the newest valid one.
#![no_main]

use format::entry::{ENTRY, Entry, SLOT};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: (&[u8], u64, u64)| {
    let (bytes, base, target) = parts;
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    for bytes in entries {
        let entry = Entry::decode(bytes);
        let mut again = [0; ENTRY];
        entry.encode(&mut again);
        assert_eq!(Entry::decode(&again), entry);
        for ((slot, was), is) in entry.0.iter().zip(bytes.chunks(SLOT)).zip(again.chunks(SLOT)) {
            assert_eq!(is, if slot.is_some() { was } else { &[0; SLOT] });
        }
        let counts = |epoch: &u64| *epoch <= base || *epoch == target;
        let newest = entry.0.iter().flatten().map(|slot| slot.epoch).filter(counts).max();
        assert_eq!(entry.current(Some(base), Some(target)).map(|(_, slot)| slot.epoch), newest);
    }
});
