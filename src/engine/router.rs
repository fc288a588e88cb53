//! The only place that decides which engine runs a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, Fault, GpuEngine, measure::Comparison, survey,
};
use crate::crypto::{
    AuthError,
    chunk::{ChunkId, ChunkKeys, Tag},
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Batches of fewer chunks stay on the CPU: they are done there before a GPU has begun.
const GPU_CHUNKS: usize = 16;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// Whatever finishes first.
    #[default]
    Auto,
    /// CPU only.
    Cpu,
    /// GPU, or an error if there is none.
    Gpu,
}

/// Small work inline, batches over the engines.
pub struct Router {
    /// The buffers of its batches.
    pub buffers: Arc<BufferPool>,
    cpu: Arc<CpuEngine>,
    /// Empty while, or unless, there is one.
    gpu: Arc<OnceLock<Gpu>>,
    /// Nanoseconds of work that each engine has been given and not finished, as far as one can tell.
    cpu_load: AtomicU64,
    gpu_load: AtomicU64,
}

struct Gpu {
    engine: GpuEngine,
    /// `None`: every batch that is not small goes there.
    comparisons: Option<Vec<Comparison>>,
}

impl Router {
    /// Starts the engines; `memory` bounds the buffers in bytes. Starts threads: a process that forks
    /// into the background does so before. With `Auto` a GPU joins in later, once it has been measured.
    ///
    /// # Errors
    /// If the chosen engine is not to be had.
    pub fn new(choice: EngineChoice, memory: usize) -> Result<Self, EngineError> {
        let router = Router {
            buffers: Arc::new(BufferPool::new(memory)),
            cpu: Arc::new(CpuEngine::new()),
            gpu: Arc::default(),
            cpu_load: AtomicU64::new(0),
            gpu_load: AtomicU64::new(0),
        };
        match choice {
            EngineChoice::Cpu => {}
            EngineChoice::Gpu => router.take_gpu().map_err(|fault| EngineError::Failed {
                engine: "gpu".to_owned(),
                cause: fault.to_string(),
            })?,
            EngineChoice::Auto => router.measure_gpu(),
        }
        Ok(router)
    }

    fn take_gpu(&self) -> Result<(), Fault> {
        let engine = GpuEngine::open()?;
        log::info!("engine: {}", engine.description().name);
        engine.supply(&self.buffers);
        let _ = self.gpu.set(Gpu { engine, comparisons: None });
        Ok(())
    }

    /// Opens and measures a GPU on a thread of its own; it is used from then on.
    fn measure_gpu(&self) {
        let (cpu, gpu, buffers) =
            (self.cpu.clone(), Arc::downgrade(&self.gpu), Arc::downgrade(&self.buffers));
        let measure = move || match measured(&cpu) {
            Err(why) => log::info!("engine: {} threads of the CPU: {why}", cpu.threads()),
            Ok(measured) => {
                let (Some(gpu), Some(buffers)) = (gpu.upgrade(), buffers.upgrade()) else { return };
                log::info!("engine: {} threads of the CPU, and {}", cpu.threads(), description(&measured));
                measured.engine.supply(&buffers);
                let _ = gpu.set(measured);
            }
        };
        if let Err(e) = thread::Builder::new().name("engine-measure".to_owned()).spawn(measure) {
            log::info!("engine: {} threads of the CPU: no thread to look for a GPU: {e}", self.cpu.threads());
        }
    }

    /// Threads that work on one batch at most: a batch of fewer than 16 chunks for each keeps some idle.
    pub fn threads(&self) -> usize {
        self.cpu.threads()
    }

    /// Runs a batch and returns when every job has its result.
    ///
    /// # Errors
    /// If a job is not one (`EngineError::BadJob`, and none was run), or no engine could run the batch.
    pub fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        let Some(gpu) =
            self.gpu.get().filter(|gpu| batch.jobs.len() >= GPU_CHUNKS && gpu.engine.in_service())
        else {
            return self.cpu.run(batch);
        };
        let Some(comparisons) = &gpu.comparisons else { return self.run_on_gpu(gpu, batch) };
        let Some((on_cpu, on_gpu)) = expected(comparisons, batch) else { return self.cpu.run(batch) };
        let cpu_ends = self.cpu_load.load(Ordering::Relaxed).saturating_add(on_cpu);
        let gpu_ends = self.gpu_load.load(Ordering::Relaxed).saturating_add(on_gpu);
        if gpu_ends < cpu_ends {
            let _given = Given::new(&self.gpu_load, on_gpu);
            self.run_on_gpu(gpu, batch)
        } else {
            let _given = Given::new(&self.cpu_load, on_cpu);
            self.cpu.run(batch)
        }
    }

    /// A batch that the GPU fails at is done by the CPU: its input is as it was.
    fn run_on_gpu(&self, gpu: &Gpu, batch: &mut Batch) -> Result<(), EngineError> {
        match gpu.engine.run(batch) {
            Err(EngineError::Failed { .. }) => self.cpu.run(batch),
            done => done,
        }
    }

    /// One chunk, inline.
    ///
    /// # Panics
    /// As `ChunkKeys::seal`: if the lengths differ or the index is out of range.
    pub fn seal_one(&self, keys: &ChunkKeys, id: &ChunkId, plain: &[u8], out: &mut [u8]) -> Tag {
        keys.seal(id, plain, out)
    }

    /// One chunk, inline, in place.
    ///
    /// # Errors
    /// `AuthError` if it does not verify; `data` is then untouched.
    ///
    /// # Panics
    /// As `ChunkKeys::open_in_place`: if the index is out of range.
    pub fn open_one(
        &self,
        keys: &ChunkKeys,
        id: &ChunkId,
        tag: &Tag,
        data: &mut [u8],
    ) -> Result<(), AuthError> {
        keys.open_in_place(id, tag, data)
    }
}

/// Work of an engine, counted until it is dropped.
struct Given<'a>(&'a AtomicU64, u64);

impl<'a> Given<'a> {
    fn new(load: &'a AtomicU64, nanoseconds: u64) -> Self {
        load.fetch_add(nanoseconds, Ordering::Relaxed);
        Given(load, nanoseconds)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

fn measured(cpu: &CpuEngine) -> Result<Gpu, String> {
    let engine = GpuEngine::open().map_err(|fault| fault.to_string())?;
    let pool = BufferPool::new(usize::MAX);
    engine.supply(&pool);
    let comparisons = survey::comparisons(cpu, &engine, &pool).map_err(|error| error.to_string())?;
    if comparisons.iter().all(|comparison| comparison.crossover().is_none()) {
        return Err(format!("{} is slower with every cipher", engine.description().name));
    }
    Ok(Gpu { engine, comparisons: Some(comparisons) })
}

/// The device, and which batches it is for.
fn description(gpu: &Gpu) -> String {
    let wins = gpu.comparisons.iter().flatten().filter_map(|comparison| {
        let kib = comparison.crossover()? >> 10;
        Some(format!("{}/{} from {kib} KiB", comparison.cipher, comparison.integrity))
    });
    format!("{} for {}", gpu.engine.description().name, wins.collect::<Vec<_>>().join(", "))
}

/// Nanoseconds that the CPU and the GPU are expected to take. Batches have the keys of one vault, all of the
/// same functions: the first one's hold for all.
fn expected(comparisons: &[Comparison], batch: &Batch) -> Option<(u64, u64)> {
    let (cipher, integrity) = batch.keys.first()?.functions();
    let mut all = comparisons.iter();
    let found = all.find(|c| c.cipher == cipher.name() && c.integrity == integrity.name())?;
    let bytes = batch.jobs.iter().map(|job| job.len).fold(0, usize::saturating_add);
    Some((found.cpu.nanoseconds(bytes), found.gpu.nanoseconds(bytes)))
}
