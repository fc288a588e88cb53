//! The choice between the CPU and a GPU for one batch.
//!
//! A batch goes where it is expected to be done first, after what the engine has to do already. But the CPU's time is
//! not free: while others want the processors (programs that copy to and from the mount, the threads that answer
//! them), they lose what the batch takes from them, and the batch is done later since it has to share with them. So
//! the CPU's offer is raised by a price: nothing on an idle machine; on a busy one so much that the CPU gets only what
//! a GPU has no room for.

#[cfg(test)]
mod model;

/// Of batches of one class, the 4th, the 16th, the 64th and then each of this number goes to the second best
/// engine, if it may take twice as long there at most: else an engine that was slow for a while would be
/// thought slow for good.
const TRIAL: u32 = 256;

/// What an engine offers for a batch, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// When it should be done, after all that the engine has been given.
    pub ends: u64,
    /// When it would be if it took as long as the last one of its class.
    pub at_last: u64,
    /// Whether the engine has nothing else to do.
    pub idle: bool,
}

impl Offer {
    /// Both times later.
    pub fn raised(self, by: u64) -> Self {
        Offer { ends: self.ends.saturating_add(by), at_last: self.at_last.saturating_add(by), ..self }
    }
}

/// What the CPU's offer is raised by, in nanoseconds, for a batch on which all threads together spend `work`, while
/// others want the share `others` of the `processors`. Where `n` others share `p` processors fairly with its `p` threads,
/// the batch takes n/p longer than alone, and they lose n²/p of the time that it takes alone: that counts twice, since
/// they lose what was in the caches besides.
pub(super) fn price(work: f64, others: f64, processors: usize) -> u64 {
    (2.0 * work * others * (others + 1.0 / processors.max(1) as f64)) as u64
}

/// Whether the second of two engines gets a batch, the `number`th of its class. An engine that has just been plainly
/// quicker than the better one is expected to be gets the next one too, until it is clear what it takes.
pub(super) fn takes_second(first: Offer, second: Offer, number: u32) -> bool {
    if second.ends < first.ends {
        return !is_tried(second, first, number);
    }
    is_tried(first, second, number)
}

/// Whether the worse engine is given a batch to see how long it takes.
fn is_tried(better: Offer, worse: Offer, number: u32) -> bool {
    let due = number.is_multiple_of(TRIAL) || [4, 16, 64].contains(&number);
    worse.idle && (worse.at_last < better.ends / 10 * 9 || due && worse.ends / 2 < better.ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(ends: u64) -> Offer {
        Offer { ends, at_last: ends, idle: true }
    }

    #[test]
    fn the_sooner_end_wins() {
        assert!(takes_second(offer(100), offer(90), 3));
        assert!(!takes_second(offer(90), offer(100), 3));
        assert!(!takes_second(offer(100), offer(90).raised(50), 3));
    }

    #[test]
    fn a_price_is_little_for_few_others_and_much_for_many() {
        // 16 milliseconds of work: one on 16 idle processors.
        let price = |others: f64| price(16e6, others / 16.0, 16) as f64 / 1e6;
        assert_eq!((price(0.0), price(1.0), price(4.0)), (0.0, 0.25, 2.5));
        assert_eq!(price(16.0), 34.0);
    }

    #[test]
    fn the_worse_engine_is_tried_now_and_then_unless_it_is_busy_or_far_worse() {
        let tried =
            |worse: Offer| (1..=1024).filter(|number| takes_second(offer(100), worse, *number)).count();
        assert_eq!(tried(offer(150)), 7, "4, 16, 64, 256, 512, 768, 1024");
        assert_eq!(tried(offer(210)), 0);
        assert_eq!(tried(Offer { idle: false, ..offer(150) }), 0);
        // The same the other way round.
        assert_eq!((1..=1024).filter(|number| !takes_second(offer(150), offer(100), *number)).count(), 7);
    }

    #[test]
    fn one_that_surprised_is_tried_again() {
        let quicker = Offer { ends: 150, at_last: 80, idle: true };
        assert!(takes_second(offer(100), quicker, 3) && !takes_second(quicker, offer(100), 3));
        assert!(!takes_second(offer(100), Offer { idle: false, ..quicker }, 3));
        assert!(!takes_second(offer(100), quicker.raised(30), 3));
    }
}
