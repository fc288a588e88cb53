//! The only place that decides which engine runs a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, Op,
    engine_set::{Choice, EngineCounters, EngineSet, Tally},
    profile::Function,
};
use crypto::{
    chunk::ChunkKeys,
    tags::{Opened, open_in_place},
};
use std::{
    sync::{Arc, OnceLock},
    thread,
};

/// Batches of fewer chunks stay on the CPU, which finishes them before a GPU would have started.
const GPU_CHUNKS: usize = 16;

/// The user's choice of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// For each batch, the engine that should finish first.
    #[default]
    Auto,
    /// CPU only.
    Cpu,
    /// GPU only; an error if there is none.
    Gpu,
}

/// Runs small work inline and distributes batches over the engines.
pub struct Router {
    /// Pool for the buffers of batches.
    pub buffers: Arc<BufferPool>,
    /// The CPU engine.
    pub cpu: Arc<CpuEngine>,
    tally: Tally,
    /// Empty until a GPU has been found.
    team: Arc<OnceLock<EngineSet>>,
}

impl Router {
    /// Starts the engines; `memory` bounds the buffers, in bytes. This starts threads, so a process that
    /// forks into the background must fork first. With `Auto`, GPUs join later, and get batches of a
    /// function once it has been measured.
    ///
    /// # Errors
    /// If the chosen engine is not available.
    pub fn new(choice: EngineChoice, memory: usize) -> Result<Self, EngineError> {
        let router = Router::of_cpu(memory);
        match choice {
            EngineChoice::Cpu => {}
            EngineChoice::Gpu => {
                let team = EngineSet::of_gpus();
                let team = team.map_err(|cause| EngineError::Failed { engine: "gpu".to_owned(), cause })?;
                log::info!("engine: {}", team.description());
                join(&router.team, &router.buffers, team);
            }
            EngineChoice::Auto => router.look_for_gpus(),
        }
        Ok(router)
    }

    /// Like `new` with `Auto`, but returns once the GPUs have joined.
    ///
    /// # Errors
    /// Why there is no GPU.
    pub fn joined(memory: usize) -> Result<Self, String> {
        let router = Router::of_cpu(memory);
        let (team, _) = EngineSet::beside(&router.cpu)?;
        join(&router.team, &router.buffers, team);
        Ok(router)
    }

    /// A router that does all work on the calling thread.
    pub fn of_one_thread(memory: usize) -> Self {
        Router { cpu: Arc::new(CpuEngine::with_threads(1)), ..Router::of_cpu(memory) }
    }

    fn of_cpu(memory: usize) -> Self {
        Router {
            buffers: Arc::new(BufferPool::new(memory)),
            cpu: Arc::new(CpuEngine::new()),
            tally: Tally::default(),
            team: Arc::default(),
        }
    }

    /// Opens the GPUs on a separate thread, which then measures each function that is needed. Batches stay
    /// on the CPU until that is done.
    fn look_for_gpus(&self) {
        let (cpu, team, buffers) =
            (self.cpu.clone(), Arc::downgrade(&self.team), Arc::downgrade(&self.buffers));
        let work = move || {
            let (found, needed) = match EngineSet::beside(&cpu) {
                Ok(found) => found,
                Err(why) => {
                    return log::info!("engine: {} threads of the CPU: {why}", cpu.threads());
                }
            };
            {
                let (Some(team), Some(buffers)) = (team.upgrade(), buffers.upgrade()) else { return };
                log::info!("engine: {} threads of the CPU, and {}", cpu.threads(), found.description());
                join(&team, &buffers, found);
            }
            // The loop ends when the team, which holds the sender, is dropped.
            for function in needed {
                // Measure the other direction too: data that is written will be read, and data that is read
                // may be written.
                let other = if function.op == Op::Seal { Op::Open } else { Op::Seal };
                for op in [function.op, other] {
                    let Some(team) = team.upgrade() else { return };
                    let function = Function { op, ..function };
                    if let Some(Err(e)) = team.get().map(|team| team.measure(function, &cpu)) {
                        log::info!("the engines were not measured: {e}");
                    }
                }
            }
        };
        if let Err(e) = thread::Builder::new().name("engine-measure".to_owned()).spawn(work) {
            log::info!("engine: {} threads of the CPU: no thread to look for a GPU: {e}", self.cpu.threads());
        }
    }

    /// Maximum number of threads that work on one batch. A batch with fewer than 16 chunks per thread
    /// leaves some idle.
    pub fn threads(&self) -> usize {
        self.cpu.threads()
    }

    /// Counters of each engine: the CPU first, then the GPUs.
    pub fn counters(&self) -> Vec<EngineCounters> {
        let cpu = self.tally.counters("cpu", format!("{} threads", self.threads()), true);
        let gpus = self.team.get().into_iter().flat_map(|team| &team.gpus).map(|gpu| {
            let name = gpu.engine.description().name.clone();
            gpu.tally.counters(gpu.engine.name(), name, gpu.engine.in_service())
        });
        [cpu].into_iter().chain(gpus).collect()
    }

    /// Measures a function on every engine that has no measurement of it yet.
    ///
    /// # Errors
    /// If an engine fails.
    pub fn measure(&self, function: Function) -> Result<(), EngineError> {
        self.team.get().map_or(Ok(()), |team| team.measure(function, &self.cpu))
    }

    /// The first GPU.
    pub fn gpu(&self) -> Option<&dyn Engine> {
        Some(&self.team.get()?.gpus.first()?.engine)
    }

    /// Runs a batch and returns when every job has its result.
    ///
    /// # Errors
    /// `EngineError::BadJob` if a job is invalid (no job was run), or another error if no engine could run
    /// the batch.
    pub fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        let bytes = batch.jobs.iter().map(|job| job.len).fold(0, usize::saturating_add);
        let team = self.team.get().filter(|_| batch.jobs.len() >= GPU_CHUNKS);
        match team.and_then(|team| team.choose(batch, bytes)) {
            None => self.run_on_cpu(batch, bytes),
            Some(Choice::Cpu(_turn)) => self.run_on_cpu(batch, bytes),
            Some(Choice::Gpu(gpu, turn)) => {
                let result = gpu.engine.run(batch);
                gpu.tally.count(&result, batch.jobs.len(), bytes);
                match result {
                    // The input is unchanged, so the CPU can run the batch.
                    Err(EngineError::Failed { .. }) => {
                        drop(turn);
                        self.run_on_cpu(batch, bytes)
                    }
                    Ok(()) | Err(EngineError::BadJob { .. }) => result,
                }
            }
        }
    }

    /// Wipes the kept buffers and ends the GPU processes, which wipe their devices. Batches that arrive
    /// before [`Router::bring_back`] run on the CPU.
    pub fn put_away(&self) {
        self.buffers.wipe();
        self.team.get().into_iter().flat_map(|team| &team.gpus).for_each(|gpu| gpu.engine.put_away());
    }

    /// Restarts the GPU processes in the background.
    pub fn bring_back(&self) {
        self.team.get().into_iter().flat_map(|team| &team.gpus).for_each(|gpu| gpu.engine.bring_back());
    }

    /// Whether long runs of chunks are best opened in place. The CPU then finds them in its caches. A GPU
    /// needs a second buffer, so that the CPU can redo a batch that the GPU failed.
    pub fn opens_in_place(&self) -> bool {
        self.team.get().is_none()
    }

    /// Runs `work` on each part exactly once, on all cores of the CPU.
    ///
    /// # Errors
    /// If a thread panicked. The state of the parts is then unknown.
    pub fn share<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Sync) -> Result<(), EngineError> {
        self.cpu.share(parts, work)
    }

    /// Opens chunks of one file in place on this thread. Counts as a batch.
    ///
    /// # Errors
    /// Those of `decrypt_few`.
    ///
    /// # Panics
    /// Like `decrypt_few`.
    pub fn decrypt_run(&self, keys: &ChunkKeys, chunks: &mut [Opened]) -> Result<(), usize> {
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        self.tally.count(&Ok(()), chunks.len(), bytes);
        self.decrypt_few(keys, chunks)
    }

    fn run_on_cpu(&self, batch: &mut Batch, bytes: usize) -> Result<(), EngineError> {
        let result = self.cpu.run(batch);
        self.tally.count(&result, batch.jobs.len(), bytes);
        result
    }

    /// Opens a few chunks of one file in place on this thread.
    ///
    /// # Errors
    /// The position of the first chunk that does not verify. All chunks are then unchanged.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn decrypt_few(&self, keys: &ChunkKeys, chunks: &mut [Opened]) -> Result<(), usize> {
        open_in_place(keys, chunks)
    }
}

fn join(place: &OnceLock<EngineSet>, buffers: &BufferPool, team: EngineSet) {
    team.supply(buffers);
    let _ = place.set(team); // This is the only setter.
}
