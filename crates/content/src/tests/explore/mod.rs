//! Explores the effects of failures, kills and power cuts on a file whose program then continues with
//! something else.
//!
//! A `case` is a sequence of operations at the `marks` of a file, with failures and crashes. A `life`
//! runs it on an in-memory store. At every call, `look` crashes and recovers, and recovery may fail and
//! crash as well. The `oracle` knows which contents are allowed. `several` lets files share their memory.
//! `draw` generates cases. `report` runs them on all cores and shortens those that find a violation.

mod case;
mod copies;
mod draw;
mod interleave;
mod life;
mod look;
mod marks;
mod mutants;
mod named;
mod oracle;
mod report;
mod several;
mod tamper;

use draw::{random, short};
use life::Care;
use report::{Contexts, explore};

/// Checks a few instants of a random case.
const GLANCE: Care = Care { instants: 3, cuts: 1, from: 0, depth: 2 };

/// Number of random cases in the sample.
const SAMPLE: u64 = 3_000;

fn all_short() -> Vec<(case::Case, usize)> {
    let mut all = Vec::new();
    short(Contexts::new().of(super::Durability::Strict), |case, from| all.push((case, from)));
    all
}

#[test]
fn random_cases() {
    explore(|seed| (seed < SAMPLE).then(|| (random(seed), GLANCE))).conclude("random cases");
}

#[test]
fn short_cases() {
    let all = all_short();
    let every = 80;
    println!("{} short cases", all.len());
    let care = |from| Care { instants: usize::MAX, cuts: 3, from, depth: 1 };
    let next = |at: u64| all.get(at as usize * every).map(|(case, from)| (case.clone(), care(*from)));
    explore(next).conclude("short cases");
}

#[test]
#[ignore = "takes long: just prove"]
fn all_cases() {
    let all = all_short();
    let care = |from| Care { instants: usize::MAX, cuts: 3, from, depth: 2 };
    let next = |at: u64| all.get(at as usize).map(|(case, from)| (case.clone(), care(*from)));
    explore(next).conclude("all short cases");
    explore(|seed| (seed < 60_000).then(|| (random(seed), GLANCE))).conclude("many random cases");
}

/// `CASE="strict small: append 2; sync" SEED=1 cargo test --release --lib this_case -- --ignored`,
/// perhaps with the `CARE` of a report.
#[test]
#[ignore = "needs a case in the environment"]
fn this_case() {
    let case: case::Case = std::env::var("CASE").unwrap().parse().unwrap();
    let seed = std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap());
    let care = std::env::var("CARE").map_or(Care::ALL, |care| care.parse().unwrap());
    let ran = Contexts::new().run(&case, seed, care);
    println!("{:?}\n{:?}", ran.counts, ran.asked);
    assert!(
        ran.wrong.is_none(),
        "step {}: {}",
        ran.wrong.as_ref().unwrap().step,
        ran.wrong.as_ref().unwrap().text
    );
}
