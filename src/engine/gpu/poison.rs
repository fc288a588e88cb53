//! A switch for tests on a real device: the environment variable `WARPCRYPT_GPU_POISON` makes the device fail at
//! every `N`th batch, in the middle of whatever else it is doing. `fault:N` is a kernel that faults: the context is of
//! no more use. `refuse:N` is a call that fails, and nothing else with it.

use super::{
    device::Device,
    driver::{Context, DriverError, Stream},
    fault::Fault,
    kernels::Kernels,
};
use crate::engine::Op;
use std::{
    env,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// No address on any device: neither mapped nor aligned.
const NOWHERE: u64 = 1;

/// More threads than any device has in a block.
const TOO_MANY: u32 = 1 << 16;

/// Counts batches and has the device fail at some of them.
pub(super) struct Poison {
    faults: bool,
    every: NonZero<u64>,
    batches: AtomicU64,
}

impl Poison {
    /// As the environment variable says; `None` without it.
    pub fn from_environment() -> Option<Self> {
        let text = env::var("WARPCRYPT_GPU_POISON").ok()?;
        let (kind, every) = text.split_once(':')?;
        let faults = ["refuse", "fault"].iter().position(|known| *known == kind)? == 1;
        Some(Poison { faults, every: every.parse().ok()?, batches: AtomicU64::new(0) })
    }

    /// Counts a batch, and has the device fail if its turn has come.
    ///
    /// # Errors
    /// What the driver says of a call that it refuses. A fault shows later.
    pub fn count(&self, device: &Device) -> Result<(), Fault> {
        if (self.batches.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every.get()) {
            log::warn!("gpu: made to fail on purpose, as WARPCRYPT_GPU_POISON asks for");
            return device.process.poison(self.faults);
        }
        Ok(())
    }
}

/// Launches a kernel whose pointers all lead nowhere; unless it shall fault, on more threads than there can be.
///
/// # Errors
/// What the driver says.
pub(super) fn fail(context: &Arc<Context>, kernels: &Kernels, faults: bool) -> Result<(), DriverError> {
    let stream = Stream::new(context)?;
    let (kernel, mut geometry) = kernels.choose(Op::Seal, 0, 1, false);
    if !faults {
        geometry.threads = TOO_MANY;
    }
    // SAFETY: breaks the kernel's contract: the device's memory protection stops it at its first access, before
    // it has read or written anything. No kernel has more parameters than this, and the count among them is 1
    // at whichever place.
    unsafe { stream.launch(kernel, geometry, &mut [NOWHERE; 16]) }
}
