//! `bench kuznyechik`: where the tables of Kuznyechik lie, how many blocks a thread takes, and how many threads a
//! block of threads has; after A. Borisov and E. Myasnikov, ITNT 2019, whose figures stand beside.

use super::{
    deliver,
    experiment::{Bench, Best, ExperimentArgs, Journeys, compare, failed, grid, noise},
};
use crate::{
    device::{Lab, Launch, Parameter, Texture},
    report::{Axis, Column, Plot, Report, Section, Spread, Table},
};
use std::sync::Arc;
use warpcrypt::{
    cli::lab::{Failure, Outcome},
    crypto::{
        cipher::{Cipher, CipherKey},
        kuznyechik::Kuznyechik,
    },
    engine::driver::{DeviceMemory, Module},
};

static FATBIN: &[u8] = include_bytes!("../kernels/kuznyechik.fatbin");
static CONSTANT_FATBIN: &[u8] = include_bytes!("../kernels/kuznyechik_constant.fatbin");

const BLOCK: usize = 16;
const KEY: [u8; 32] = [0x3c; 32];
/// Threads of a block wherever they are not what is compared: the paper's choice.
const THREADS: u32 = 384;
const MIB: usize = 1 << 20;

/// Encryption as the paper varied it, and what it measured in MB/s for its eight sizes (none for what it did not
/// try).
const ENCRYPTIONS: [(&str, &str, [f64; 8]); 7] = [
    ("global_1", "global", [14.53, 276.63, 1101.35, 2081.43, 2676.07, 2749.11, 2753.49, 2751.96]),
    (
        "global_2",
        "global, 2 blocks a thread",
        [9.39, 324.42, 1289.36, 1420.33, 1409.46, 1413.56, 1414.09, 1410.59],
    ),
    ("global_4", "global, 4 blocks a thread", [5.30, 167.14, 653.11, 871.99, 807.41, 795.88, 777.02, 765.46]),
    ("constant_1", "constant", [2.31, 44.75, 199.69, 517.61, 593.97, 597.32, 597.34, 598.01]),
    ("texture_1", "texture", [16.11, 322.99, 1274.43, 1410.79, 1399.39, 1402.86, 1403.36, 1401.16]),
    ("shared_1", "shared", [f64::NAN; 8]),
    ("spread_1", "shared, free of conflicts", [f64::NAN; 8]),
];
/// The paper's sizes in KiB.
const SIZES: [usize; 8] = [1, 32, 128, 1024, 16384, 65536, 131_072, 524_288];
const PAPER_CPU: [f64; 8] = [58.07, 75.47, 82.78, 148.62, 170.23, 173.47, 172.52, 175.65];
/// The paper's threads a block, and its rates for them, in the order of `ENCRYPTIONS`, at 128 MB.
const THREAD_COUNTS: [u32; 9] = [32, 64, 128, 192, 256, 384, 512, 768, 1024];
const PAPER_THREADS: [[f64; 9]; 5] = [
    [794.98, 1690.93, 2475.98, 2609.98, 2660.58, 2753.76, 2653.44, 2662.99, 2474.16],
    [795.12, 1136.62, 1310.17, 1362.72, 1344.85, 1413.43, 1347.74, 1330.55, 1257.86],
    [815.39, 811.03, 805.84, 827.18, 815.99, 778.76, 817.92, 984.20, 769.86],
    [21.26, 48.90, 104.12, 193.09, 423.87, 598.26, 551.30, 507.61, 438.11],
    [770.33, 1154.25, 1303.11, 1346.03, 1360.66, 1403.06, 1336.63, 1318.83, 1246.79],
];
/// Decryption by the place of the substitution, in global tables as the paper has them, at its sizes; and in shared
/// tables.
const DECRYPTIONS: [(&str, &str, [f64; 8]); 6] = [
    (
        "global_pi_global",
        "π in global memory",
        [12.76, 241.46, 958.29, 1807.57, 2173.85, 2375.58, 2368.84, 2362.16],
    ),
    (
        "global_pi_constant",
        "π in constant memory",
        [13.40, 256.22, 1022.64, 1926.67, 2128.08, 2143.06, 2144.83, 2144.83],
    ),
    (
        "global_pi_shared",
        "π in shared memory",
        [15.11, 296.46, 1187.42, 2258.10, 2505.29, 2522.35, 2517.98, 2523.55],
    ),
    ("spread_pi_global", "tables in shared memory, π in global", [f64::NAN; 8]),
    ("spread_pi_constant", "tables in shared memory, π in constant", [f64::NAN; 8]),
    ("spread_pi_shared", "tables and π in shared memory", [f64::NAN; 8]),
];

/// Runs `bench kuznyechik`.
///
/// # Errors
/// If the driver fails, a kernel computes something else than the CPU, or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("kuznyechik", "Kuznyechik: tables, blocks and threads");
    report.about("paper", "A. Borisov, E. Myasnikov, ITNT 2019: GeForce GTX 850M (DDR3), Core i7-4510U");
    let bench = Bench::start(args, &mut report)?;
    let sizes: Vec<(usize, usize)> = SIZES
        .iter()
        .enumerate()
        .filter(|(_, kib)| !bench.quick || **kib <= 16384)
        .map(|(at, kib)| (at, kib << 10))
        .collect();
    let most = sizes.last().map_or(MIB, |size| size.1);
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, most)).transpose()?;
    let device = device.as_ref();
    report.section(by_size("encryption", "Encryption by size", &bench, device, &sizes, &ENCRYPTIONS)?);
    if let Some(device) = device {
        report.section(by_threads(&bench, device, most.min(128 * MIB))?);
        report.section(by_order(&bench, device, most.min(128 * MIB))?);
    }
    report.section(by_size("decryption", "Decryption by size", &bench, device, &sizes, &DECRYPTIONS)?);
    if let Some(device) = device {
        report.section(transfers(&bench, device, &sizes)?);
    }
    drop(bench);
    deliver(&report, &args.report)
}

/// The modules on a device, and the data.
struct Device<'a> {
    bench: &'a Bench,
    lab: &'a Lab,
    module: Arc<Module>,
    constant: Arc<Module>,
    texture: Texture,
    keys: [DeviceMemory; 2],
    input: DeviceMemory,
    output: DeviceMemory,
}

impl<'a> Device<'a> {
    fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
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
        let noise = noise(most.min(MIB)).repeat(most.div_ceil(MIB).max(1));
        lab.upload(&noise[..most], &input).map_err(failed)?;
        Ok(Device { bench, lab, module, constant, texture, keys, input, output })
    }

    /// Calls `with` with the launch of that variant over `bytes`; not if it cannot have so many threads.
    fn with<T>(
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

    /// GB/s of a variant, after its output was compared with the CPU's.
    fn rate(&self, name: &str, threads: u32, bytes: usize) -> Outcome<Option<Spread>> {
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
}

/// ECB on the CPU.
fn apply(key: &CipherKey, decrypts: bool, data: &mut [u8]) {
    if decrypts { key.ecb_decrypt(data) } else { key.ecb_encrypt(data) }
}

fn cpu(bench: &Bench, threads: usize, bytes: usize, decrypts: bool) -> Outcome<Option<Spread>> {
    bench.next(&format!("CPU, {threads} threads, {} KiB", bytes >> 10))?;
    let (bytes, key) = (bytes.min(64 * MIB), CipherKey::new(Cipher::Kuznyechik, &KEY));
    Ok(bench
        .cpu(threads, (vec![0x5a; bytes], BLOCK), bytes as f64 / 1e9, &|data| apply(&key, decrypts, data)))
}

fn columns(key: Column) -> Vec<Column> {
    let mut columns = vec![Column::text("variant"), key];
    columns.extend(["rate", "lowest", "highest", "paper"].map(|name| Column::number(name, "GB/s")));
    columns
}

/// A row, and nothing where nothing was measured.
fn add(table: &mut Table, name: &str, key: u64, rate: Option<Spread>, paper_mb: f64) {
    let Some(rate) = rate else { return };
    let paper = Some(paper_mb / 1e3).filter(|rate| rate.is_finite());
    table.row([name.into(), key.into(), rate.median.into(), rate.low.into(), rate.high.into(), paper.into()]);
}

fn by_size(
    name: &str,
    title: &str,
    bench: &Bench,
    device: Option<&Device>,
    sizes: &[(usize, usize)],
    variants: &[(&str, &str, [f64; 8])],
) -> Outcome<Section> {
    let decrypts = name == "decryption";
    let mut table = Table::new(name, columns(Column::number("size", "B")));
    let mut plot = Plot::lines(title, Axis::bytes("data"), Axis::log("rate", "GB/s"));
    let mut best = Best::default();
    if let Some(device) = device {
        for (kernel, shown, paper) in variants {
            let mut line = Vec::new();
            for (at, bytes) in sizes {
                let rate = device.rate(kernel, THREADS, *bytes)?;
                add(&mut table, shown, *bytes as u64, rate, paper[*at]);
                line.extend(rate.map(|rate| (*bytes as f64, rate.median)));
                if Some(bytes) == sizes.last().map(|size| &size.1) {
                    best.add(shown, rate);
                }
            }
            plot = plot.line(shown, line);
        }
    }
    for (threads, shown) in [(1, "CPU, one core"), (bench.cores, "CPU, all cores")] {
        let mut line = Vec::new();
        for (at, bytes) in sizes {
            let rate = cpu(bench, threads, *bytes, decrypts)?;
            let paper = if threads > 1 && !decrypts { PAPER_CPU[*at] } else { f64::NAN };
            add(&mut table, shown, *bytes as u64, rate, paper);
            line.extend(rate.map(|rate| (*bytes as f64, rate.median)));
        }
        plot = plot.line(shown, line);
    }
    let figures = |paper: &[f64; 8]| -> Vec<(f64, f64)> {
        sizes.iter().map(|(at, bytes)| (*bytes as f64, paper[*at] / 1e3)).collect()
    };
    let headline = if decrypts { &variants[2] } else { &variants[0] };
    plot = plot.line(&format!("paper: {}", headline.1), figures(&headline.2));
    if !decrypts {
        plot = plot.line("paper: CPU", figures(&PAPER_CPU));
    }
    let what = "Data and result in the device's memory, 384 threads a block; transfers are not counted, as in the \
                paper. The CPU's data is not larger than 64 MiB.";
    Ok(best.tell(Section::new(title), " with the largest data", "GB/s").text(what).plot(plot).table(table))
}

fn by_threads(bench: &Bench, device: &Device, bytes: usize) -> Outcome<Section> {
    let title = "Encryption by threads a block";
    let mut table = Table::new("threads", columns(Column::number("threads", "")));
    let mut plot = Plot::lines(title, Axis::doubling("threads a block", ""), Axis::log("rate", "GB/s"));
    let mut best = Best::default();
    for (at, (kernel, shown, _)) in ENCRYPTIONS.iter().enumerate() {
        let mut line = Vec::new();
        for (count, threads) in THREAD_COUNTS.iter().enumerate() {
            if bench.quick && !threads.is_power_of_two() {
                continue;
            }
            let rate = device.rate(kernel, *threads, bytes)?;
            let paper = PAPER_THREADS.get(at).map_or(f64::NAN, |rates| rates[count]);
            add(&mut table, shown, u64::from(*threads), rate, paper);
            best.add(&format!("{shown}, {threads} threads"), rate);
            line.extend(rate.map(|rate| (f64::from(*threads), rate.median)));
        }
        plot = plot.line(shown, line);
    }
    let paper = THREAD_COUNTS.iter().zip(PAPER_THREADS[0]).map(|(n, rate)| (f64::from(*n), rate / 1e3));
    plot = plot.line("paper: global", paper.collect());
    Ok(best.tell(Section::new(title), "", "GB/s").plot(plot).table(table))
}

fn by_order(bench: &Bench, device: &Device, bytes: usize) -> Outcome<Section> {
    let title = "Which blocks a half-warp takes";
    let mut table = Table::new("order", columns(Column::number("size", "B")));
    let mut plot = Plot::bars(title, Axis::linear("rate", "GB/s"));
    for place in ["global", "constant", "texture", "shared", "spread"] {
        for (kernel, order) in [("1", "in order"), ("halves", "even, then odd")] {
            bench.next(place)?;
            let rate = device.rate(&format!("{place}_{kernel}"), THREADS, bytes)?;
            let shown = format!("{place}: {order}");
            add(&mut table, &shown, bytes as u64, rate, f64::NAN);
            plot = plot.bar(&shown, rate);
        }
    }
    let text = "In order: neighbouring threads take neighbouring blocks. Even, then odd: the first sixteen threads of \
                a warp take the blocks of even number, the others those of odd number, from which the paper gained a \
                factor of about 1.5.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}

fn transfers(bench: &Bench, device: &Device, sizes: &[(usize, usize)]) -> Outcome<Section> {
    let title = "With transfers";
    let mut table = Table::new("transfers", columns(Column::number("size", "B")));
    let mut plot = Plot::lines(title, Axis::bytes("data"), Axis::log("rate", "GB/s"));
    let kernel = "spread_1";
    let mut measure = |shown: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for (_, bytes) in sizes {
            let rate = rate(*bytes)?;
            add(&mut table, shown, *bytes as u64, rate, f64::NAN);
            line.extend(rate.map(|rate| (*bytes as f64, rate.median)));
        }
        Ok::<_, Failure>(line)
    };
    let mut lines = Vec::new();
    let mut journeys = Journeys::new(device.lab, sizes.last().map_or(0, |size| size.1))?;
    for (shown, is_pinned) in Journeys::KINDS {
        let mut rate = |bytes: usize| {
            bench.next(&format!("{shown}, {} KiB", bytes >> 10))?;
            let [from, to] = journeys.memory(is_pinned, bytes);
            device.with(kernel, THREADS, bytes, |launch| {
                let (upload, download) = ((&*from, &device.input), (&device.output, to));
                bench.journey(device.lab, &[*launch], &[upload], download, bytes as f64 / 1e9)
            })
        };
        lines.push((shown, measure(shown, &mut rate)?));
    }
    let shown = "kernel alone";
    lines.push((shown, measure(shown, &mut |bytes| device.rate(kernel, THREADS, bytes))?));
    let shown = "CPU, all cores";
    lines.push((shown, measure(shown, &mut |bytes| cpu(bench, bench.cores, bytes, false))?));
    for (shown, line) in lines {
        plot = plot.line(shown, line);
    }
    let text = "Encryption, tables in shared memory without conflicts: upload, kernel and download one after the other. \
                The engine of the filesystem overlaps the three.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}
