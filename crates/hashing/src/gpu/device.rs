//! The device's hashing kernels, and their launch geometry.

use crypto::hash::md6::forest::are_few;
use engine::{
    Fault,
    driver::{CudaContext, Geometry, Kernel, Module},
};
use std::sync::{Arc, atomic::AtomicUsize};

/// `kernels/hash.cu`, compiled.
static FATBIN: &[u8] = include_bytes!("../../../../kernels/hash.fatbin");

/// Threads per block.
const THREADS: u32 = 64;
/// Threads per node when few nodes are hashed.
const SHARING: u32 = 16;
/// Bytes of dynamic shared memory per thread when threads share a node.
const DESK: u32 = 112;

/// An open device.
pub(super) struct HashDevice {
    pub context: Arc<CudaContext>,
    alone: Kernel,
    shared: Kernel,
    processors: usize,
    /// Bytes of the slots in flight.
    pub in_flight: AtomicUsize,
}

impl HashDevice {
    /// Opens the device with this number and loads the kernels.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(number: usize) -> Result<Self, Fault> {
        let (context, description) = CudaContext::open(number)?;
        let module = Module::load(&context, FATBIN)?;
        let alone = module.kernel("md6_nodes", 0)?;
        let shared = module.kernel("md6_nodes_shared", (THREADS * DESK) as usize)?;
        Ok(HashDevice {
            context,
            alone,
            shared,
            processors: description.processors,
            in_flight: AtomicUsize::new(0),
        })
    }

    /// The kernel for a level with this number of nodes, and its geometry.
    pub fn choose(&self, nodes: u32) -> (&Kernel, Geometry) {
        if are_few(nodes, self.processors) {
            let blocks = nodes.div_ceil(THREADS / SHARING);
            (&self.shared, Geometry { blocks, threads: THREADS, shared: THREADS * DESK })
        } else {
            (&self.alone, Geometry { blocks: nodes.div_ceil(THREADS), threads: THREADS, shared: 0 })
        }
    }
}
