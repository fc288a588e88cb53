//! A survey of this machine's engines: every function measured on each, once.

use super::{
    BufferPool, CpuEngine, Description, Engine, EngineError, Fault, GpuEngine, Ways, measure,
    profile::{Function, LARGEST, Profile},
    records::Key,
    tuning,
};

/// The engines of this machine.
pub struct Survey {
    /// Threads of the CPU engine.
    pub threads: usize,
    /// What was measured, or why there is no GPU.
    pub measured: Result<Measured, String>,
}

/// A device that was measured.
pub struct Surveyed {
    /// Which it is.
    pub device: Description,
    /// The ways that pieces go on it.
    pub ways: Ways,
    /// What it takes for batches.
    pub profile: Profile,
}

/// What was measured where there is a GPU.
pub struct Measured {
    /// The CPU's profile.
    pub cpu: Profile,
    /// Every device by its number, or what it fails at.
    pub gpus: Vec<Result<Surveyed, String>>,
}

/// Looks for the engines and measures what was not measured before.
pub fn survey() -> Survey {
    let cpu = CpuEngine::new();
    Survey { threads: cpu.threads(), measured: measured(&cpu) }
}

fn measured(cpu: &CpuEngine) -> Result<Measured, String> {
    let opened = GpuEngine::open_all().map_err(|error| error.to_string())?;
    if opened.iter().all(Result::is_err) {
        let first = opened.into_iter().find_map(Result::err);
        return Err(first.map_or_else(|| "there is no device".to_owned(), |fault| fault.to_string()));
    }
    let pool = BufferPool::new(usize::MAX);
    if let Some(gpu) = opened.iter().flatten().next() {
        gpu.supply(&pool);
    }
    let of_cpu = complete(&Key::new(cpu, None), cpu, cpu, &pool).map_err(|error| error.to_string())?;
    let profile = |gpu: Result<GpuEngine, Fault>| {
        let gpu = gpu.map_err(|fault| fault.to_string())?;
        gpu.supply(&pool);
        let key = Key::new(cpu, Some(gpu.description()));
        let ways = tuned(&key, &gpu, cpu, &pool).map_err(|error| error.to_string())?;
        let profile = complete(&key, &gpu, cpu, &pool).map_err(|error| error.to_string())?;
        Ok(Surveyed { device: gpu.description().clone(), ways, profile })
    };
    Ok(Measured { cpu: of_cpu, gpus: opened.into_iter().map(profile).collect() })
}

/// The ways that are kept for a device, or were measured and are kept from now on; it takes them.
fn tuned(key: &Key, gpu: &GpuEngine, cpu: &CpuEngine, pool: &BufferPool) -> Result<Ways, EngineError> {
    let ways = match key.ways() {
        Some(ways) => ways,
        None => tuning::ways(gpu, cpu, pool).inspect(|ways| key.keep_ways(*ways))?,
    };
    gpu.set_ways(ways);
    Ok(ways)
}

/// What is kept for an engine, with what that lacks measured, and kept from now on.
fn complete(
    key: &Key,
    engine: &dyn Engine,
    cpu: &CpuEngine,
    pool: &BufferPool,
) -> Result<Profile, EngineError> {
    let mut profile = key.profile();
    let lacks = |function: &Function| !profile.curve(*function).is_some_and(measure::is_whole);
    let missing: Vec<Function> = Function::all().filter(lacks).collect();
    if !missing.is_empty() {
        for function in missing {
            profile.put(function, measure::curve(engine, cpu, function, LARGEST, pool)?);
        }
        key.keep(Function::all().filter_map(|f| Some((f, profile.curve(f)?.clone()))));
    }
    Ok(profile)
}
