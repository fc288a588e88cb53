//! Runs many cases on all cores and reports the violations.

use super::{
    super::super::{Context, Durability},
    case::{Case, Step},
    life::{self, Care, Ran, Violation},
    look::{Counts, context},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

/// Number of cases of each class that are shortened.
const SHORTENED: u64 = 3;

/// The violations of a class.
struct FoundWindow {
    times: u64,
    shortest: Case,
    seed: u64,
    care: Care,
    violation: Violation,
}

/// The result of many runs.
pub(super) struct Report {
    start: Instant,
    counts: Counts,
    found: BTreeMap<String, FoundWindow>,
}

/// The contexts of a thread.
pub(super) struct Contexts([[Arc<Context>; 2]; 2]);

impl Contexts {
    pub(super) fn new() -> Self {
        let pair = |durability| [context(durability), context(durability)];
        Contexts([pair(Durability::Strict), pair(Durability::Relaxed)])
    }

    pub(super) fn of(&self, durability: Durability) -> &[Arc<Context>; 2] {
        &self.0[usize::from(durability == Durability::Relaxed)]
    }

    /// Runs a case. A panic counts as a violation.
    pub(super) fn run(&self, case: &Case, seed: u64, care: Care) -> Ran {
        let run = || life::run(case, self.of(case.durability), seed, care);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map_or("for some reason", String::as_str);
            let wrong = Some(Violation { step: 0, text: format!("panics: {text}") });
            Ran { counts: Counts::default(), asked: Vec::new(), wrong }
        })
    }

    /// Removes everything from the case that its violation does not need.
    /// Tries each shorter case with the care that found the violation, and with all.
    pub(super) fn shorten(
        &self,
        case: Case,
        seed: u64,
        care: Care,
        violation: Violation,
    ) -> (Case, Care, Violation) {
        let class = violation.class();
        let still = |case: &Case, care: Care| {
            let wrong = self.run(case, seed, care).wrong?;
            (wrong.class() == class).then(|| (case.clone(), care, wrong))
        };
        let mut best = (case, care, violation);
        loop {
            let next = shorter(&best.0, best.1)
                .into_iter()
                .find_map(|(case, care)| still(&case, care).or_else(|| still(&case, Care::ALL)));
            let Some(next) = next else { return best };
            best = next;
        }
    }
}

/// All variants of the case with one element removed. The first operation to check stays the same.
fn shorter(case: &Case, care: Care) -> Vec<(Case, Care)> {
    let without = |at: usize, change: fn(&mut Vec<Step>, usize)| {
        let mut shorter = case.clone();
        change(&mut shorter.steps, at);
        let removed = usize::from(shorter.steps.len() < case.steps.len() && at < care.from);
        (shorter, Care { from: care.from - removed, ..care })
    };
    let changes: [fn(&mut Vec<Step>, usize); 3] = [
        |steps, at| _ = steps.remove(at),
        |steps, at| steps[at].fault = None,
        |steps, at| steps[at].crash = None,
    ];
    let all = (0..case.steps.len()).rev().flat_map(move |at| changes.map(|change| without(at, change)));
    all.filter(|(shorter, _)| shorter != case && !shorter.steps.is_empty()).collect()
}

impl Report {
    fn note(&mut self, shortest: Case, seed: u64, care: Care, violation: Violation) {
        let found = self.found.entry(violation.class()).or_insert_with(|| FoundWindow {
            times: 0,
            shortest: shortest.clone(),
            seed,
            care,
            violation: violation.clone(),
        });
        found.times += 1;
        if shortest.steps.len() < found.shortest.steps.len() {
            (found.shortest, found.seed, found.care, found.violation) = (shortest, seed, care, violation);
        }
    }

    /// Prints the statistics. Panics if violations were found.
    pub(super) fn conclude(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        println!(
            "{what}: {:?} in {seconds:.1} s, {:.0} states/s",
            self.counts,
            self.counts.states as f64 / seconds
        );
        let mut all: Vec<(&String, &FoundWindow)> = self.found.iter().collect();
        all.sort_by_key(|(_, found)| std::cmp::Reverse(found.times));
        let mut text = String::new();
        for (_, FoundWindow { times, shortest, seed, care, violation }) in &all {
            let _ = write!(
                text,
                "\n{times}x step {}: {}\n    CARE='{care}' SEED={seed} CASE='{shortest}'",
                violation.step, violation.text
            );
        }
        assert!(all.is_empty(), "{what}: {} classes of violations{text}", all.len());
    }
}

/// Runs the cases that `next` returns for numbers from 0 on, on all cores, until it returns `None`.
pub(super) fn explore(next: impl Fn(u64) -> Option<(Case, Care)> + Sync) -> Report {
    let report =
        Mutex::new(Report { start: Instant::now(), counts: Counts::default(), found: BTreeMap::new() });
    let number = AtomicU64::new(0);
    let work = || {
        let contexts = Contexts::new();
        loop {
            let seed = number.fetch_add(1, Ordering::Relaxed);
            let Some((case, care)) = next(seed) else { return };
            let ran = contexts.run(&case, seed, care);
            report.lock().counts.add(&ran.counts);
            let Some(violation) = ran.wrong else { continue };
            let times = report.lock().found.get(&violation.class()).map_or(0, |found| found.times);
            let (case, care, violation) = if times < SHORTENED {
                contexts.shorten(case, seed, care, violation)
            } else {
                (case, care, violation)
            };
            report.lock().note(case, seed, care, violation);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    report.into_inner()
}
