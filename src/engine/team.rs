//! The GPUs that work beside the CPU, what is known of all of them, and which gets a batch.

use super::{
    Batch, BufferPool, CpuEngine, Engine, EngineError, GpuEngine, calibration,
    cost::price,
    cpu_pressure::CpuPressure,
    line::{Line, Turn, Work},
    profile::{Function, Profile, crossover},
    records::Key,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

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
    cpu: Option<Partner>,
    pub gpus: Vec<Gpu>,
}

/// The CPU beside the GPUs.
struct Partner {
    line: Line,
    threads: usize,
    pressure: CpuPressure,
    /// Functions that have to be measured before a GPU gets a batch, each asked for once at a time.
    wanted: Sender<Function>,
    asked: Vec<AtomicBool>,
}

impl Partner {
    /// What a batch costs the CPU: until it should be done, and what others lose.
    fn cost(&self, work: Work) -> u64 {
        let active = self.line.active();
        let own = if active > 0 { active + self.threads - 1 } else { 0 };
        let all = self.line.occupied(work) as f64 * self.threads as f64;
        self.line.ends(work).saturating_add(price(all, self.pressure.of_others(own), self.threads))
    }

    fn want(&self, function: Function) {
        if !self.asked[function.number()].swap(true, Relaxed) {
            let _ = self.wanted.send(function); // Without a thread that measures it, it stays unknown.
        }
    }
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
    pub fn of_gpus() -> Result<Self, String> {
        let gpu = |engine| Gpu { engine, line: Line::new(&Profile::new()), tally: Tally::default() };
        Ok(Team { cpu: None, gpus: working()?.into_iter().map(gpu).collect() })
    }

    /// The devices beside the CPU, and the functions that they need measured, as they come to be needed.
    ///
    /// # Errors
    /// If there is no device that works: why the first does not.
    pub fn beside(cpu: &CpuEngine) -> Result<(Self, Receiver<Function>), String> {
        let gpu = |engine: GpuEngine| {
            let line = Line::new(&Key::new(cpu, Some(engine.description())).profile());
            Gpu { engine, line, tally: Tally::default() }
        };
        let gpus = working()?.into_iter().map(gpu).collect();
        let (wanted, needed) = unbounded();
        let partner = Partner {
            line: Line::new(&Key::new(cpu, None).profile()),
            threads: cpu.threads(),
            pressure: CpuPressure::new(cpu.threads()),
            wanted,
            asked: (0..Function::COUNT).map(|_| AtomicBool::new(false)).collect(),
        };
        Ok((Team { cpu: Some(partner), gpus }, needed))
    }

    /// Measures a function on every engine in service of which it is not known. It may be wanted again afterwards, for
    /// one that was out of service or failed.
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
        let known = |line: &Line| line.curve(function).is_some();
        if known(&partner.line) && in_service().all(|gpu| known(&gpu.line)) {
            return Ok(());
        }
        // Keeps no buffer: memory is the mount's, not this one's.
        let pool = BufferPool::new(0);
        let measure = |engine: &dyn Engine, line: &Line, key: Key| {
            if !known(line) {
                line.know(function, calibration::curve(engine, &key, function, cpu, &pool)?);
            }
            Ok(())
        };
        for gpu in in_service() {
            gpu.engine.supply(&pool);
            measure(&gpu.engine, &gpu.line, Key::new(cpu, Some(gpu.engine.description())))?;
        }
        measure(cpu, &partner.line, Key::new(cpu, None))?;
        for gpu in &self.gpus {
            if let (Some(on_cpu), Some(on_gpu)) = (partner.line.curve(function), gpu.line.curve(function)) {
                let from = crossover(on_cpu, on_gpu).map(|bytes| format!("from {} KiB on", bytes >> 10));
                let when = from.unwrap_or_else(|| "never".to_owned());
                log::info!("engine: {function}: {} is faster than the idle CPU {when}", gpu.engine.name());
            }
        }
        Ok(())
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

    /// The engine on which the batch costs least; `None` if that can be none but the CPU.
    pub fn choose(&self, batch: &Batch, bytes: usize) -> Option<Choice<'_>> {
        let work = Work { function: Function::of(batch)?, bytes };
        let in_service = || self.gpus.iter().filter(|gpu| gpu.engine.in_service());
        let known = |line: &Line| line.curve(work.function).is_some();
        if let Some(cpu) = &self.cpu
            && !(known(&cpu.line) && in_service().all(|gpu| known(&gpu.line)))
        {
            cpu.want(work.function);
            return None;
        }
        let cost = |gpu: &Gpu| gpu.line.ends(work).saturating_add(self.copying(gpu, batch));
        let (on_gpu, gpu) = in_service().map(|gpu| (cost(gpu), gpu)).min_by_key(|(cost, _)| *cost)?;
        match &self.cpu {
            Some(cpu) if cpu.cost(work) <= on_gpu => Some(Choice::Cpu(cpu.line.begin(work))),
            Some(_) | None => Some(Choice::Gpu(gpu, gpu.line.begin(work))),
        }
    }

    /// Nanoseconds for copying what the device does not reach.
    fn copying(&self, gpu: &Gpu, batch: &Batch) -> u64 {
        let far = [&batch.input, &batch.output].into_iter().filter(|buffer| !gpu.engine.reaches(buffer));
        (far.map(|buffer| buffer.len() as f64).sum::<f64>() * COPY) as u64
    }

    /// The devices.
    pub fn description(&self) -> String {
        let names: Vec<&str> = self.gpus.iter().map(|gpu| gpu.engine.description().name.as_str()).collect();
        names.join(", ")
    }
}

/// Every device that works, one at least. What the others lack is logged.
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
