//! Opening every GPU of the machine, all at once: each takes a while, mostly waiting.

use super::{Fault, GpuEngine, gpu::devices};
use std::thread;

/// Every device by its number: the engine, or why it is none.
///
/// # Errors
/// Why there is no device at all.
pub(super) fn open_all() -> Result<Vec<Result<GpuEngine, Fault>>, Fault> {
    let count = devices()?;
    Ok(thread::scope(|scope| {
        let open = |number| scope.spawn(move || GpuEngine::open(number));
        let threads: Vec<_> = (0..count).map(open).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Fault::OutOfService))).collect()
    }))
}
