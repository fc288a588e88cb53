//! The only place that decides which engine runs a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, Op,
    profile::Function,
    team::{Choice, EngineCounters, Tally, Team},
};
use crate::crypto::{
    chunk::ChunkKeys,
    tags::{Opened, open_in_place},
};
use std::{
    sync::{Arc, OnceLock},
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
    /// The CPU.
    pub cpu: Arc<CpuEngine>,
    tally: Tally,
    /// Empty until a GPU has been found.
    team: Arc<OnceLock<Team>>,
}

impl Router {
    /// Starts the engines; `memory` bounds the buffers in bytes. Starts threads: a process that forks
    /// into the background does so before. With `Auto` GPUs join in later, and get the batches of a function once that
    /// has been measured.
    ///
    /// # Errors
    /// If the chosen engine is not to be had.
    pub fn new(choice: EngineChoice, memory: usize) -> Result<Self, EngineError> {
        let router = Router::of_cpu(memory);
        match choice {
            EngineChoice::Cpu => {}
            EngineChoice::Gpu => {
                let team = Team::of_gpus();
                let team = team.map_err(|cause| EngineError::Failed { engine: "gpu".to_owned(), cause })?;
                log::info!("engine: {}", team.description());
                join(&router.team, &router.buffers, team);
            }
            EngineChoice::Auto => router.look_for_gpus(),
        }
        Ok(router)
    }

    /// As with `Auto`, but returns once the GPUs have joined in.
    ///
    /// # Errors
    /// Why there is none.
    pub fn joined(memory: usize) -> Result<Self, String> {
        let router = Router::of_cpu(memory);
        let (team, _) = Team::beside(&router.cpu)?;
        join(&router.team, &router.buffers, team);
        Ok(router)
    }

    /// Where the calling thread does everything.
    #[cfg(test)]
    pub(crate) fn of_one_thread(memory: usize) -> Self {
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

    /// Opens the GPUs on a thread of its own, which then measures each function that is needed; batches stay with the
    /// CPU until that is done.
    fn look_for_gpus(&self) {
        let (cpu, team, buffers) =
            (self.cpu.clone(), Arc::downgrade(&self.team), Arc::downgrade(&self.buffers));
        let work = move || {
            let (found, needed) = match Team::beside(&cpu) {
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
            // Ends with the team, whose sender it waits for.
            for function in needed {
                // What is written is read some time, and what is read was perhaps changed.
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

    /// Threads that work on one batch at most: a batch of fewer than 16 chunks for each keeps some idle.
    pub fn threads(&self) -> usize {
        self.cpu.threads()
    }

    /// What each engine did: the CPU, then the GPUs.
    pub fn counters(&self) -> Vec<EngineCounters> {
        let cpu = self.tally.counters("cpu", format!("{} threads", self.threads()), true);
        let gpus = self.team.get().into_iter().flat_map(|team| &team.gpus).map(|gpu| {
            let name = gpu.engine.description().name.clone();
            gpu.tally.counters(gpu.engine.name(), name, gpu.engine.in_service())
        });
        [cpu].into_iter().chain(gpus).collect()
    }

    /// Measures a function on every engine of which it is not known.
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
    /// If a job is not one (`EngineError::BadJob`, and none was run), or no engine could run the batch.
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
                    // Its input is as it was.
                    Err(EngineError::Failed { .. }) => {
                        drop(turn);
                        self.run_on_cpu(batch, bytes)
                    }
                    Ok(()) | Err(EngineError::BadJob { .. }) => result,
                }
            }
        }
    }

    /// Wipes the buffers that are kept, and ends the processes of GPUs, which wipe their devices. Batches that come before
    /// [`Router::bring_back`] run on the CPU.
    pub fn put_away(&self) {
        self.buffers.wipe();
        self.team.get().into_iter().flat_map(|team| &team.gpus).for_each(|gpu| gpu.engine.put_away());
    }

    /// Starts the processes of GPUs again, in the background.
    pub fn bring_back(&self) {
        self.team.get().into_iter().flat_map(|team| &team.gpus).for_each(|gpu| gpu.engine.bring_back());
    }

    /// Whether long runs of chunks are best opened in place: the CPU then finds them in its caches, but a GPU needs
    /// a second buffer, so that the CPU can do what it failed to.
    pub fn opens_in_place(&self) -> bool {
        self.team.get().is_none()
    }

    /// Has all cores of the CPU do the parts of some work, each of them once.
    ///
    /// # Errors
    /// If a thread panicked: nothing is known of the parts then.
    pub fn share<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Sync) -> Result<(), EngineError> {
        self.cpu.share(parts, work)
    }

    /// Chunks of one file, on this thread, in place; counts as a batch.
    ///
    /// # Errors
    /// As `open_few`.
    ///
    /// # Panics
    /// As `open_few`.
    pub fn open_run(&self, keys: &ChunkKeys, chunks: &mut [Opened]) -> Result<(), usize> {
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        self.tally.count(&Ok(()), chunks.len(), bytes);
        self.open_few(keys, chunks)
    }

    fn run_on_cpu(&self, batch: &mut Batch, bytes: usize) -> Result<(), EngineError> {
        let result = self.cpu.run(batch);
        self.tally.count(&result, batch.jobs.len(), bytes);
        result
    }

    /// A few chunks of one file, inline, in place.
    ///
    /// # Errors
    /// The place of the first chunk that does not verify; all are then untouched.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn open_few(&self, keys: &ChunkKeys, chunks: &mut [Opened]) -> Result<(), usize> {
        open_in_place(keys, chunks)
    }
}

fn join(place: &OnceLock<Team>, buffers: &BufferPool, team: Team) {
    team.supply(buffers);
    let _ = place.set(team); // Nobody else sets it.
}
