//! Loaded to sealed: encrypts the chunks and computes their tags.

use crate::in_flight::{Ended, Loaded, SealedWrite, Stage, WriteOutcome};
use engine::{Batch, Router};
use metrics::Activity;

impl Stage {
    /// Seals a write if it is loaded.
    pub(super) fn seal(&mut self, router: &Router) {
        *self = match self.take() {
            Stage::Loaded(loaded) => loaded.seal(router),
            other => other,
        };
    }
}

impl Loaded {
    fn seal(self, router: &Router) -> Stage {
        let mut payload = self.gather();
        let run = |batch: &mut Batch| {
            let bytes = batch.jobs.iter().map(|job| job.len).sum();
            metrics::measure(Activity::Batch, bytes, || router.run(batch))
        };
        match payload.batches.iter_mut().try_for_each(run) {
            Ok(()) => Stage::Sealed(SealedWrite { payload }),
            Err(e) => Stage::Ended(Ended { payload, outcome: WriteOutcome::Refused(e.into()) }),
        }
    }
}
