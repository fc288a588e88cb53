//! The GPUs that work beside the CPU: their shared state, and which of them gets a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, GpuEngine, calibration,
    cost::price,
    cpu_pressure::CpuPressure,
    engine_load::{EngineLoad, LoadGuard, Work},
    profile::{Function, Profile, crossover},
    records::RecordKey,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Nanoseconds per byte that the CPU has to copy because the device cannot reach it.
const COPY: f64 = 0.15;

/// A GPU with its timings, load and counters.
pub(super) struct Gpu {
    pub engine: GpuEngine,
    pub load: EngineLoad,
    pub tally: Tally,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let (batches, chunks) = (self.tally.batches.load(Relaxed), self.tally.chunks.load(Relaxed));
        log::info!("{}: processed {batches} batches with {chunks} chunks in total", self.engine.name());
    }
}

/// Counters of an engine's work.
#[derive(Default)]
pub(super) struct Tally {
    batches: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    /// Counts the outcome of a batch given to the engine.
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

/// An engine's counters since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCounters {
    /// `cpu`, or `gpu` and a number.
    pub name: String,
    /// Device name, or the number of CPU threads.
    pub description: String,
    /// Completed batches. Chunks processed one by one belong to no batch.
    pub batches: u64,
    /// Chunks in those batches.
    pub chunks: u64,
    /// Bytes in those batches.
    pub bytes: u64,
    /// Batches that it failed; the CPU did them instead.
    pub failed: u64,
    /// Whether it accepts batches.
    pub in_service: bool,
}

/// The CPU and the GPUs, each with its load.
pub(super) struct EngineSet {
    /// `None`: every batch that is not small goes to a GPU.
    cpu: Option<Partner>,
    pub gpus: Vec<Gpu>,
}

/// The CPU beside the GPUs.
struct Partner {
    load: EngineLoad,
    threads: usize,
    pressure: CpuPressure,
    /// Functions to measure before a GPU gets a batch. `asked` keeps each from being queued twice.
    wanted: Sender<Function>,
    asked: Vec<AtomicBool>,
}

impl Partner {
    /// Cost of a batch on the CPU: nanoseconds until it should finish, plus the price of what other threads
    /// lose.
    fn cost(&self, work: Work) -> u64 {
        let active = self.load.active();
        let own = if active > 0 { active + self.threads - 1 } else { 0 };
        let all = self.load.occupied(work) as f64 * self.threads as f64;
        self.load.ends(work).saturating_add(price(all, self.pressure.of_others(own), self.threads))
    }

    fn want(&self, function: Function) {
        if !self.asked[function.number()].swap(true, Relaxed) {
            let _ = self.wanted.send(function); // Fails if no thread is left to measure it.
        }
    }
}

/// The engine chosen for a batch.
pub(super) enum Choice<'a> {
    Cpu(LoadGuard<'a>),
    Gpu(&'a Gpu, LoadGuard<'a>),
}

impl EngineSet {
    /// A team of all devices. Every batch that is not small goes to one of them.
    ///
    /// # Errors
    /// If no device works: the error of the first.
    pub fn of_gpus() -> Result<Self, String> {
        let gpu = |engine| Gpu { engine, load: EngineLoad::new(&Profile::new()), tally: Tally::default() };
        Ok(EngineSet { cpu: None, gpus: working()?.into_iter().map(gpu).collect() })
    }

    /// A team of the CPU and all devices. The receiver yields functions as they need measuring.
    ///
    /// # Errors
    /// If no device works: the error of the first.
    pub fn beside(cpu: &CpuEngine) -> Result<(Self, Receiver<Function>), String> {
        let gpu = |engine: GpuEngine| {
            let load = EngineLoad::new(&RecordKey::new(cpu, Some(engine.description())).profile());
            Gpu { engine, load, tally: Tally::default() }
        };
        let gpus = working()?.into_iter().map(gpu).collect();
        let (wanted, needed) = unbounded();
        let partner = Partner {
            load: EngineLoad::new(&RecordKey::new(cpu, None).profile()),
            threads: cpu.threads(),
            pressure: CpuPressure::new(cpu.threads()),
            wanted,
            asked: (0..Function::COUNT).map(|_| AtomicBool::new(false)).collect(),
        };
        Ok((EngineSet { cpu: Some(partner), gpus }, needed))
    }

    /// Measures a function on every engine in service that has no measurement of it yet. It may be
    /// requested again afterwards, for an engine that was out of service or failed.
    ///
    /// # Errors
    /// If an engine fails.
    pub fn measure(&self, function: Function, cpu: &CpuEngine) -> Result<(), EngineError> {
        let Some(partner) = &self.cpu else { return Ok(()) };
        let measured = self.measure_all(function, cpu, partner);
        partner.asked[function.number()].store(false, Relaxed);
        measured
    }

    fn measure_all(&self, function: Function, cpu: &CpuEngine, partner: &Partner) -> Result<(), EngineError> {
        let in_service = || self.gpus.iter().filter(|gpu| gpu.engine.in_service());
        let known = |load: &EngineLoad| load.curve(function).is_some();
        if known(&partner.load) && in_service().all(|gpu| known(&gpu.load)) {
            return Ok(());
        }
        // Keeps no buffers: the memory belongs to the mount, not to this measurement.
        let pool = BufferPool::new(0);
        let measure = |engine: &dyn Engine, load: &EngineLoad, key: RecordKey| {
            if !known(load) {
                load.know(function, calibration::curve(engine, &key, function, cpu, &pool)?);
            }
            Ok(())
        };
        for gpu in in_service() {
            gpu.engine.supply(&pool);
            measure(&gpu.engine, &gpu.load, RecordKey::new(cpu, Some(gpu.engine.description())))?;
        }
        measure(cpu, &partner.load, RecordKey::new(cpu, None))?;
        for gpu in &self.gpus {
            if let (Some(on_cpu), Some(on_gpu)) = (partner.load.curve(function), gpu.load.curve(function)) {
                let from = crossover(on_cpu, on_gpu).map(|bytes| format!("from {} KiB on", bytes >> 10));
                let when = from.unwrap_or_else(|| "never".to_owned());
                log::info!("engine: {function}: {} is faster than the idle CPU {when}", gpu.engine.name());
            }
        }
        Ok(())
    }

    /// Makes the pool allocate memory that the devices can reach. The devices take turns, two buffers at a
    /// time because a batch has two.
    pub fn supply(&self, pool: &BufferPool) {
        let sources: Vec<_> = self.gpus.iter().map(|gpu| gpu.engine.memory()).collect();
        let next = AtomicUsize::new(0);
        pool.set_source(Arc::new(move |len| {
            let first = next.fetch_add(1, Relaxed) / 2;
            (0..sources.len()).find_map(|more| sources[first.wrapping_add(more) % sources.len()](len))
        }));
    }

    /// The engine on which the batch costs least. `None` if only the CPU can run it.
    pub fn choose(&self, batch: &Batch, bytes: usize) -> Option<Choice<'_>> {
        let work = Work { function: Function::of(batch)?, bytes };
        let in_service = || self.gpus.iter().filter(|gpu| gpu.engine.in_service());
        let known = |load: &EngineLoad| load.curve(work.function).is_some();
        if let Some(cpu) = &self.cpu
            && !(known(&cpu.load) && in_service().all(|gpu| known(&gpu.load)))
        {
            cpu.want(work.function);
            return None;
        }
        let cost = |gpu: &Gpu| gpu.load.ends(work).saturating_add(self.copying(gpu, batch));
        let (on_gpu, gpu) = in_service().map(|gpu| (cost(gpu), gpu)).min_by_key(|(cost, _)| *cost)?;
        match &self.cpu {
            Some(cpu) if cpu.cost(work) <= on_gpu => Some(Choice::Cpu(cpu.load.begin(work))),
            Some(_) | None => Some(Choice::Gpu(gpu, gpu.load.begin(work))),
        }
    }

    /// Nanoseconds for copying buffers that the device cannot reach.
    fn copying(&self, gpu: &Gpu, batch: &Batch) -> u64 {
        let far = [&batch.input, &batch.output].into_iter().filter(|buffer| !gpu.engine.reaches(buffer));
        (far.map(|buffer| buffer.len() as f64).sum::<f64>() * COPY) as u64
    }

    /// Names of the devices.
    pub fn description(&self) -> String {
        let names: Vec<&str> = self.gpus.iter().map(|gpu| gpu.engine.description().name.as_str()).collect();
        names.join(", ")
    }
}

/// Every device that works; at least one. The errors of the others are logged.
fn working() -> Result<Vec<GpuEngine>, String> {
    let opened = GpuEngine::open_all().map_err(|error| error.to_string())?;
    let (mut engines, mut first, several) = (Vec::new(), None, opened.len() > 1);
    for (number, result) in opened.into_iter().enumerate() {
        match result {
            Ok(engine) => engines.push(engine),
            Err(fault) => {
                if several {
                    log::warn!("gpu {number}: not used: {fault}");
                }
                first = first.or(Some(fault.to_string()));
            }
        }
    }
    match first {
        Some(fault) if engines.is_empty() => Err(fault),
        _ => Ok(engines),
    }
}
