//! `bench kuznyechik`: the placement of Kuznyechik's tables, blocks per thread, and threads per block.
//! After A. Borisov and E. Myasnikov, ITNT 2019, whose figures are shown alongside.

mod device;

use super::{
    deliver,
    experiment::{Bench, Best, ExperimentArgs, Journeys, Pair, failed, speedups},
    papers,
};
use crate::report::{Axis, Column, Plot, Report, Section, Spread, Table};
use crypto::cipher::{Cipher, CipherKey};
use device::Device;
use warpcrypt::cli::lab::{Failure, Outcome};

const BLOCK: usize = 16;
const KEY: [u8; 32] = [0x3c; 32];
/// Threads per block where they are not what is compared: the paper's choice.
const THREADS: u32 = 384;
const MIB: usize = 1 << 20;

/// A kernel's name and its description.
type Variant = (&'static str, &'static str);
/// Encryption. The paper's variants come first, in its order.
const ENCRYPTIONS: [Variant; 7] = [
    ("global_1", "global"),
    ("global_2", "global, 2 blocks a thread"),
    ("global_4", "global, 4 blocks a thread"),
    ("constant_1", "constant"),
    ("texture_1", "texture"),
    ("shared_1", "shared"),
    ("spread_1", "shared, free of conflicts"),
];
/// Decryption by the place of the substitution. The paper's variants, with tables in global memory, come
/// first, in its order.
const DECRYPTIONS: [Variant; 6] = [
    ("global_pi_global", "π in global memory"),
    ("global_pi_constant", "π in constant memory"),
    ("global_pi_shared", "π in shared memory"),
    ("spread_pi_global", "tables in shared memory, π in global"),
    ("spread_pi_constant", "tables in shared memory, π in constant"),
    ("spread_pi_shared", "tables and π in shared memory"),
];

/// Runs `bench kuznyechik`.
///
/// # Errors
/// If the driver fails, a kernel's output differs from the CPU's, or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("kuznyechik", "Kuznyechik: tables, blocks and threads");
    report.about("paper", "A. Borisov, E. Myasnikov, ITNT 2019: GeForce GTX 850M (DDR3), Core i7-4510U");
    let bench = Bench::start(args, &mut report)?;
    let sizes: Vec<(usize, usize)> = papers::KUZNYECHIK_SIZES
        .iter()
        .enumerate()
        .filter(|(_, kib)| !bench.quick || **kib <= 16384)
        .map(|(at, kib)| (at, kib << 10))
        .collect();
    let most = sizes.last().map_or(MIB, |size| size.1);
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, most)).transpose()?;
    let device = device.as_ref();
    let paper = &papers::KUZNYECHIK_ENCRYPTION;
    report.section(by_size("encryption", "Encryption by size", &bench, device, &sizes, &ENCRYPTIONS, paper)?);
    if let Some(device) = device {
        report.section(by_threads(&bench, device, most.min(128 * MIB))?);
        report.section(by_order(&bench, device, most.min(128 * MIB))?);
    }
    let paper = &papers::KUZNYECHIK_DECRYPTION;
    report.section(by_size("decryption", "Decryption by size", &bench, device, &sizes, &DECRYPTIONS, paper)?);
    if let Some(device) = device {
        report.section(transfers(&bench, device, &sizes)?);
        for (variants, what) in [(&ENCRYPTIONS[..], "Encryption"), (&DECRYPTIONS, "Decryption")] {
            report.section(beside_the_cpu(device, variants, what, most.min(128 * MIB))?);
        }
    }
    drop(bench);
    deliver(&report, &args.report)
}

/// Applies ECB on the CPU.
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

/// Adds a row, unless nothing was measured.
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
    variants: &[Variant],
    paper: &[[f64; 8]],
) -> Outcome<Section> {
    let decrypts = name == "decryption";
    let mut table = Table::new(name, columns(Column::number("size", "B")));
    let mut plot = Plot::lines(title, Axis::bytes("data"), Axis::log("rate", "GB/s"));
    let mut best = Best::default();
    if let Some(device) = device {
        for (number, (kernel, shown)) in variants.iter().enumerate() {
            let mut line = Vec::new();
            for (at, bytes) in sizes {
                let rate = device.rate(kernel, THREADS, *bytes)?;
                let paper = paper.get(number + 1).map_or(f64::NAN, |rates| rates[*at]);
                add(&mut table, shown, *bytes as u64, rate, paper);
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
            let paper = if threads > 1 { paper[0][*at] } else { f64::NAN };
            add(&mut table, shown, *bytes as u64, rate, paper);
            line.extend(rate.map(|rate| (*bytes as f64, rate.median)));
        }
        plot = plot.line(shown, line);
    }
    let figures = |paper: &[f64; 8]| -> Vec<(f64, f64)> {
        sizes.iter().map(|(at, bytes)| (*bytes as f64, paper[*at] / 1e3)).collect()
    };
    let headline = if decrypts { 2 } else { 0 };
    plot = plot.line(&format!("paper: {}", variants[headline].1), figures(&paper[headline + 1]));
    plot = plot.line("paper: CPU", figures(&paper[0]));
    let found = if decrypts {
        "The paper found π best in shared memory, and decryption a tenth slower than encryption. Its CPU had four threads."
    } else {
        "The paper found global memory best. Its CPU had four threads."
    };
    let what = "Data and result in the device's memory, 384 threads a block; transfers are not counted, as in the \
                paper. The CPU's data is not larger than 64 MiB.";
    Ok(best
        .tell(Section::new(title), " with the largest data", "GB/s")
        .text(found)
        .text(what)
        .plot(plot)
        .table(table))
}

fn by_threads(bench: &Bench, device: &Device, bytes: usize) -> Outcome<Section> {
    let title = "Encryption by threads a block";
    let mut table = Table::new("threads", columns(Column::number("threads", "")));
    let mut plot = Plot::lines(title, Axis::doubling("threads a block", ""), Axis::log("rate", "GB/s"));
    let mut best = Best::default();
    for (at, (kernel, shown)) in ENCRYPTIONS.iter().enumerate() {
        let mut line = Vec::new();
        for (count, threads) in papers::KUZNYECHIK_THREADS.iter().enumerate() {
            if bench.quick && !threads.is_power_of_two() {
                continue;
            }
            let rate = device.rate(kernel, *threads, bytes)?;
            let paper = papers::KUZNYECHIK_BY_THREADS.get(at).map_or(f64::NAN, |rates| rates[count]);
            add(&mut table, shown, u64::from(*threads), rate, paper);
            best.add(&format!("{shown}, {threads} threads"), rate);
            line.extend(rate.map(|rate| (f64::from(*threads), rate.median)));
        }
        plot = plot.line(shown, line);
    }
    let paper = papers::KUZNYECHIK_THREADS.iter().zip(papers::KUZNYECHIK_BY_THREADS[0]);
    let paper = paper.map(|(n, rate)| (f64::from(*n), rate / 1e3));
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
        let mut rate = |bytes: usize| device.journey(kernel, &mut journeys, is_pinned, bytes);
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

/// Maximum bytes per cycle from a multiprocessor's shared memory or first-level cache.
const BYTES_A_CYCLE: f64 = 128.0;
/// Bytes read in look-ups per byte of data: nine rounds with 16 look-ups of 16 bytes, per block of 16
/// bytes.
const READ_A_BYTE: f64 = 9.0 * 16.0;

/// Measures every variant, alone and with transfers from page-locked memory, and how close its look-ups
/// come to the device's read bandwidth.
fn beside_the_cpu(device: &Device, variants: &[Variant], what: &str, bytes: usize) -> Outcome<Section> {
    let (bench, lab) = (device.bench, device.lab);
    let mut journeys = Journeys::new(lab, bytes)?;
    let mut pairs: Vec<Pair> = Vec::new();
    for (kernel, shown) in variants {
        let alone = device.rate(kernel, THREADS, bytes)?;
        pairs.push((shown.to_string(), alone, device.journey(kernel, &mut journeys, true, bytes)?));
    }
    let decrypts = variants[0].0.contains("_pi_");
    let cpu = [cpu(bench, 1, bytes, decrypts)?, cpu(bench, bench.cores, bytes, decrypts)?];
    let limit = lab.cycles_a_second().map_err(failed)? * lab.description().processors as f64 * BYTES_A_CYCLE;
    let share = |(shown, alone, _): &Pair| {
        if shown.contains("constant") || shown.contains("texture") {
            return None;
        }
        let share = 100.0 * alone.as_ref()?.median * 1e9 * READ_A_BYTE / limit;
        Some(format!("{shown} {share:.0} %"))
    };
    let shares = pairs.iter().filter_map(share).collect::<Vec<_>>().join(", ");
    let text = format!(
        "{what} of {} MiB; transfers from page-locked memory and back, one after the other. Each block is 144 look-ups of 16 \
         bytes. A multiprocessor reads at most 128 bytes a cycle from shared memory or its first cache, {:.1} TB/s in all at \
         the highest clock; of that, by the measured rate, the look-ups take: {shares}. (The paper's profiler: more than 90 % \
         found in the second cache, about 20 % in the first; 65 % of what warps waited for was memory.)",
        bytes / MIB,
        limit / 1e12
    );
    let name = format!("{}-speed-up", what.to_lowercase());
    Ok(speedups(&name, &format!("{what} over the CPU"), &text, "GB/s", &pairs, cpu))
}
