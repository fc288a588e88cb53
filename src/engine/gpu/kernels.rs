//! The kernels of one context, and their geometry.

use super::{
    driver::{Context, DriverError, Event, Kernel, Module, Stream},
    plan::{CLASSES, Class},
};
use crate::engine::Op;
use std::sync::Arc;

/// `kernels/warpcrypt.cu`, compiled.
static FATBIN: &[u8] = include_bytes!("../../../kernels/warpcrypt.fatbin");

/// Dynamic shared memory of every kernel here: 64 KiB of tables, and up to 1 KiB to align them.
const SHARED: usize = 65 << 10;

/// Threads of a warp.
const WARP: usize = 32;
/// Warps of a block at most.
const BLOCK_WARPS: usize = 16;

/// Seal and open of every class.
pub(super) struct Kernels {
    /// By class; then one thread a tag and one warp a tag.
    seal: Vec<[Kernel; 2]>,
    open: Vec<[Kernel; 2]>,
    processors: usize,
}

impl Kernels {
    /// Loads them and fills the tables in the module's memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn load(context: &Arc<Context>, processors: usize) -> Result<Self, DriverError> {
        let module = Module::load(context, FATBIN)?;
        let of_class = |op: &'static str| {
            let module = &module;
            move |class: Class| {
                let cipher = if class < 3 { "aes" } else { "kuznyechik" };
                let integrity = ["kmac128", "kmac256", "turboshake128"][class % 3];
                let name = format!("{op}_{cipher}_{integrity}");
                Ok([module.kernel(&name, SHARED)?, module.kernel(&format!("{name}_wide"), SHARED)?])
            }
        };
        let seal = (0..CLASSES).map(of_class("seal")).collect::<Result<_, _>>()?;
        let open = (0..CLASSES).map(of_class("open")).collect::<Result<_, _>>()?;
        fill_tables(context, &module)?;
        Ok(Kernels { seal, open, processors })
    }

    /// The kernel for `chunks` chunks, its blocks and threads: a warp for each chunk if `wide`, otherwise for
    /// each 32.
    pub fn choose(&self, op: Op, class: Class, chunks: usize, wide: bool) -> (&Kernel, u32, u32) {
        let kernels = match op {
            Op::Seal => &self.seal[class],
            Op::Open => &self.open[class],
        };
        let (blocks, threads) = geometry(chunks, wide, self.processors);
        (&kernels[usize::from(wide)], blocks, threads)
    }
}

/// Blocks and threads that spread the work over all multiprocessors, a block each while that goes.
fn geometry(chunks: usize, wide: bool, processors: usize) -> (u32, u32) {
    let warps = if wide { chunks } else { chunks.div_ceil(WARP) };
    let in_block = warps.div_ceil(processors).clamp(1, BLOCK_WARPS);
    (warps.div_ceil(in_block) as u32, (in_block * WARP) as u32)
}

fn fill_tables(context: &Arc<Context>, module: &Arc<Module>) -> Result<(), DriverError> {
    let kernel = module.kernel("kuznyechik_tables", 0)?;
    let (stream, event) = (Stream::new(context)?, Event::new(context)?);
    // SAFETY: takes no parameters; its contract wants 8192 threads in blocks of up to 256.
    unsafe { stream.launch(&kernel, 32, 256, &mut [])? };
    stream.record(&event)?;
    event.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_has_its_warp_and_no_block_is_too_large() {
        for processors in [1, 2, 132] {
            for chunks in (1..3000).step_by(7) {
                let (blocks, threads) = geometry(chunks, true, processors);
                assert!(threads <= 512 && threads % 32 == 0 && (blocks * threads) as usize / 32 >= chunks);
                let (blocks, threads) = geometry(chunks, false, processors);
                assert!(threads <= 512 && threads % 32 == 0 && (blocks * threads) as usize >= chunks);
            }
        }
        assert_eq!(geometry(256, true, 132), (128, 64));
        assert_eq!(geometry(2048, true, 132), (128, 512));
        assert_eq!(geometry(2048, false, 132), (64, 32));
    }
}
