//! The engines of this machine and how they compare, kept in the user's cache directory: `warpcrypt` measures
//! a device once for each driver and each version of its own.

use super::{BufferPool, CpuEngine, Description, EngineError, GpuEngine, measure};
use measure::Comparison;
use serde::{Deserialize, Serialize};
use std::{env, fs, io, path::PathBuf};

/// What the measurement holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    program: String,
    device: String,
    driver: i32,
    threads: usize,
}

impl Key {
    fn new(cpu: &CpuEngine, gpu: &Description) -> Self {
        Key {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            device: gpu.name.clone(),
            driver: gpu.driver,
            threads: cpu.threads(),
        }
    }
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    comparisons: Vec<Comparison>,
}

/// The comparisons of these two engines: those that were kept, or new ones.
///
/// # Errors
/// If an engine fails while it is measured.
pub(super) fn comparisons(
    cpu: &CpuEngine,
    gpu: &GpuEngine,
    pool: &BufferPool,
) -> Result<Vec<Comparison>, EngineError> {
    let key = Key::new(cpu, gpu.description());
    if let Some(kept) = read().filter(|kept| kept.key == key) {
        return Ok(kept.comparisons);
    }
    let comparisons = measure::compare(cpu, gpu, pool)?;
    if let Err(e) = write(&Kept { key, comparisons: comparisons.clone() }) {
        log::debug!("the measurement of the engines was not kept: {e}");
    }
    Ok(comparisons)
}

fn file() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("warpcrypt/engines.json"))
}

fn read() -> Option<Kept> {
    serde_json::from_slice(&fs::read(file()?).ok()?).ok()
}

/// Replaces the file at once, so that a reader never sees half of it.
fn write(kept: &Kept) -> io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    let Some(dir) = path.parent() else { return Ok(()) };
    fs::create_dir_all(dir)?;
    let temporary = dir.join(format!("engines.{}", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(kept)?)?;
    fs::rename(&temporary, &path).inspect_err(|_| _ = fs::remove_file(&temporary))
}

/// The engines of this machine.
pub struct Survey {
    /// Threads of the CPU engine.
    pub threads: usize,
    /// The GPU and how the engines compare, or why there is none.
    pub gpu: Result<(Description, Vec<Comparison>), String>,
}

/// Looks for the engines and measures them, unless that was done before.
pub fn survey() -> Survey {
    let cpu = CpuEngine::new();
    let gpu = GpuEngine::open().map_err(|fault| fault.to_string()).and_then(|gpu| {
        let pool = BufferPool::new(usize::MAX);
        gpu.supply(&pool);
        let comparisons = comparisons(&cpu, &gpu, &pool).map_err(|error| error.to_string())?;
        Ok((gpu.description().clone(), comparisons))
    });
    Survey { threads: cpu.threads(), gpu }
}
