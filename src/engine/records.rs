//! What was measured, kept in the user's cache directory for each device, driver, processor and version of the
//! program.

use super::{
    CpuEngine, Description, Ways,
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

    /// The ways that were found to be the fastest on the device.
    pub fn ways(&self) -> Option<Ways> {
        read().into_iter().find(|kept| kept.key == *self)?.ways
    }

    /// Keeps the device's ways, and no curve: those were measured with others.
    pub fn keep_ways(&self, ways: Ways) {
        let rest = read().into_iter().filter(|kept| kept.key != *self);
        let own = Kept { key: self.clone(), profile: Profile::new(), ways: Some(ways) };
        replace([own].into_iter().chain(rest).collect());
    }

    /// Keeps curves beside those that are kept already.
    pub fn keep(&self, curves: impl IntoIterator<Item = (Function, Curve)>) {
        let mut all = read();
        let mut own = match all.iter().position(|kept| kept.key == *self) {
            Some(place) => all.remove(place),
            None => Kept { key: self.clone(), profile: Profile::new(), ways: None },
        };
        curves.into_iter().for_each(|(function, curve)| own.profile.put(function, curve));
        all.insert(0, own);
        replace(all);
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
    /// Of a GPU whose ways were measured.
    ways: Option<Ways>,
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

/// Keeps the first of these. That it cannot is logged: it is a cache.
fn replace(mut kept: Vec<Kept>) {
    kept.truncate(KEPT);
    if let Err(e) = write(&kept) {
        log::debug!("the measurement of the engines was not kept: {e}");
    }
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

/// The ways that were measured on a device and are kept for it.
pub fn kept_ways(device: &Description) -> Option<Ways> {
    Key::new(&CpuEngine::new(), Some(device)).ways()
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
