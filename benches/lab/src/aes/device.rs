//! The AES kernels on a device, and their data.

use super::{BLOCK, CIPHERS, COUNTER, KEY, KIB, MIB, THREADS, apply};
use crate::{
    device::{Lab, Launch, Parameter, Texture},
    experiment::{Bench, Journeys, compare, failed, grid, noise},
    report::Spread,
};
use crypto::{
    aes_keys::AesRoundKeys,
    cipher::{Cipher, CipherKey},
};
use engine::driver::{DeviceMemory, Module};
use std::sync::Arc;
use warpcrypt::cli::lab::Outcome;

static FATBIN: &[u8] = include_bytes!("../../kernels/aes.fatbin");

/// Bytes that one unit of bit slices covers: 1024 blocks.
const UNIT: usize = 1024 * BLOCK;
const MOST_ROUND_KEYS: usize = 15;

/// Round keys for both directions on the device.
struct Schedule {
    cipher: Cipher,
    rounds: usize,
    bytes: [Vec<u8>; 2],
    memory: [DeviceMemory; 2],
}

pub(crate) struct Device<'a> {
    pub bench: &'a Bench,
    pub lab: &'a Lab,
    module: Arc<Module>,
    texture: Texture,
    schedules: Vec<Schedule>,
    pub counter: DeviceMemory,
    pub input: DeviceMemory,
    pub output: DeviceMemory,
}

impl<'a> Device<'a> {
    /// Opens it with room for `most` bytes, a multiple of 1 MiB.
    pub fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
        let load = || {
            let module = lab.load(FATBIN)?;
            let texture = lab.texture(&module, "AES_EXPERIMENT_TABLES", 1)?;
            let mut schedules = Vec::new();
            for cipher in CIPHERS {
                let keys = AesRoundKeys::new(&KEY[..cipher.key_len()]);
                let bytes = [keys.encryption_keys(), &keys.decryption_keys()].map(|keys| {
                    let mut bytes = keys.as_flattened().to_vec();
                    bytes.resize(MOST_ROUND_KEYS * BLOCK, 0);
                    bytes
                });
                let memory = [lab.memory(bytes[0].len())?, lab.memory(bytes[1].len())?];
                lab.upload(&bytes[0], &memory[0])?;
                lab.upload(&bytes[1], &memory[1])?;
                schedules.push(Schedule { cipher, rounds: keys.rounds(), bytes, memory });
            }
            let counter = lab.memory(BLOCK)?;
            lab.upload(&COUNTER, &counter)?;
            let (input, output) = (lab.memory(most)?, lab.memory(most)?);
            lab.upload(&noise(MIB).repeat(most / MIB), &input)?;
            Ok(Device { bench, lab, module, texture, schedules, counter, input, output })
        };
        load().map_err(failed)
    }

    /// Calls `with` with the launch of this variant over `bytes`. Returns `None` without calling it if the
    /// variant does not support this number of threads or so little data.
    pub fn with<T>(
        &self,
        (name, mode): (&str, &str),
        cipher: Cipher,
        (threads, bytes): (u32, usize),
        with: impl FnOnce(&Launch) -> Outcome<Option<T>>,
    ) -> Outcome<Option<T>> {
        let (bits, decrypts) = (name == "bits", mode == "decrypt");
        let Some(schedule) = self.schedules.iter().find(|schedule| schedule.cipher == cipher) else {
            return Ok(None);
        };
        if bits && (bytes % UNIT != 0 || threads % 32 != 0) {
            return Ok(None);
        }
        let sharing = name.rsplit('_').next().and_then(|n| n.parse().ok());
        let shared = shared_memory(name, decrypts, threads as usize, sharing.unwrap_or(1.0));
        let kernel = self.lab.kernel(&self.module, &format!("aes_{name}_{mode}"), shared).map_err(failed)?;
        let occupancy = self.lab.occupancy(&kernel, threads).map_err(failed)?;
        if occupancy == 0 {
            return Ok(None);
        }
        let half = usize::from(decrypts);
        self.lab.write(&self.module, "AES_EXPERIMENT_KEYS", &schedule.bytes[half]).map_err(failed)?;
        let parameters = [
            Parameter::Memory(&schedule.memory[half]),
            Parameter::Number(schedule.rounds as u64),
            Parameter::Memory(&self.counter),
            Parameter::Memory(&self.input),
            Parameter::Memory(&self.output),
            Parameter::Number((bytes / BLOCK) as u64),
            Parameter::Texture(&self.texture),
        ];
        let items = (bytes / BLOCK) as f64 * if bits { 1.0 / 32.0 } else { sharing.unwrap_or(1.0) };
        let blocks = grid(self.lab, items, threads, occupancy);
        with(&Launch { kernel: &kernel, blocks, threads, parameters: &parameters })
    }

    /// GB/s of a variant, after comparing its output with the CPU's.
    pub fn rate(
        &self,
        (name, mode): (&str, &str),
        cipher: Cipher,
        (threads, bytes): (u32, usize),
    ) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{name}, {mode}, {cipher:?}, {threads} threads, {} KiB", bytes / KIB))?;
        self.with((name, mode), cipher, (threads, bytes), |launch| {
            self.lab.launch(launch).map_err(failed)?;
            let len = bytes.min(256 * KIB);
            let (mut expected, mut found) = (vec![0; len], vec![0; len]);
            self.lab.download(&self.input, &mut expected).map_err(failed)?;
            self.lab.download(&self.output, &mut found).map_err(failed)?;
            apply(&CipherKey::new(cipher, &KEY[..cipher.key_len()]), mode, &mut expected);
            compare(name, &found, &expected)?;
            self.bench.kernel(self.lab, &[*launch], bytes as f64 / 1e9)
        })
    }

    /// GB/s of a variant including transfers from and to host memory.
    pub fn journey(
        &self,
        (name, mode): (&str, &str),
        cipher: Cipher,
        journeys: &mut Journeys,
        (is_pinned, bytes): (bool, usize),
    ) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{name}, {mode} with transfers, {} KiB", bytes / KIB))?;
        let [from, to] = journeys.memory(is_pinned, bytes);
        self.with((name, mode), cipher, (THREADS, bytes), |launch| {
            let (upload, download) = ((&*from, &self.input), (&self.output, to));
            self.bench.journey(self.lab, &[*launch], &[upload], download, bytes as f64 / 1e9)
        })
    }
}

/// Bytes of dynamic shared memory that a variant's contract requires (`aes.cu`).
fn shared_memory(name: &str, decrypts: bool, threads: usize, sharing: f64) -> usize {
    let tables = if name.contains("rows") { 4 } else { 1 } + usize::from(decrypts);
    let tables = match name.split('_').next() {
        Some("shared") => tables * KIB,
        Some("spread") => 65 * KIB,
        Some("bits") => return 7680,
        _ => 0,
    };
    let staged = (threads as f64 / sharing) as usize * BLOCK;
    let text = match name {
        name if name.contains("staged") => staged,
        name if name.contains("state") => 2 * BLOCK * threads,
        _ => 0,
    };
    256 + tables + text
}
