//! The cost model: what a batch costs on the CPU and on a GPU.
//!
//! A batch goes where it should be done first: as long as it was measured to take, after what the engine has to do
//! already. So each function has a size from which on an idle GPU is quicker than an idle CPU. But the CPU's time is not
//! free. While other threads want the processors (programs that copy to and from the mount, the threads that answer
//! them), they lose what the batch takes from them, and the batch is done later since it has to share with them. So the
//! CPU's time is raised by a price: nothing on an idle machine; on a busy one so much that the CPU gets only what a GPU
//! has no room for.

/// What the CPU's time is raised by, in nanoseconds, for a batch on which all threads together spend `work`, while
/// others want the share `pressure` of the `processors`. Where `n` others share `p` processors fairly with its `p` threads,
/// the batch takes n/p longer than alone, and they lose n²/p of the time that it takes alone. That counts twice, since
/// they also lose what was in the caches.
pub(super) fn price(work: f64, pressure: f64, processors: usize) -> u64 {
    (2.0 * work * pressure * (pressure + 1.0 / processors.max(1) as f64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_little_for_few_others_and_much_for_many() {
        // 16 milliseconds of work: one on 16 idle processors.
        let price = |others: f64| price(16e6, others / 16.0, 16) as f64 / 1e6;
        assert_eq!((price(0.0), price(1.0), price(4.0)), (0.0, 0.25, 2.5));
        assert_eq!(price(16.0), 34.0);
    }
}
