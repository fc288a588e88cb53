//! The GPUs that work beside the CPU: opening and measuring them, and choosing among all engines for a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, Fault, GpuEngine,
    gpu::devices,
    line::{Line, Turn, Work},
    measure::{Function, Profile, crossover},
    survey,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Of batches of one class, the 4th, 8th, 16th and so on, and then each of this number, goes to the second best
/// engine, if it may take twice as long there at most: else an engine that was slow for a while would be
/// thought slow for good.
const TRIAL: u32 = 256;
/// An engine that takes so many times longer than the CPU with its largest batches, whatever the function, is of no
/// use even beside a busy one.
const USELESS: f64 = 8.0;
/// Nanoseconds for each byte that the CPU has to copy because the device does not reach it.
const COPY: f64 = 0.15;

/// A GPU and what is known of it.
pub(super) struct Gpu {
    pub engine: GpuEngine,
    pub line: Line,
    pub tally: Tally,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let (batches, chunks) = (self.tally.batches.load(Relaxed), self.tally.chunks.load(Relaxed));
        log::info!("{}: did {batches} batches of {chunks} chunks", self.engine.name());
    }
}

/// Counts of what an engine did.
#[derive(Default)]
pub(super) struct Tally {
    batches: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    /// Counts what became of a batch that the engine was given.
    pub fn count(&self, result: &Result<(), EngineError>, chunks: usize, bytes: usize) {
        match result {
            Ok(()) => {
                self.batches.fetch_add(1, Relaxed);
                self.chunks.fetch_add(chunks as u64, Relaxed);
                self.bytes.fetch_add(bytes as u64, Relaxed);
            }
            Err(EngineError::Failed { .. }) => _ = self.failed.fetch_add(1, Relaxed),
            Err(EngineError::BadJob { .. }) => {}
        }
    }

    pub fn counters(&self, name: &str, description: String, in_service: bool) -> EngineCounters {
        EngineCounters {
            name: name.to_owned(),
            description,
            batches: self.batches.load(Relaxed),
            chunks: self.chunks.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failed: self.failed.load(Relaxed),
            in_service,
        }
    }
}

/// What an engine did since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCounters {
    /// `cpu`, or `gpu` and a number.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Batches that it did. Chunks that are done one by one are in no batch.
    pub batches: u64,
    /// Chunks of those.
    pub chunks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Batches that it failed at; the CPU did them.
    pub failed: u64,
    /// Whether it takes batches.
    pub in_service: bool,
}

/// The CPU's and the GPUs' lines.
pub(super) struct Team {
    /// `None`: every batch that is not small goes to a GPU.
    cpu: Option<Line>,
    pub gpus: Vec<Gpu>,
}

/// Where a batch goes.
pub(super) enum Choice<'a> {
    Cpu(Turn<'a>),
    Gpu(&'a Gpu, Turn<'a>),
}

impl Team {
    /// All devices; every batch that is not small goes to one of them.
    ///
    /// # Errors
    /// If there is none that works: why the first does not.
    pub fn of_gpus() -> Result<Self, Fault> {
        let gpu = |engine| Gpu { engine, line: Line::new(None), tally: Tally::default() };
        Ok(Team { cpu: None, gpus: open_all()?.into_iter().map(gpu).collect() })
    }

    /// The CPU and the devices that are of use beside it, each with its profile: measured now, unless they were
    /// before.
    ///
    /// # Errors
    /// Why there is no such device.
    pub fn measured(cpu: &CpuEngine) -> Result<Self, String> {
        let engines = open_all().map_err(|fault| fault.to_string())?;
        let name = engines[0].description().name.clone(); // invariant: `open_all` returns one at least
        let (profile, measured) = survey::profiles(cpu, engines).map_err(|error| error.to_string())?;
        let useful = measured.into_iter().filter(|(_, gpu)| is_useful(&profile, gpu));
        let gpu = |(engine, profile)| Gpu { engine, line: Line::new(Some(profile)), tally: Tally::default() };
        let gpus: Vec<Gpu> = useful.map(gpu).collect();
        if gpus.is_empty() {
            return Err(format!("{name} is much slower with every cipher"));
        }
        Ok(Team { cpu: Some(Line::new(Some(profile))), gpus })
    }

    /// Has the pool take memory that the devices reach: of each of them in turn, two buffers at a time, because a
    /// batch has two.
    pub fn supply(&self, pool: &BufferPool) {
        let sources: Vec<_> = self.gpus.iter().map(|gpu| gpu.engine.memory()).collect();
        let next = AtomicUsize::new(0);
        pool.set_source(Arc::new(move |len| {
            let first = next.fetch_add(1, Relaxed) / 2;
            (0..sources.len()).find_map(|more| sources[first.wrapping_add(more) % sources.len()](len))
        }));
    }

    /// The engine that should finish the batch first; `None` if that is plainly the CPU.
    pub fn choose(&self, batch: &Batch, bytes: usize) -> Option<Choice<'_>> {
        let work = Work { function: Function::of(batch)?, bytes };
        let in_service = self.gpus.iter().filter(|gpu| gpu.engine.in_service());
        let gpu =
            in_service.min_by_key(|gpu| gpu.line.ends(work).saturating_add(self.copying(gpu, batch)))?;
        let Some(cpu) = &self.cpu else { return Some(Choice::Gpu(gpu, gpu.line.begin(work))) };
        let [on_cpu, on_gpu] = [cpu.ends(work), gpu.line.ends(work)];
        let trial = is_trial(cpu.asked(work)) && on_cpu.max(on_gpu) / 2 < on_cpu.min(on_gpu);
        Some(if (on_gpu < on_cpu) != trial {
            Choice::Gpu(gpu, gpu.line.begin(work))
        } else {
            Choice::Cpu(cpu.begin(work))
        })
    }

    /// Nanoseconds for copying what the device does not reach; with one device that is the same for every choice.
    fn copying(&self, gpu: &Gpu, batch: &Batch) -> u64 {
        if self.gpus.len() < 2 {
            return 0;
        }
        let far = [&batch.input, &batch.output].into_iter().filter(|buffer| !gpu.engine.reaches(buffer));
        (far.map(|buffer| buffer.len() as f64).sum::<f64>() * COPY) as u64
    }

    /// The devices, and which batches they are for.
    pub fn description(&self) -> String {
        let names: Vec<&str> = self.gpus.iter().map(|gpu| gpu.engine.description().name.as_str()).collect();
        names.join(", ")
    }
}

/// Every device that works, one at least. What the others lack is logged.
fn open_all() -> Result<Vec<GpuEngine>, Fault> {
    let count = devices()?;
    let opened: Vec<Result<GpuEngine, Fault>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || GpuEngine::open(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Fault::OutOfService))).collect()
    });
    let (mut engines, mut first) = (Vec::new(), None);
    for (number, result) in opened.into_iter().enumerate() {
        match result {
            Ok(engine) => engines.push(engine),
            Err(fault) => {
                if count > 1 {
                    log::warn!("gpu {number}: not used: {fault}");
                }
                first = first.or(Some(fault));
            }
        }
    }
    match first {
        Some(fault) if engines.is_empty() => Err(fault),
        _ => Ok(engines),
    }
}

fn is_trial(number: u32) -> bool {
    number.is_multiple_of(TRIAL) || number >= 4 && number.is_power_of_two()
}

fn is_useful(cpu: &Profile, gpu: &Profile) -> bool {
    Function::all().any(|function| {
        crossover(cpu, gpu, function).is_some()
            || gpu.curve(function).per_byte() < USELESS * cpu.curve(function).per_byte()
    })
}
