//! The kernels of one context, and their geometry.

use super::{
    driver::{Context, Description, DriverError, Event, Geometry, Kernel, Module, Stream},
    plan::{Class, chunks_of_warp, class_names},
};
use crate::engine::Op;
use std::sync::Arc;

/// `kernels/warpcrypt.cu`, compiled.
static FATBIN: &[u8] = include_bytes!("../../../kernels/warpcrypt.fatbin");

/// Dynamic shared memory of every kernel here: the tables of Kuznyechik, which are longer than those of AES.
const TABLES: usize = 68 << 10;
/// What each warp takes besides if it has a chunk for itself.
const DESK: usize = 5104;
/// What a block takes besides that checks a launch.
const CHECK_DESK: usize = 1040;

/// Threads of a warp.
const WARP: usize = 32;
/// Warps of a block at most.
const BLOCK_WARPS: usize = 16;
/// Warps of a block at least if each has a chunk for itself: those without one help to fill the tables.
const HELPERS: usize = 8;

/// Blocks of a check at least: with more of them, one is sooner on another multiprocessor than what it checks.
const CHECKERS: usize = 16;

/// A launch of seal or open, and the check of it.
pub(super) struct Choice<'a> {
    pub kernel: &'a Kernel,
    pub geometry: Geometry,
    /// Neighbouring chunks that a block has at a time.
    pub run: usize,
    pub check: &'a Kernel,
    pub check_geometry: Geometry,
}

/// Seal and open of every class, and their check.
pub(super) struct Kernels {
    /// By class; then one thread or a few a tag, and one warp a tag.
    seal: Vec<[Kernel; 2]>,
    open: Vec<[Kernel; 2]>,
    check: Vec<Kernel>,
    processors: usize,
    /// Warps of a block whose desks fit into the shared memory.
    desks: usize,
}

impl Kernels {
    /// Loads them and fills the tables in the module's memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn load(context: &Arc<Context>, device: &Description) -> Result<Self, DriverError> {
        let module = Module::load(context, FATBIN)?;
        let desks = (device.shared_memory.saturating_sub(TABLES) / DESK).clamp(1, BLOCK_WARPS);
        let kernels = |op: Op| {
            let of_class = |class: String| {
                let name = format!("{}_{class}", op.name());
                let wide = module.kernel(&format!("{name}_wide"), TABLES + desks * DESK)?;
                Ok([module.kernel(&name, TABLES)?, wide])
            };
            class_names().map(of_class).collect::<Result<_, _>>()
        };
        let (seal, open) = (kernels(Op::Seal)?, kernels(Op::Open)?);
        let of_class = |class| module.kernel(&format!("check_{class}"), TABLES + CHECK_DESK);
        let check = class_names().map(of_class).collect::<Result<_, _>>()?;
        fill_tables(context, &module)?;
        Ok(Kernels { seal, open, check, processors: device.processors, desks })
    }

    /// The kernels for `chunks` chunks and their geometry: a warp for each chunk if `wide`, otherwise for a group.
    pub fn choose(&self, op: Op, class: Class, chunks: usize, wide: bool) -> Choice<'_> {
        let kernels = match op {
            Op::Seal => &self.seal[class],
            Op::Open => &self.open[class],
        };
        let (geometry, run) = if wide {
            (wide_geometry(chunks, self.processors, self.desks), 1)
        } else {
            let geometry = geometry(chunks, chunks_of_warp(class), self.processors);
            (geometry, geometry.threads as usize / WARP * chunks_of_warp(class))
        };
        Choice {
            kernel: &kernels[usize::from(wide)],
            geometry,
            run,
            check: &self.check[class],
            check_geometry: check_geometry(geometry, self.processors),
        }
    }
}

/// Spreads the work over all multiprocessors, a block each while that goes; `group` chunks a warp.
fn geometry(chunks: usize, group: usize, processors: usize) -> Geometry {
    let warps = chunks.div_ceil(group);
    let in_block = warps.div_ceil(processors).clamp(1, BLOCK_WARPS);
    Geometry {
        blocks: warps.div_ceil(in_block) as u32,
        threads: (in_block * WARP) as u32,
        shared: TABLES as u32,
    }
}

/// The same with a warp for each chunk; if there are too many, warps take several, one after another.
fn wide_geometry(chunks: usize, processors: usize, desks: usize) -> Geometry {
    let blocks = chunks.min(processors);
    let in_block = chunks.div_ceil(blocks).clamp(HELPERS.min(desks), desks);
    Geometry {
        blocks: blocks as u32,
        threads: (in_block * WARP) as u32,
        shared: (TABLES + in_block * DESK) as u32,
    }
}

/// A block for each of those that are checked, and some more if those are few.
fn check_geometry(checked: Geometry, processors: usize) -> Geometry {
    Geometry {
        blocks: checked.blocks.max(processors.clamp(2, CHECKERS) as u32),
        threads: (BLOCK_WARPS * WARP) as u32,
        shared: (TABLES + CHECK_DESK) as u32,
    }
}

fn fill_tables(context: &Arc<Context>, module: &Arc<Module>) -> Result<(), DriverError> {
    let kernel = module.kernel("kuznyechik_tables", 0)?;
    let (stream, event) = (Stream::new(context)?, Event::new(context)?);
    let geometry = Geometry { blocks: 48, threads: 256, shared: 0 };
    // SAFETY: takes no parameters; its contract wants 12288 threads in blocks of up to 256.
    unsafe { stream.launch(&kernel, geometry, &mut [])? };
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
                for group in [8, 32] {
                    let Geometry { blocks, threads, .. } = geometry(chunks, group, processors);
                    let warps = (blocks * threads) as usize / WARP;
                    assert!(threads <= 512 && threads % 32 == 0);
                    assert!(warps * group >= chunks || threads == 512);
                }
                for desks in [1, 7, 16] {
                    let wide = wide_geometry(chunks, processors, desks);
                    let warps = wide.threads as usize / 32;
                    assert!(wide.threads.is_multiple_of(32) && (1..=desks).contains(&warps));
                    assert!(wide.blocks as usize * warps >= chunks || warps == desks);
                    assert_eq!(wide.shared as usize, TABLES + warps * DESK);
                }
            }
        }
        assert_eq!(geometry(2048, 32, 132), Geometry { blocks: 64, threads: 32, shared: 69632 });
        assert_eq!(wide_geometry(16, 132, 16), Geometry { blocks: 16, threads: 256, shared: 110_464 });
        assert_eq!(wide_geometry(2048, 132, 16), Geometry { blocks: 132, threads: 512, shared: 151_296 });
    }
}
