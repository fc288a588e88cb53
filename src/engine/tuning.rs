//! Which way pieces go fastest on a device: each is forced in turn and timed.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, GpuEngine, Op, Ways, measure,
    profile::{Curve, Function, LARGEST},
};
use crate::crypto::{chunk::CHUNK, cipher::Cipher, mac::Integrity};

/// Those that are timed: a fast cipher and a slow one.
const CIPHERS: [Cipher; 2] = [Cipher::Aes256, Cipher::Kuznyechik];

/// The ways with which batches of 64 KiB to 64 MiB are done soonest on an idle device, sealing and opening with both
/// ciphers and KMAC128. About a second.
///
/// # Errors
/// If an engine fails.
pub(super) fn ways(gpu: &GpuEngine, cpu: &CpuEngine, pool: &BufferPool) -> Result<Ways, EngineError> {
    let mut timed = Vec::new();
    for cipher in CIPHERS {
        for op in Op::ALL {
            let function = Function { cipher, integrity: Integrity::Kmac128, op };
            let mut curves = Vec::with_capacity(Ways::FORCED.len());
            for ways in Ways::FORCED {
                curves.push(measure::curve(&Forced { gpu, ways }, cpu, function, LARGEST, pool)?);
            }
            timed.extend(side_by_side(&curves));
        }
    }
    Ok(Ways::fastest(&timed))
}

/// Chunks, and the nanoseconds of each curve, for the sizes that all have.
fn side_by_side(curves: &[Curve]) -> Vec<(usize, [u64; 3])> {
    let [direct, wide, narrow] = curves else { return Vec::new() };
    let points = direct.points.iter().zip(&wide.points).zip(&narrow.points);
    points.map(|((direct, wide), narrow)| (direct.0 / CHUNK, [direct.1, wide.1, narrow.1])).collect()
}

/// The device, all pieces going these ways.
struct Forced<'a> {
    gpu: &'a GpuEngine,
    ways: Ways,
}

impl Engine for Forced<'_> {
    fn name(&self) -> &str {
        self.gpu.name()
    }

    fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        self.gpu.run_by(batch, self.ways)
    }
}
