//! The kernels of one context, and their launch geometry.

use super::{
    driver::{CudaContext, Description, DriverError, Event, Geometry, Kernel, Module, Stream},
    plan::{ChunkClass, chunks_of_warp, class_names},
};
use crate::Op;
use std::sync::Arc;

/// `kernels/warpcrypt.cu`, compiled.
static FATBIN: &[u8] = include_bytes!("../../../../kernels/warpcrypt.fatbin");

/// Dynamic shared memory of every kernel here, in bytes: the tables of Kuznyechik, which are larger than
/// those of AES.
const TABLES: usize = 68 << 10;
/// Additional shared memory per warp, in bytes, in kernels with one warp per chunk.
const DESK: usize = 5104;
/// Additional shared memory per checking block, in bytes.
const CHECK_DESK: usize = 4112;

/// Threads per warp.
const WARP: usize = 32;
/// Maximum number of warps per block.
const BLOCK_WARPS: usize = 16;
/// Minimum number of warps per block in kernels with one warp per chunk. Warps without a chunk help to fill
/// the tables.
const HELPERS: usize = 8;

/// Minimum number of checking blocks. The more there are, the sooner one runs on another multiprocessor
/// than the block it checks.
const CHECKERS: usize = 16;

/// How seal or open is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// In host memory, one warp per chunk, with the check in the same launch.
    Checked,
    /// In device memory, one warp per chunk.
    Wide,
    /// In device memory, one or a few threads per tag.
    Narrow,
}

/// A kernel, and the geometry to launch it with.
pub(super) type KernelChoice<'a> = (&'a Kernel, Geometry);

/// A launch of seal or open.
pub(super) struct Chosen<'a> {
    pub launch: KernelChoice<'a>,
    /// Number of blocks that seal or open, and the number of neighbouring chunks that each processes at a
    /// time.
    pub blocks: u32,
    pub run: usize,
    /// The check, if it is a separate launch.
    pub check: Option<KernelChoice<'a>>,
}

/// The kernels of one class.
struct OfClass {
    /// Indexed by `How`.
    seal: [Kernel; 3],
    open: [Kernel; 3],
    check: Kernel,
}

/// Seal and open of every class, and their checks.
pub(super) struct Kernels {
    classes: Vec<OfClass>,
    processors: usize,
    /// Maximum warps per block in kernels with one warp per chunk, limited by the shared memory.
    desks: usize,
}

impl Kernels {
    /// Loads the kernels and fills the tables in the module's memory.
    ///
    /// # Errors
    /// The driver's error.
    pub fn load(context: &Arc<CudaContext>, device: &Description) -> Result<Self, DriverError> {
        let module = Module::load(context, FATBIN)?;
        let desks = (device.shared_memory.saturating_sub(TABLES) / DESK).clamp(1, BLOCK_WARPS);
        let wide = TABLES + desks * DESK;
        let of_op = |op: Op, class: &str| {
            let kernel = |how: &str, shared| module.kernel(&format!("{}_{class}{how}", op.name()), shared);
            let of_op = [kernel("_checked", wide)?, kernel("_wide", wide)?, kernel("", TABLES)?];
            Ok::<_, DriverError>(of_op)
        };
        let of_class = |class: String| {
            let check = module.kernel(&format!("check_{class}"), TABLES + CHECK_DESK)?;
            Ok(OfClass { seal: of_op(Op::Seal, &class)?, open: of_op(Op::Open, &class)?, check })
        };
        let classes = class_names().map(of_class).collect::<Result<_, _>>()?;
        fill_tables(context, &module)?;
        Ok(Kernels { classes, processors: device.processors, desks })
    }

    /// The kernels for `chunks` chunks, and their geometry.
    pub fn choose(&self, op: Op, class: ChunkClass, chunks: usize, how: How) -> Chosen<'_> {
        let OfClass { seal, open, check } = &self.classes[class];
        let of_op = match op {
            Op::Seal => seal,
            Op::Open => open,
        };
        let (made, run) = match how {
            How::Checked | How::Wide => (wide_geometry(chunks, self.processors, self.desks), 1),
            How::Narrow => {
                let group = chunks_of_warp(class);
                let narrow = geometry(chunks, group, self.processors);
                (narrow, narrow.threads as usize / WARP * group)
            }
        };
        let checkers = checkers(made.blocks, self.processors);
        let (geometry, check) = match how {
            How::Checked => {
                let spare = spare_checkers(made.blocks, self.processors);
                (Geometry { blocks: made.blocks + checkers + spare, ..made }, None)
            }
            How::Wide | How::Narrow => (made, Some((check, check_geometry(checkers)))),
        };
        Chosen { launch: (&of_op[how as usize], geometry), blocks: made.blocks, run, check }
    }
}

/// Spreads the work over all multiprocessors, one block each if the blocks are large enough. A warp takes
/// `group` chunks.
fn geometry(chunks: usize, group: usize, processors: usize) -> Geometry {
    let warps = chunks.div_ceil(group);
    let in_block = warps.div_ceil(processors).clamp(1, BLOCK_WARPS);
    Geometry {
        blocks: warps.div_ceil(in_block) as u32,
        threads: (in_block * WARP) as u32,
        shared: TABLES as u32,
    }
}

/// The geometry with one warp per chunk. If there are too many chunks, each warp processes several in
/// turn.
fn wide_geometry(chunks: usize, processors: usize, desks: usize) -> Geometry {
    let blocks = chunks.min(processors);
    let in_block = chunks.div_ceil(blocks).clamp(HELPERS.min(desks), desks);
    Geometry {
        blocks: blocks as u32,
        threads: (in_block * WARP) as u32,
        shared: (TABLES + in_block * DESK) as u32,
    }
}

/// Number of checking blocks: one for each block to check, and some more if those are few.
fn checkers(blocks: u32, processors: usize) -> u32 {
    blocks.max(processors.clamp(2, CHECKERS) as u32)
}

/// Number of additional checking blocks when they share a launch with the blocks they check: the last of
/// them may find only work of their own multiprocessor. At most as many as can run at once if two blocks
/// fit on a multiprocessor.
fn spare_checkers(blocks: u32, processors: usize) -> u32 {
    (blocks / 16).min(2 * (processors as u32).saturating_sub(blocks))
}

fn check_geometry(blocks: u32) -> Geometry {
    Geometry { blocks, threads: (BLOCK_WARPS * WARP) as u32, shared: (TABLES + CHECK_DESK) as u32 }
}

fn fill_tables(context: &Arc<CudaContext>, module: &Arc<Module>) -> Result<(), DriverError> {
    let kernel = module.kernel("kuznyechik_tables", 0)?;
    let (stream, event) = (Stream::new(context)?, Event::new(context)?);
    let geometry = Geometry { blocks: 48, threads: 256, shared: 0 };
    // SAFETY: takes no parameters; its contract requires 12288 threads in blocks of up to 256.
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
