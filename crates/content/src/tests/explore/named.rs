//! Sequences that once lost data.

use super::{case::Case, life::Care, report::Contexts};

/// The cases of a text. A `?` stands for each of the first calls failing, in each way.
pub(super) fn ways(text: &str) -> impl Iterator<Item = Case> {
    let ways: &[&str] = if text.contains('?') {
        &["nospc", "nospc:page", "eio:sectors1", "eio:landed", "eio:lost"]
    } else {
        &[""]
    };
    let calls = if text.contains('?') { 16 } else { 1 };
    (0..calls).flat_map(|call| ways.iter().map(move |way| (call, way))).map(move |(call, way)| {
        let text = text.replace('?', &format!("!{call}x1:{way}"));
        let case: Case = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(case.to_string(), text);
        case
    })
}

/// Checks that a case passes, starting with operation `from`.
fn holds(from: usize, text: &str) {
    let contexts = Contexts::new();
    for case in ways(text) {
        for seed in 0..crate::testing::cases(2, 10) {
            run(&contexts, &case, seed, Care { from, ..Care::ALL });
        }
    }
}

fn run(contexts: &Contexts, case: &Case, seed: u64, care: Care) {
    if let Some(wrong) = contexts.run(case, seed, care).wrong {
        panic!("step {}: {}\n    seed {seed}: {case}", wrong.step, wrong.text);
    }
}

#[test]
fn a_full_store_then_a_cut_back_and_a_write_elsewhere() {
    holds(4, "strict small: append 6; rest; append 2; sync ?; truncate 6; write 0 1; sync");
    holds(4, "strict small: append 6; sync; append 2; sync ?; truncate 4; write 0 1; sync");
}

#[test]
fn a_cut_that_fails_then_writes() {
    holds(3, "strict small: append 6; rest; truncate 2 ?; sync; write 0 1; append 2; sync");
    holds(3, "strict inline: write 4 8; rest; truncate 5 ?; write 4 5; sync");
}

#[test]
fn a_cut_that_fails_then_nothing_but_a_sync() {
    holds(3, "strict small: append 6; rest; truncate 0 ?; sync");
}

#[test]
fn a_failed_sync_then_a_power_cut_after_reopening() {
    holds(3, "strict small: append 6; rest; write 0 2; sync ?; open; nothing");
    holds(2, "strict small: append 3; sync ?; open; nothing");
}

#[test]
fn a_stream_that_is_killed() {
    holds(0, "strict small: append 3; flush; append 3; flush; append 3; sync");
    holds(0, "strict inline: append 2; sync; write 4 8; flush");
    holds(0, "strict stream: append 70; flush");
}

#[test]
fn a_way_to_rest_that_fails_then_a_cut() {
    holds(4, "strict small: append 6; rest; write 0 1; rest ?; truncate 4; sync");
    holds(4, "strict page: write 4 8; sync; punch 5 6; rest ?; truncate 9; sync");
}

/// Data left past the end by a truncation must be removed before the file grows there.
#[test]
fn a_way_to_rest_that_fails_after_a_cut_then_growth() {
    holds(4, "strict inline: append 2; flush; truncate 0; rest ?; truncate 5; sync");
    holds(4, "strict page: write 4 9; sync; truncate 6; rest ?; truncate 9; sync");
}

#[test]
fn a_growing_end_that_fails_then_a_sync() {
    holds(4, "strict small: append 4; sync; append 1; flush ?; sync");
    holds(4, "strict odd: append 5; sync; append 1; flush ?; write 7 8; sync");
}

/// The tag of a version's last chunk covers its length, so the chunk must be written again when a stream
/// grows the file.
#[test]
fn a_punched_end_then_a_stream_behind_it() {
    let care = Care { from: 3, instants: 6, ..Care::ALL };
    for text in [
        "strict streams: append 4; sync; punch 3 4; write 5 140; nothing",
        "strict streams: append 4; sync; write 5 50; punch 3 4; write 50 140; truncate 3",
    ] {
        ways(text).for_each(|case| run(&Contexts::new(), &case, 0, care));
    }
}
