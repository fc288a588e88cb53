//! What was measured, kept in the user's cache directory for each device, driver, processor and version of the
//! program.

use super::{
    CpuEngine, Description,
    profile::{Curve, Function, Profile},
};
use serde::{Deserialize, Serialize};
use std::{env, fs, io, path::PathBuf};

/// Profiles that are kept at most: a cache directory may be shared by several machines.
const KEPT: usize = 16;

/// What a profile holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    program: String,
    engine: String,
    driver: i32,
    processor: String,
    threads: usize,
}

impl Key {
    /// That of the CPU, or of a GPU beside it.
    pub fn new(cpu: &CpuEngine, gpu: Option<&Description>) -> Self {
        Key {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            engine: gpu.map_or("cpu", |gpu| &gpu.name).to_owned(),
            driver: gpu.map_or(0, |gpu| gpu.driver),
            processor: processor(),
            threads: cpu.threads(),
        }
    }

    /// What is kept for it; an empty profile if nothing is.
    pub fn profile(&self) -> Profile {
        let found = read().into_iter().find(|kept| kept.key == *self);
        found.map_or_else(Profile::new, |kept| kept.profile)
    }

    /// Keeps a curve beside those that are kept already. That it cannot is logged: it is a cache.
    pub fn keep(&self, function: Function, curve: Curve) {
        let mut all = read();
        let mut own = match all.iter().position(|kept| kept.key == *self) {
            Some(place) => all.remove(place),
            None => Kept { key: self.clone(), profile: Profile::new() },
        };
        own.profile.put(function, curve);
        all.insert(0, own);
        all.truncate(KEPT);
        if let Err(e) = write(&all) {
            log::debug!("the measurement of the engines was not kept: {e}");
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

fn file() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("warpcrypt/engines.json"))
}

fn read() -> Vec<Kept> {
    let content = || serde_json::from_slice::<Vec<Kept>>(&fs::read(file()?).ok()?).ok();
    content().unwrap_or_default().into_iter().filter(|kept| kept.profile.is_sound()).collect()
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
