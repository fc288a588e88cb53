//! The cost model: what a batch costs on the CPU and on a GPU.
//!
//! A batch goes to the engine that should finish it first: its measured time, after the work that the
//! engine already has. So each function has a size from which an idle GPU is faster than an idle CPU. But
//! the CPU's time is not free. Other threads may want the processors: programs that copy to and from the
//! mount, and the threads that serve them. They lose the time that the batch takes, and the batch itself
//! finishes later because it shares with them. So a price is added to the CPU's time. It is zero on an idle
//! machine; on a busy one it is so high that the CPU gets only the batches that the GPUs have no room for.

/// Nanoseconds added to the CPU's time for a batch that costs `work` over all threads together, while
/// others want the share `pressure` of the `processors`. If `n` other threads share `p` processors fairly
/// with the batch's `p` threads, the batch takes n/p longer than alone, and they lose n²/p of the time that
/// it takes alone. The sum counts twice, since they also lose their cache contents.
pub(super) fn price(work: f64, pressure: f64, processors: usize) -> u64 {
    (2.0 * work * pressure * (pressure + 1.0 / processors.max(1) as f64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_little_for_few_others_and_much_for_many() {
        // 16 milliseconds of work: 1 ms on 16 idle processors.
        let price = |others: f64| price(16e6, others / 16.0, 16) as f64 / 1e6;
        assert_eq!((price(0.0), price(1.0), price(4.0)), (0.0, 0.25, 2.5));
        assert_eq!(price(16.0), 34.0);
    }
}
