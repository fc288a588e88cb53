//! The engines of this machine and how long they take, kept in the user's cache directory: `warpcrypt` measures
//! an engine once for each device, driver, processor and version of its own.

use super::{
    BufferPool, CpuEngine, Description, Engine, EngineError, GpuEngine,
    gpu::devices,
    measure::{self, Profile},
};
use serde::{Deserialize, Serialize};
use std::{env, fs, io, path::PathBuf};

/// Profiles that are kept at most: a cache directory may be shared by several machines.
const KEPT: usize = 16;

/// What a profile holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    program: String,
    engine: String,
    driver: i32,
    processor: String,
    threads: usize,
}

impl Key {
    fn new(cpu: &CpuEngine, gpu: Option<&Description>) -> Self {
        Key {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            engine: gpu.map_or("cpu", |gpu| &gpu.name).to_owned(),
            driver: gpu.map_or(0, |gpu| gpu.driver),
            processor: processor(),
            threads: cpu.threads(),
        }
    }
}

/// The processor's name as the kernel has it, or nothing.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}

/// An entry of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    profile: Profile,
}

/// The profile of the CPU, and the engines with theirs: those that were kept, or new ones.
///
/// # Errors
/// If an engine fails while it is measured.
pub(super) fn profiles(
    cpu: &CpuEngine,
    gpus: Vec<GpuEngine>,
) -> Result<(Profile, Vec<(GpuEngine, Profile)>), EngineError> {
    let (mut kept, mut changed) = (read(), false);
    let mut profile_of = |gpu: Option<&GpuEngine>| {
        let key = Key::new(cpu, gpu.map(GpuEngine::description));
        if let Some(found) = kept.iter().find(|kept| kept.key == key) {
            return Ok(found.profile.clone());
        }
        let pool = BufferPool::new(usize::MAX);
        let supplier = gpu.or(gpus.first());
        supplier.inspect(|gpu| gpu.supply(&pool));
        let profile = measure::profile(gpu.map_or(cpu as &dyn Engine, |gpu| gpu), cpu, &pool)?;
        changed = true;
        kept.insert(0, Kept { key, profile: profile.clone() });
        Ok(profile)
    };
    let of_cpu = profile_of(None)?;
    let of_gpus = gpus.iter().map(|gpu| profile_of(Some(gpu))).collect::<Result<Vec<_>, _>>()?;
    kept.truncate(KEPT);
    if changed && let Err(e) = write(&kept) {
        log::debug!("the measurement of the engines was not kept: {e}");
    }
    Ok((of_cpu, gpus.into_iter().zip(of_gpus).collect()))
}

fn file() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("warpcrypt/engines.json"))
}

fn read() -> Vec<Kept> {
    let content = || serde_json::from_slice::<Vec<Kept>>(&fs::read(file()?).ok()?).ok();
    content().unwrap_or_default().into_iter().filter(|kept| kept.profile.is_whole()).collect()
}

/// Replaces the file at once, so that a reader never sees half of it.
fn write(kept: &[Kept]) -> io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    let Some(dir) = path.parent() else { return Ok(()) };
    fs::create_dir_all(dir)?;
    let temporary = dir.join(format!("engines.{}", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(kept)?)?;
    fs::rename(&temporary, &path).inspect_err(|_| _ = fs::remove_file(&temporary))
}

/// Forgets what was measured.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget() -> io::Result<()> {
    match file().map(fs::remove_file) {
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The engines of this machine.
pub struct Survey {
    /// Threads of the CPU engine.
    pub threads: usize,
    /// What was measured, or why there is no GPU.
    pub measured: Result<Measured, String>,
}

/// A device and its profile, or what it fails at.
pub type Surveyed = Result<(Description, Profile), String>;

/// What was measured where there is a GPU.
pub struct Measured {
    /// The CPU's profile.
    pub cpu: Profile,
    /// Every device with its number: its profile, or what it fails at.
    pub gpus: Vec<(usize, Surveyed)>,
}

/// Looks for the engines and measures them, unless that was done before.
pub fn survey() -> Survey {
    let cpu = CpuEngine::new();
    Survey { threads: cpu.threads(), measured: measured(&cpu) }
}

fn measured(cpu: &CpuEngine) -> Result<Measured, String> {
    let count = devices().map_err(|error| error.to_string())?;
    let (mut engines, mut gpus) = (Vec::new(), Vec::new());
    for number in 0..count {
        match GpuEngine::open(number) {
            Ok(engine) => engines.push((number, engine)),
            Err(fault) => gpus.push((number, Err(fault.to_string()))),
        }
    }
    if let ([], [(_, Err(why)), ..]) = (&engines[..], &gpus[..]) {
        return Err(why.clone());
    }
    let (numbers, engines): (Vec<_>, Vec<_>) = engines.into_iter().unzip();
    let (of_cpu, of_gpus) = profiles(cpu, engines).map_err(|error| error.to_string())?;
    for (number, (engine, profile)) in numbers.into_iter().zip(of_gpus) {
        gpus.push((number, Ok((engine.description().clone(), profile))));
    }
    gpus.sort_by_key(|(number, _)| *number);
    Ok(Measured { cpu: of_cpu, gpus })
}
