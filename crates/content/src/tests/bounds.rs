//! A record reported as durable is in the store after every crash, so a keeper never refuses a legitimate
//! state.

use super::*;
use crate::{
    Bound, Bounds, Mismatch, RecordOrder, Refused,
    rules::{Rule, break_rule},
};
use parking_lot::Mutex;

/// Keeps the bound of one file, as an anchor does.
#[derive(Default)]
struct Keeper(Mutex<Option<Bound>>);

impl Bounds for Keeper {
    fn check(&self, found: &Bound) -> Result<(), Error> {
        let order =
            |bound: &Bound| RecordOrder { generation: bound.key.generation, sequence: bound.sequence };
        match &*self.0.lock() {
            Some(kept) if kept.key == found.key && kept != found && found.order() <= kept.order() => {
                let mismatch = Mismatch::Old { found: order(found), confirmed: order(kept) };
                Err(Error::Refused(Refused { place: None, mismatch }))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn note(&self, durable: Bound) {
        let mut kept = self.0.lock();
        // Until something is durable, a crash may leave a file with another salt.
        if kept.is_none_or(|kept| kept.key != durable.key || kept.order() < durable.order()) {
            *kept = Some(durable);
        }
    }
}

const STEPS: u64 = 7;

fn step(file: &Arc<File>, rng: &mut Rng) {
    // Errors are those of the store. Only what became durable counts.
    let _ = match rng.below(STEPS) {
        0 => file.write(rng.below(3) * 4000, &rng.bytes(5000)),
        1 => file.flush(),
        2 | 3 => file.sync(),
        4 => file.truncate(rng.below(9000)),
        5 => file.cleaner().flush().and_then(|step| {
            file.cleaner().sync()?;
            if file.cleaner().settle(step)? {
                file.cleaner().sync()?;
                file.cleaner().finish(step)?;
            }
            Ok(())
        }),
        _ => file.salt(true).map(drop),
    };
}

/// Whether a random program, some of whose calls fail, reaches a crash after which the file is refused.
fn is_refused(seed: u64) -> bool {
    let mut rng = Rng(seed);
    let keeper = Arc::new(Keeper::default());
    let context = Arc::new(Context { bounds: Some(keeper.clone()), ..context_over(Background::default()) });
    let mut store = FaultyFile::new();
    for _ in 0..3 {
        let Ok(mut file) = File::open(store.clone(), context.clone()) else { return true };
        for _ in 0..10 {
            if rng.below(3) == 0 {
                let errno = libc::EIO;
                let failures = [
                    Failure::Errno(libc::ENOSPC),
                    Failure::Errno(errno),
                    Failure::Partial(errno),
                    Failure::Landed(errno),
                    Failure::Lost(errno),
                ];
                store.fail_at(rng.below(6), 1, failures[rng.below(5) as usize]);
            }
            step(&file, &mut rng);
            store.calm();
            if let Some(durable) = file.durable() {
                keeper.note(durable);
            }
            let left = store.snapshot();
            for cut in 0..3 {
                let left = match cut {
                    0 => FaultyFile::killed(&left),
                    _ => FaultyFile::at(&left.power_cut(|_| false, |n| rng.below(n as u64) as usize)),
                };
                if matches!(File::open(left, context.clone()), Err(Error::Refused(_))) {
                    return true;
                }
            }
            if file.failed() {
                match File::open(store.clone(), context.clone()) {
                    Ok(again) => file = again,
                    Err(_) => return false,
                }
            }
        }
        drop(file);
        store = FaultyFile::at(&store.snapshot().power_cut(|_| false, |n| rng.below(n as u64) as usize));
    }
    false
}

#[test]
fn what_is_durable_is_never_refused() {
    for seed in 0..400 {
        assert!(!is_refused(seed), "seed {seed}");
    }
    break_rule(Some(Rule::BoundAfterSync));
    let found = (0..400).find(|seed| is_refused(*seed));
    break_rule(None);
    assert!(found.is_some(), "records that are called durable too early");
}

#[test]
fn a_file_that_was_put_back_is_refused() {
    let keeper = Arc::new(Keeper::default());
    let context = Arc::new(Context { bounds: Some(keeper.clone()), ..context_over(Background::default()) });
    let store = FaultyFile::new();
    let file = open(&store, &context);
    let mut before = None;
    for round in 0..4 {
        file.write(0, &[round; 5000]).unwrap();
        file.sync().unwrap();
        keeper.note(file.durable().unwrap());
        if let Some(before) = before.replace(store.snapshot()) {
            let old = File::open(FaultyFile::at(&before), context.clone());
            assert!(matches!(old, Err(Error::Refused(_))), "round {round}");
        }
    }
}
