//! Calibration: the time each engine of this machine takes for batches of a function, measured once and
//! stored.

use super::{
    BufferPool, CpuEngine, Description, Engine, EngineError, GpuEngine, measure,
    profile::{Curve, Function, Profile},
    records::RecordKey,
};

/// The calibrated engines of this machine.
pub struct Calibration {
    /// Threads of the CPU engine.
    pub threads: usize,
    /// The measurements, or why there is no GPU to compare with.
    pub measured: Result<Measured, String>,
}

/// Measurements of a machine with a GPU.
pub struct Measured {
    /// The CPU's profile.
    pub cpu: Profile,
    /// Every device, by number: its description and profile, or its error.
    pub gpus: Vec<Result<(Description, Profile), String>>,
}

/// Finds the engines and measures every function that has no stored measurement.
pub fn calibrate() -> Calibration {
    let cpu = CpuEngine::new();
    Calibration { threads: cpu.threads(), measured: measured(&cpu) }
}

/// The stored curve, or one that is measured now and stored.
///
/// # Errors
/// If an engine fails.
pub(super) fn curve(
    engine: &dyn Engine,
    key: &RecordKey,
    function: Function,
    cpu: &CpuEngine,
    pool: &BufferPool,
) -> Result<Curve, EngineError> {
    if let Some(kept) = key.profile().curve(function) {
        return Ok(kept.clone());
    }
    let curve = measure::curve(engine, cpu, function, pool)?;
    key.keep(function, curve.clone());
    Ok(curve)
}

fn measured(cpu: &CpuEngine) -> Result<Measured, String> {
    let opened = GpuEngine::open_all().map_err(|error| error.to_string())?;
    if opened.iter().all(Result::is_err) {
        let first = opened.into_iter().find_map(Result::err);
        return Err(first.map_or_else(|| "there is no device".to_owned(), |fault| fault.to_string()));
    }
    let pool = BufferPool::new(usize::MAX);
    let profile = |engine: &dyn Engine, key: &RecordKey| -> Result<Profile, String> {
        let mut profile = Profile::new();
        for function in Function::all() {
            let curve = curve(engine, key, function, cpu, &pool).map_err(|error| error.to_string())?;
            profile.put(function, curve);
        }
        Ok(profile)
    };
    if let Some(gpu) = opened.iter().flatten().next() {
        gpu.supply(&pool);
    }
    let of_cpu = profile(cpu, &RecordKey::new(cpu, None))?;
    let of_gpu = |gpu: GpuEngine| {
        gpu.supply(&pool);
        let device = gpu.description().clone();
        let profile = profile(&gpu, &RecordKey::new(cpu, Some(&device)))?;
        Ok((device, profile))
    };
    let gpus = opened.into_iter().map(|gpu| gpu.map_err(|fault| fault.to_string()).and_then(of_gpu));
    Ok(Measured { cpu: of_cpu, gpus: gpus.collect() })
}
