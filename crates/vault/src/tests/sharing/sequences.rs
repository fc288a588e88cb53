//! Random operations of three processes, one at a time, some of which are killed, checked against a
//! model. Data closed before a file is opened is visible, a read returns only data that was written,
//! only one process writes at a time, and nothing confirmed is lost.

use super::{
    super::super::sharing::SharingRule,
    Broken, Draw, fails_without,
    world::{Losses, World},
};
use content::LeaseRule;
use store::like_nfs;

/// Number of operations in a sequence.
const STEPS: usize = 60;

fn sequence(seed: u64) {
    sequence_with(Losses::None, seed);
}

fn sequence_with(losses: Losses, seed: u64) {
    let mut draw = Draw::new(seed);
    let mut world = World::new(losses);
    for _ in 0..STEPS {
        world.step(&mut draw);
    }
    world.end(&mut draw);
}

/// `SHARING_SEQUENCES` sets the number of sequences; `SHARING_SEED` selects a single one.
#[test]
fn three_processes_see_of_one_another_what_they_should() {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("a number"));
    let seeds = match number("SHARING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SHARING_SEQUENCES").unwrap_or(300),
    };
    for seed in seeds {
        // A third of the sequences is enough to cover the differences of NFS.
        let is_nfs = seed % 3 == 0;
        let losses = match seed / 3 % 4 {
            0 | 1 => Losses::None,
            2 => Losses::ForGood,
            _ => Losses::UntilUnlocked,
        };
        let run = || if is_nfs { sequence_like_nfs(losses, seed) } else { sequence_with(losses, seed) };
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("SHARING_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Behaves like NFS: an open file stays in its directory after its removal, and a removed directory is
/// stale.
fn sequence_like_nfs(losses: Losses, seed: u64) {
    like_nfs(true);
    let done = std::panic::catch_unwind(|| sequence_with(losses, seed));
    like_nfs(false);
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn sequences_find_every_rule_of_files_that_is_broken() {
    for rule in [
        LeaseRule::LeaseBeforeChange,
        LeaseRule::LookUnderLease,
        LeaseRule::LookAtOpen,
        LeaseRule::CleanBeforeGivingBack,
        LeaseRule::ReadAgainLocked,
        LeaseRule::RecoverLocked,
    ] {
        assert!(fails_without(rule, || (0..300).for_each(sequence)), "{rule:?} broken, and nothing found");
    }
}

#[test]
fn sequences_find_every_rule_of_lost_leases_that_is_broken() {
    for rule in [
        LeaseRule::FailWithoutLease.into(),
        LeaseRule::CheckLeaseAtOpen.into(),
        Broken::from(SharingRule::OpenAnew),
    ] {
        let losses = |seed| if seed % 2 == 0 { Losses::ForGood } else { Losses::UntilUnlocked };
        let found = fails_without(rule, || (0..300).for_each(|seed| sequence_with(losses(seed), seed)));
        assert!(found, "{rule:?} broken, and nothing found");
    }
}

#[test]
fn sequences_find_an_id_file_that_stays_in_its_directory() {
    assert!(
        fails_without(SharingRule::MoveIdAside, || (0..300)
            .for_each(|seed| sequence_like_nfs(Losses::None, seed))),
        "nothing found"
    );
}
