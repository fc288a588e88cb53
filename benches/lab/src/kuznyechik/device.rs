//! The Kuznyechik kernels on a device, and their data.

use super::{BLOCK, KEY, THREADS, apply};
use crate::{
    device::{Lab, Launch, Parameter, Texture},
    experiment::{Bench, Journeys, compare, failed, grid, much_noise},
    report::Spread,
};
use crypto::{
    cipher::{Cipher, CipherKey},
    kuznyechik::Kuznyechik,
};
use engine::driver::{DeviceMemory, Module};
use std::sync::Arc;
use warpcrypt::cli::lab::Outcome;

static FATBIN: &[u8] = include_bytes!("../../kernels/kuznyechik.fatbin");
static CONSTANT_FATBIN: &[u8] = include_bytes!("../../kernels/kuznyechik_constant.fatbin");

/// The modules on a device, and the data.
pub(super) struct Device<'a> {
    pub bench: &'a Bench,
    pub lab: &'a Lab,
    module: Arc<Module>,
    constant: Arc<Module>,
    texture: Texture,
    keys: [DeviceMemory; 2],
    input: DeviceMemory,
    output: DeviceMemory,
}

impl<'a> Device<'a> {
    pub fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
        let load = || {
            let modules = [lab.load(FATBIN)?, lab.load(CONSTANT_FATBIN)?];
            let fill = lab.kernel(&modules[0], "kuznyechik_tables", 0)?;
            lab.launch(&Launch { kernel: &fill, blocks: 32, threads: 256, parameters: &[] })?;
            lab.wait()?;
            lab.copy(&modules[0], "KUZNYECHIK_PI_WORDS", "KUZNYECHIK_PI_CONSTANT")?;
            let fill = lab.kernel(&modules[1], "kuznyechik_tables_too", 0)?;
            lab.launch(&Launch { kernel: &fill, blocks: 32, threads: 256, parameters: &[] })?;
            lab.wait()?;
            lab.copy(&modules[1], "KUZNYECHIK_BY_TABLE", "KUZNYECHIK_TABLES_CONSTANT")?;
            let texture = lab.texture(&modules[0], "KUZNYECHIK_BY_TABLE", 4)?;
            let schedule = Kuznyechik::new(&KEY);
            let mut keys = Vec::new();
            for half in [schedule.encryption_keys(), schedule.decryption_keys()] {
                let memory = lab.memory(half.as_flattened().len())?;
                lab.upload(half.as_flattened(), &memory)?;
                keys.push(memory);
            }
            let (input, output) = (lab.memory(most)?, lab.memory(most)?);
            Ok((modules, texture, keys, input, output))
        };
        let ([module, constant], texture, keys, input, output) = load().map_err(failed)?;
        let Ok(keys) = <[DeviceMemory; 2]>::try_from(keys) else { unreachable!("two directions") }; // invariant: pushed twice
        lab.upload(&much_noise(most), &input).map_err(failed)?;
        Ok(Device { bench, lab, module, constant, texture, keys, input, output })
    }

    /// Calls `with` with the launch of this variant over `bytes`. Returns `None` without calling it if the
    /// variant does not support this number of threads.
    pub fn with<T>(
        &self,
        name: &str,
        threads: u32,
        bytes: usize,
        with: impl FnOnce(&Launch) -> Outcome<Option<T>>,
    ) -> Outcome<Option<T>> {
        let decrypts = name.contains("_pi_");
        let tables = if name.starts_with("shared") || name.starts_with("spread") { 65536 } else { 0 };
        let shared = 256 + if decrypts { 1024 } else { 0 } + tables;
        let module = if name.starts_with("constant") { &self.constant } else { &self.module };
        let kernel = self.lab.kernel(module, &format!("kuznyechik_{name}"), shared).map_err(failed)?;
        let occupancy = self.lab.occupancy(&kernel, threads).map_err(failed)?;
        if occupancy == 0 {
            return Ok(None);
        }
        let blocks = bytes / BLOCK;
        let at_once = name.rsplit('_').next().and_then(|n| n.parse().ok()).unwrap_or(1.0);
        let parameters = [
            Parameter::Memory(&self.keys[usize::from(decrypts)]),
            Parameter::Memory(&self.input),
            Parameter::Memory(&self.output),
            Parameter::Number(blocks as u64),
            Parameter::Texture(&self.texture),
        ];
        let grid = grid(self.lab, blocks as f64 / at_once, threads, occupancy);
        with(&Launch { kernel: &kernel, blocks: grid, threads, parameters: &parameters })
    }

    /// GB/s of a variant, after comparing its output with the CPU's.
    pub fn rate(&self, name: &str, threads: u32, bytes: usize) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{name}, {threads} threads, {} KiB", bytes >> 10))?;
        self.with(name, threads, bytes, |launch| {
            self.lab.launch(launch).map_err(failed)?;
            let len = bytes.min(128 << 10);
            let (mut expected, mut found) = (vec![0; len], vec![0; len]);
            self.lab.download(&self.input, &mut expected).map_err(failed)?;
            self.lab.download(&self.output, &mut found).map_err(failed)?;
            apply(&CipherKey::new(Cipher::Kuznyechik, &KEY), name.contains("_pi_"), &mut expected);
            compare(name, &found, &expected)?;
            self.bench.kernel(self.lab, &[*launch], bytes as f64 / 1e9)
        })
    }

    /// GB/s of a variant including transfers from and to host memory.
    pub fn journey(
        &self,
        name: &str,
        journeys: &mut Journeys,
        is_pinned: bool,
        bytes: usize,
    ) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{name} with transfers, {} KiB", bytes >> 10))?;
        let [from, to] = journeys.memory(is_pinned, bytes);
        self.with(name, THREADS, bytes, |launch| {
            let (upload, download) = ((&*from, &self.input), (&self.output, to));
            self.bench.journey(self.lab, &[*launch], &[upload], download, bytes as f64 / 1e9)
        })
    }
}
