//! The contents of a recovery record: the lost chunks, and the choice of slots, however far recovery got.

use super::*;
use crate::{
    Rebuilt,
    rules::{Rule, break_rule},
};
use format::{
    entry::{ENTRY, Entry},
    record::MOST_UNREADABLE,
};

const CHUNK: usize = 4096;
/// Two groups.
const CHUNKS: usize = 60;

fn entry_at(chunk: usize) -> usize {
    let chunk = chunk as u64;
    layout::entries_offset(layout::group_of(chunk)) as usize + layout::place_in_group(chunk) * ENTRY
}

/// A flush over all chunks, interrupted by a kill, whose base can no longer be proven. `damaged` chunks
/// are damaged.
fn left(context: &Arc<Context>, content: &[u8], damaged: usize) -> Arc<FaultyFile> {
    let store = FaultyFile::new();
    let file = open(&store, context);
    file.write(0, &[1; CHUNKS * CHUNK]).unwrap();
    file.sync().unwrap();
    file.write(0, content).unwrap();
    file.flush().unwrap();
    drop(file);
    store.tamper(|bytes| {
        let at = entry_at(CHUNKS - 1);
        let entry = bytes[at..at + ENTRY].first_chunk_mut().unwrap();
        let Entry(mut slots) = Entry::decode(entry);
        let newest = slots.iter().flatten().map(|slot| slot.epoch).max();
        slots.iter_mut().for_each(|slot| *slot = slot.filter(|slot| Some(slot.epoch) == newest));
        Entry(slots).encode(entry);
        for chunk in 0..damaged {
            bytes[layout::chunk_offset(chunk as u64 + 1) as usize] ^= 1;
        }
    });
    FaultyFile::at(&store.snapshot())
}

/// Whether all chunks can be read except the damaged ones, which start at chunk 1.
fn reads(file: &Arc<File>, content: &[u8], damaged: usize) -> bool {
    file.size() == content.len() as u64
        && content.chunks(CHUNK).enumerate().all(|(chunk, want)| {
            let mut out = vec![0; CHUNK];
            match file.read((chunk * CHUNK) as u64, &mut out) {
                Ok(_) => !(1..=damaged).contains(&chunk) && out == want,
                Err(_) => (1..=damaged).contains(&chunk),
            }
        })
}

/// Recovers such a file, then recovers it again after a crash at each call of the first recovery.
fn recover_twice(damaged: usize) -> Result<(), String> {
    let (context, content) = (context(), Rng(1).bytes(CHUNKS * CHUNK));
    let store = left(&context, &content, damaged);
    store.record();
    let file = open(&store, &context);
    assert!(reads(&file, &content, damaged) && file.is_clean(), "{damaged}");
    let states = store.recorded();
    assert!(states.len() > 4, "{}", states.len());
    for (call, state) in states.iter().enumerate() {
        for store in [killed(state), FaultyFile::at(&state.power_cut(|_| false, |_| 0))] {
            let again =
                File::open(store.clone(), context.clone()).map_err(|e| format!("call {call}: {e}"))?;
            if !reads(&again, &content, damaged) || !again.is_clean() {
                return Err(format!("call {call}: other content"));
            }
            assert!(reads(&open(&store, &context), &content, damaged), "{damaged}, call {call}, clean");
        }
    }
    Ok(())
}

#[test]
fn a_recovery_that_is_cut_short_comes_to_the_same_with_chunks_that_are_lost() {
    for damaged in [0, 3, MOST_UNREADABLE] {
        assert_eq!(recover_twice(damaged), Ok(()), "{damaged} lost");
    }
    break_rule(Some(Rule::NameUnreadable));
    let found = recover_twice(3);
    break_rule(None);
    assert!(found.is_err());
}

#[test]
fn a_file_with_more_lost_chunks_than_can_be_named_is_only_read_until_it_is_repaired() {
    let (context, content) = (context(), Rng(1).bytes(CHUNKS * CHUNK));
    let damaged = MOST_UNREADABLE + 1;
    let store = left(&context, &content, damaged);
    let (before, calls) = (store.bytes(), store.calls());
    let file = open(&store, &context);
    assert!(reads(&file, &content, damaged) && file.failed());
    assert!(file.write(0, b"x").is_err() && file.truncate(0).is_err() && file.sync().is_err());
    assert!(reads(&file, &content, damaged));
    assert!(store.calls() == calls && store.bytes() == before, "nothing is written");
    drop(file);
    let repaired = crate::rebuild(store.clone(), context.clone(), || Ok(())).unwrap();
    assert_eq!(repaired, Rebuilt::Salvaged);
    let file = open(&store, &context);
    assert!(reads(&file, &content, damaged) && file.is_clean());
    file.write(CHUNK as u64, &content[CHUNK..2 * CHUNK]).unwrap();
    file.sync().unwrap();
}
