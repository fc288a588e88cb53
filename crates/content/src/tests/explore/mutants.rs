//! Breaks each rule of the commit protocol in turn. The explorer must find a violation.

use super::{
    super::super::rules::{ALL, Rule, break_rule},
    GLANCE, SAMPLE, all_short,
    case::Case,
    draw::random,
    life::{Care, Violation},
    named::ways,
    report::Contexts,
};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// For each rule, a short case that detects when it is broken. For `?` see `named`.
const SHORTEST: [(Rule, &str); 40] = [
    (Rule::OneSlotAboveBase, "strict small: append 1; sync; write 0 1; flush; write 0 1; flush"),
    (Rule::DirtyRecordFirst, "strict small: append 4; rest; append 3; flush"),
    (Rule::KeepBaseSlot, "strict small: append 1; sync; write 0 1; sync"),
    (Rule::SyncBeforeOverwrite, "strict small: append 4; sync; write 1 4; sync"),
    (Rule::LengthBeforeSync, "strict small: append 4; sync; append 1; sync"),
    (Rule::EraseWhereGrown, "strict inline: append 2; flush; truncate 0; truncate 5; sync"),
    (Rule::EpochPerFlush, "strict small: truncate 8; flush; append 2; sync"),
    (Rule::EraseLeftovers, "strict small: append 6; sync; append 1; flush !2x1:eio:sectors3; truncate 2"),
    (Rule::FlushAfterFailure, "strict small: append 6; sync; truncate 0 !0x1:nospc:page; sync"),
    (Rule::CutBeforeGrowth, "strict page: write 4 9; sync; truncate 0 !2x1:eio; truncate 7"),
    (Rule::SyncBeforeBase, "strict small: append 4; sync; write 0 1; sync"),
    (Rule::RecordAfterCommit, "strict small: append 4; sync"),
    (Rule::FinishOverwrites, "strict small: append 6; rest; write 0 4; flush !5x1:nospc; sync"),
    (Rule::EndBeforeGrowth, "strict streams: append 4; sync; punch 3 4; write 5 140; nothing"),
    (Rule::CommitBeforeCut, "strict small: append 6; rest; write 3 5; flush; truncate 4"),
    (Rule::SyncBeforeCut, "strict small: append 6; sync; truncate 2"),
    (Rule::CutHasHappened, "strict small: append 6; sync; truncate 2 !4x1:nospc; read 0 2"),
    (Rule::RetagAtCut, "strict small: append 4; sync; truncate 2"),
    (Rule::SyncBeforeClean, "strict small: append 4; rest"),
    (Rule::EraseOlderSlots, "strict small: append 4; sync; append 3; rest"),
    (Rule::NodesBeforeClean, "strict inline: write 4 9; rest"),
    (Rule::ExactLength, "strict small: append 9; sync; truncate 2 !4x1:nospc; rest"),
    (Rule::CleanTwice, "strict small: append 1; rest"),
    (Rule::BurnSequence, "strict small: append 2; rest ?; append 1; sync"),
    (Rule::StopAfterFailedSync, "strict small: append 2; sync !4x1:nospc; append 1; sync"),
    (Rule::BaseRecordTwice, "strict small: append 4; sync"),
    (Rule::NamePrevious, "strict small: truncate 8; flush; append 2; sync"),
    (Rule::NameBarrier, "strict small: append 3; sync; write 0 1; flush; append 2; flush; append 2; flush"),
    (Rule::OnlyProven, "strict small: append 4; sync; append 2; flush"),
    (Rule::VerifyData, "strict small: append 2; sync"),
    (Rule::ProvenHoles, "strict small: append 4; flush"),
    (Rule::RewriteSlots, "strict inline: append 2; sync; write 7 9; sync !4x1:eio:lost"),
    (
        Rule::RewriteEnd,
        "strict odd: write 7 10; sync !2x1:nospc; punch 5 9 !3x1000:quota:sectors6; rest @19:kill; append 3",
    ),
    (Rule::RewriteData, "strict small: append 4; flush; rest !0x1:eio:lost"),
    (Rule::EraseRejected, "strict small: append 4; sync; append 3; flush"),
    (Rule::RecordBeforeErasing, "strict small: append 4; sync; append 3; flush"),
    (Rule::VerifyAtRecovery, "strict small: append 4; sync; append 3; flush"),
    (Rule::LimitOfRecovery, "strict inline: truncate 9; sync; write 5 9; flush"),
    (Rule::TakeInLoaded, "strict groups: append 9; rest; drop; read 4 5; read 6 7; write 6 7; sync"),
    (
        Rule::FailureVoidsCleanStep,
        "strict small: append 9; rest; write 0 9; rest-flush; rest-settle; truncate 4 ?; rest-finish",
    ),
];

/// Maximum runs of a short case.
const SEEDS: u64 = 400;

struct FoundWindow {
    case: Case,
    seed: u64,
    care: Care,
    violation: Violation,
}

/// Runs cases with the rule broken until one fails that passes with the rule intact, or until `budget`
/// states were checked.
fn hunt(
    rule: Rule,
    contexts: &Contexts,
    cases: impl Iterator<Item = (Case, u64, Care)>,
    budget: u64,
) -> (Option<FoundWindow>, u64) {
    let mut states = 0;
    for (case, seed, care) in cases {
        if states > budget {
            break;
        }
        break_rule(Some(rule));
        let ran = contexts.run(&case, seed, care);
        break_rule(None);
        states += ran.counts.states;
        let Some(violation) = ran.wrong else { continue };
        if contexts.run(&case, seed, care).wrong.is_none() {
            return (Some(FoundWindow { case, seed, care, violation }), states);
        }
    }
    (None, states)
}

/// The short cases of a rule.
fn directed(rule: Rule) -> impl Iterator<Item = (Case, u64, Care)> {
    let text = SHORTEST.iter().find(|(of, _)| *of == rule).map_or("strict small: nothing", |(_, text)| text);
    let all: Vec<Case> = ways(text).collect();
    let seeds = SEEDS.div_ceil(all.len() as u64).max(6);
    (0..seeds).flat_map(move |seed| all.clone().into_iter().map(move |case| (case, seed, Care::ALL)))
}

/// Random cases, mixed with short ones.
fn anything(all: &[(Case, usize)]) -> impl Iterator<Item = (Case, u64, Care)> {
    (0..u64::MAX).map(|seed| {
        if seed % 2 == 0 {
            return (random(seed), seed, GLANCE);
        }
        let (case, from) = &all[(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % all.len()];
        (case.clone(), seed, Care { instants: usize::MAX, cuts: 3, from: *from, depth: 2 })
    })
}

/// Hunts for each rule on all cores and prints the results. Panics if a broken rule is not found.
fn each_rule(rules: &[Rule], hunt: impl Fn(Rule, &Contexts) -> (Option<FoundWindow>, u64) + Sync) {
    let (at, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let contexts = Contexts::new();
        while let Some(&rule) = rules.get(at.fetch_add(1, Ordering::Relaxed)) {
            let start = std::time::Instant::now();
            let (found, states) = hunt(rule, &contexts);
            let seconds = start.elapsed().as_secs_f64();
            match found {
                Some(FoundWindow { case, seed, violation, .. }) => println!(
                    "| {rule:?} | `{case}` | {} | {states} | seed {seed}, {seconds:.1} s: {}",
                    violation.class(),
                    violation.text
                ),
                None => {
                    println!("| {rule:?} | nothing | | {states} | {seconds:.1} s");
                    missed.lock().push(rule);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner();
    assert!(missed.is_empty(), "nothing goes wrong without {missed:?}");
}

#[test]
fn short_cases_find_each_broken_rule() {
    each_rule(&ALL, |rule, contexts| hunt(rule, contexts, directed(rule), u64::MAX));
}

/// A failure between two steps, at the right call, is found without a dedicated case.
#[test]
fn the_sample_finds_what_a_failed_cut_spoils() {
    let rules = [Rule::FailureVoidsCleanStep];
    each_rule(&rules, |rule, contexts| {
        hunt(rule, contexts, (0..SAMPLE).map(|seed| (random(seed), seed, GLANCE)), u64::MAX)
    });
}

/// `RULE=KeepBaseSlot BUDGET=1000000` selects a rule and the number of states to check for each.
#[test]
#[ignore = "takes long: just prove"]
fn any_cases_find_each_broken_rule() {
    let all = all_short();
    let budget = std::env::var("BUDGET").map_or(1_000_000, |states| states.parse().unwrap());
    let only = std::env::var("RULE").unwrap_or_default();
    let rules: Vec<Rule> = ALL
        .into_iter()
        .filter(|rule| only.is_empty() || only.split(',').any(|o| format!("{rule:?}") == o))
        .collect();
    each_rule(&rules, |rule, contexts| {
        let (found, states) = hunt(rule, contexts, anything(&all), budget);
        let Some(FoundWindow { case, seed, care, violation }) = found else {
            let (found, more) = hunt(rule, contexts, directed(rule), u64::MAX);
            return (found, states + more);
        };
        break_rule(Some(rule));
        let (case, care, violation) = contexts.shorten(case, seed, care, violation);
        break_rule(None);
        (Some(FoundWindow { case, seed, care, violation }), states)
    });
}

/// `RULES=KeepBaseSlot,RetagAtCut CASES='strict small: append 2; sync|…'` shows which cases find which
/// rule.
#[test]
#[ignore = "needs cases in the environment"]
fn these_cases_find() {
    let (rules, cases) = (std::env::var("RULES").unwrap(), std::env::var("CASES").unwrap());
    let contexts = Contexts::new();
    for rule in ALL.into_iter().filter(|rule| rules.split(',').any(|name| name == format!("{rule:?}"))) {
        for text in cases.split('|') {
            let mut found = Vec::new();
            let mut classes = std::collections::BTreeSet::new();
            let mut runs = 0;
            for case in ways(text) {
                for seed in 0..20 {
                    runs += 1;
                    let one = std::iter::once((case.clone(), seed, Care::ALL));
                    if let (Some(hit), _) = hunt(rule, &contexts, one, u64::MAX) {
                        classes.insert(hit.violation.class());
                        found.push(format!("{} /{seed}", hit.case));
                    }
                }
            }
            println!("{rule:?} {text}: {} of {runs}: {classes:?} {:?}", found.len(), found.first());
        }
    }
}
