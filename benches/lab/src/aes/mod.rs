//! `bench aes`: the placement of AES tables and round keys, the number of threads that share a block, the
//! size of thread blocks, and bit slices instead of tables. After Ma Mengqi, 2012 (GeForce 9800 GT), and S.
//! Waloschek and others, 2010 (GeForce 8800), who published no results.

mod calls;
pub mod device;
pub mod files;
mod publication;

use super::{
    deliver,
    experiment::{Bench, Best, ExperimentArgs, Journeys, Pair, speedups},
    papers,
};
use crate::report::{Axis, Column, Plot, Report, Section, Spread, Table};
use crypto::cipher::{Cipher, CipherKey};
use device::Device;
use warpcrypt::cli::lab::Outcome;

const BLOCK: usize = 16;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const KEY: [u8; 32] = [0x3c; 32];
/// A multiple of 1024 blocks, so that bit slices can start with it.
const COUNTER: [u8; 16] = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0];
/// Threads per block where they are not what is compared: the paper's choice.
const THREADS: u32 = 256;

const CIPHERS: [Cipher; 3] = [Cipher::Aes128, Cipher::Aes192, Cipher::Aes256];
const MODES: [(&str, &str); 3] =
    [("ctr", "CTR"), ("encrypt", "ECB encryption"), ("decrypt", "ECB decryption")];

/// A kernel's name and its description.
type Variant = (&'static str, &'static str);
const PLACES: [Variant; 8] = [
    ("global", "a table in global memory"),
    ("constant", "a table in constant memory"),
    ("constant_rows", "four tables in constant memory"),
    ("texture", "a table in texture memory"),
    ("shared", "a table in shared memory"),
    ("shared_rows", "four tables in shared memory"),
    ("spread", "32 copies in shared memory"),
    ("bits", "bit slices"),
];
/// Ways for the data and the state to reach the threads, next to the plain variants.
const TEXTS: [Variant; 6] = [
    ("shared", "a table in shared memory"),
    ("shared_staged", "a table in shared memory, data staged there"),
    ("constant_rows", "four tables in constant memory"),
    ("constant_rows_state", "four tables in constant, state in shared memory"),
    ("shared_rows", "four tables in shared memory"),
    ("shared_rows_state", "four tables and state in shared memory"),
];
const KEY_PLACES: [Variant; 4] = [
    ("spread", "keys in shared memory"),
    ("spread_keys_global", "keys in global memory"),
    ("spread_keys_constant", "keys in constant memory"),
    ("spread_keys_registers", "keys in registers"),
];
const SHARES: [Variant; 9] = [
    ("constant", "constant, 1 thread a block"),
    ("constant_4", "constant, 4 threads a block"),
    ("constant_16", "constant, 16 threads a block"),
    ("shared", "shared, 1 thread a block"),
    ("shared_4", "shared, 4 threads a block"),
    ("shared_16", "shared, 16 threads a block"),
    ("spread", "32 copies, 1 thread a block"),
    ("spread_4", "32 copies, 4 threads a block"),
    ("spread_16", "32 copies, 16 threads a block"),
];
const THREAD_COUNTS: [u32; 10] = [16, 32, 64, 128, 192, 256, 384, 512, 768, 1024];

/// Runs `bench aes`.
///
/// # Errors
/// If the driver fails, a kernel's output differs from the CPU's, or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("aes", "AES: tables, keys, threads");
    report.about(
        "papers",
        "Ma Mengqi 2012: GeForce 9800 GT, Athlon II X2 245; S. Waloschek et al. 2010: GeForce 8800",
    );
    let bench = Bench::start(args, &mut report)?;
    let most = if bench.quick || bench.gpu().is_none() { 16 * MIB } else { 256 * MIB };
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, most)).transpose()?;
    if let Some(device) = &device {
        let ciphers = if bench.quick { &CIPHERS[..1] } else { &CIPHERS[..] };
        report.section(compared(device, "tables", "Place of the tables", &PLACES, ciphers, most)?);
        report.section(compared(device, "keys", "Place of the round keys", &KEY_PLACES, ciphers, most)?);
        report.section(compared(
            device,
            "share",
            "Threads that share a block",
            &SHARES,
            &CIPHERS[..1],
            most,
        )?);
        report.section(compared(
            device,
            "text",
            "Way of the data, and place of the state",
            &TEXTS,
            &CIPHERS[..1],
            most,
        )?);
        report.section(by_threads(device, most)?);
        report.section(beside_the_cpu(device, most)?);
        report.section(publication::section(device, most)?);
        report.section(calls::section(device, most)?);
    }
    for cipher in [Cipher::Aes128, Cipher::Aes256] {
        report.section(by_size(&bench, device.as_ref(), cipher, most)?);
    }
    drop(bench);
    deliver(&report, &args.report)
}

/// Applies a mode on the CPU.
fn apply(key: &CipherKey, mode: &str, data: &mut [u8]) {
    match mode {
        "ctr" => key.ctr_in_place(&COUNTER, data),
        "encrypt" => key.ecb_encrypt(data),
        _ => key.ecb_decrypt(data),
    }
}

fn table(name: &str) -> Table {
    let mut columns = vec![Column::text("variant"), Column::text("mode"), Column::number("key", "bit")];
    columns.extend([Column::number("threads", ""), Column::number("size", "B")]);
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "GB/s")));
    Table::new(name, columns)
}

/// Adds a row, unless nothing was measured.
fn add(
    table: &mut Table,
    (name, mode): (&str, &str),
    cipher: Cipher,
    threads: u32,
    bytes: usize,
    rate: Option<Spread>,
) {
    let Some(rate) = rate else { return };
    let mut row = vec![name.into(), mode.into(), (8 * cipher.key_len()).into()];
    row.extend([
        u64::from(threads).into(),
        bytes.into(),
        rate.median.into(),
        rate.low.into(),
        rate.high.into(),
    ]);
    table.row(row);
}

/// Compares variants in every mode, and with the CPU.
fn compared(
    device: &Device,
    name: &str,
    title: &str,
    variants: &[Variant],
    ciphers: &[Cipher],
    bytes: usize,
) -> Outcome<Section> {
    let (mut table, mut section) = (table(name), Section::new(title));
    for cipher in ciphers {
        let key = CipherKey::new(*cipher, &KEY[..cipher.key_len()]);
        let bits = 8 * cipher.key_len();
        for (mode, shown_mode) in MODES {
            let heading = format!("AES-{bits}, {shown_mode}");
            let mut plot = Plot::bars(&heading, Axis::linear("rate", "GB/s"));
            let mut best = Best::default();
            for (kernel, shown) in variants {
                let rate = device.rate((kernel, mode), *cipher, (THREADS, bytes))?;
                add(&mut table, (shown, shown_mode), *cipher, THREADS, bytes, rate);
                best.add(shown, rate);
                plot = plot.bar(shown, rate);
            }
            let threads = device.bench.cores;
            device.bench.next(&format!("CPU, {heading}"))?;
            let len = bytes.min(64 * MIB);
            let work = |data: &mut [u8]| apply(&key, mode, data);
            let rate = device.bench.cpu(threads, (vec![0x5a; len], BLOCK), len as f64 / 1e9, &work);
            add(&mut table, ("CPU, all cores", shown_mode), *cipher, threads as u32, len, rate);
            plot = plot.bar("CPU, all cores", rate);
            section = best.tell(section.plot(plot), &format!(" for {heading}"), "GB/s");
        }
    }
    let text = "Data and result in the device's memory, 256 threads a block; round keys in shared memory and one \
                thread a block, where they are not what is compared.";
    Ok(section.text(text).table(table))
}

/// Measures every variant, alone and with transfers from page-locked memory.
fn beside_the_cpu(device: &Device, bytes: usize) -> Outcome<Section> {
    let cipher = Cipher::Aes128;
    let mut journeys = Journeys::new(device.lab, bytes)?;
    let mut pairs: Vec<Pair> = Vec::new();
    for (kernel, shown) in PLACES.into_iter().chain(SHARES).chain(publication::VARIANTS) {
        let alone = device.rate((kernel, "ctr"), cipher, (THREADS, bytes))?;
        let journey = device.journey((kernel, "ctr"), cipher, &mut journeys, (true, bytes))?;
        pairs.push((shown.to_owned(), alone, journey));
    }
    let text = format!(
        "AES-128 in CTR mode, {} MiB; transfers from page-locked memory and back, one after the other. The CPU has \
         instructions for AES, which the papers' had not.",
        bytes / MIB
    );
    let cpu = cpu(device.bench, cipher, bytes)?;
    Ok(speedups("speed-up", "Speed-up over the CPU", &text, "GB/s", &pairs, cpu))
}

/// GB/s in CTR mode of one core and of all cores.
fn cpu(bench: &Bench, cipher: Cipher, bytes: usize) -> Outcome<[Option<Spread>; 2]> {
    let key = CipherKey::new(cipher, &KEY[..cipher.key_len()]);
    let len = bytes.min(64 * MIB);
    bench.next(&format!("CPU, {} KiB", len / KIB))?;
    Ok([1, bench.cores].map(|threads| {
        bench.cpu(threads, (vec![0x5a; len], BLOCK), len as f64 / 1e9, &|data| apply(&key, "ctr", data))
    }))
}

fn by_threads(device: &Device, bytes: usize) -> Outcome<Section> {
    let title = "Threads of a block";
    let (cipher, mut table, mut best) = (Cipher::Aes128, table("threads"), Best::default());
    let mut plot = Plot::lines(title, Axis::doubling("threads a block", ""), Axis::log("rate", "GB/s"));
    for (kernel, shown) in PLACES.into_iter().chain([publication::BEST]) {
        let mut line = Vec::new();
        for threads in THREAD_COUNTS {
            let rate = device.rate((kernel, "ctr"), cipher, (threads, bytes))?;
            add(&mut table, (shown, "CTR"), cipher, threads, bytes, rate);
            best.add(&format!("{shown}, {threads} threads"), rate);
            line.extend(rate.map(|rate| (f64::from(threads), rate.median)));
        }
        plot = plot.line(shown, line);
    }
    let paper = "AES-128 in CTR mode. The paper's optimum was 256 threads, with 512 slower again.";
    Ok(best.tell(Section::new(title), "", "GB/s").text(paper).plot(plot).table(table))
}

fn by_size(bench: &Bench, device: Option<&Device>, cipher: Cipher, most: usize) -> Outcome<Section> {
    let bits = 8 * cipher.key_len();
    let title = format!("AES-{bits} in CTR mode by size");
    let mut table = table(&format!("size-{bits}"));
    let mut plot = Plot::lines(&title, Axis::bytes("data"), Axis::log("rate", "GB/s"));
    let step = if bench.quick { 16 } else { 4 };
    let sizes: Vec<usize> =
        std::iter::successors(Some(KIB), |size| Some(size * step)).take_while(|size| *size <= most).collect();
    let mut draw = |name: &str, threads: u32, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for bytes in &sizes {
            let rate = rate(*bytes)?;
            add(&mut table, (name, "CTR"), cipher, threads, *bytes, rate);
            line.extend(rate.map(|rate| (*bytes as f64, rate.median)));
        }
        Ok(line)
    };
    let mut lines = Vec::new();
    if let Some(device) = device {
        for (kernel, name) in [("spread", "kernel alone"), ("bits", "kernel alone, bit slices")] {
            let mut rate = |bytes| device.rate((kernel, "ctr"), cipher, (THREADS, bytes));
            lines.push((name, draw(name, THREADS, &mut rate)?));
        }
        let mut journeys = Journeys::new(device.lab, most)?;
        for (name, is_pinned) in Journeys::KINDS {
            let mut rate =
                |bytes| device.journey(("spread", "ctr"), cipher, &mut journeys, (is_pinned, bytes));
            lines.push((name, draw(name, THREADS, &mut rate)?));
        }
    }
    let key = CipherKey::new(cipher, &KEY[..cipher.key_len()]);
    for (name, threads) in [("CPU, one core", 1), ("CPU, all cores", bench.cores)] {
        let mut rate = |bytes: usize| {
            bench.next(&format!("{name}, {} KiB", bytes / KIB))?;
            let len = bytes.min(64 * MIB);
            Ok(bench
                .cpu(threads, (vec![0x5a; len], BLOCK), len as f64 / 1e9, &|data| apply(&key, "ctr", data)))
        };
        lines.push((name, draw(name, threads as u32, &mut rate)?));
    }
    if cipher == Cipher::Aes128 {
        for (name, rate) in [
            ("paper: kernel alone", papers::AES_SHARED / 8.0),
            ("paper: with transfers", papers::AES_TRANSFERS / 8.0),
            ("paper: CPU, one core", papers::AES_CPU / 8.0),
        ] {
            lines.push((name, vec![(8.0 * MIB as f64, rate), (most as f64, rate)]));
        }
    }
    for (name, line) in lines {
        plot = plot.line(name, line);
    }
    let text = "With transfers: upload, kernel and download one after the other; the engine of the filesystem overlaps \
                the three. The CPU's data is not larger than 64 MiB.";
    Ok(Section::new(&title).text(text).plot(plot).table(table))
}
