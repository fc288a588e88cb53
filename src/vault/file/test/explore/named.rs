//! Sequences that once lost something.

use super::{case::Case, life::Care, report::Contexts};

fn holds(text: &str) {
    let case: Case = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(case.to_string(), text);
    let contexts = Contexts::new();
    for seed in 0..20 {
        if let Some(wrong) = contexts.run(&case, seed, Care::ALL).wrong {
            panic!("step {}: {}\n    seed {seed}: {case}", wrong.step, wrong.text);
        }
    }
}

#[test]
fn a_full_store_and_then_a_cut_back() {
    holds("strict small: append 6; rest; append 3; sync !3x1:nospc; truncate 6; write 0 1; sync");
}

#[test]
fn a_cut_whose_length_fails() {
    holds("strict small: append 6; rest; truncate 3 !4x1:eio; write 0 1; append 2; sync");
}

#[test]
fn a_failed_sync_and_a_power_cut_after_reopening() {
    holds("strict small: append 3; sync !1x1:eio:lost; read 0 1; sync");
}

#[test]
fn a_killed_stream() {
    holds("strict small: append 3; flush; append 3; flush");
}
