//! `bench keccak`: the number of threads that share a state of Keccak-f\[1600\], from one state to four
//! million, and the leaves of KangarooTwelve's tree. After a comparison in OpenCL on a GeForce GTX 650 Ti,
//! whose results are shown alongside.

mod k12;
mod opencl;

use super::{
    deliver,
    experiment::{Bench, Best, ExperimentArgs, Journeys, Pair, compare, failed, grid, noise, speedups},
    papers,
};
use crate::{
    device::{Lab, Launch, Parameter},
    report::{Axis, Column, Plot, Report, Section, Spread, Table, significant},
};
use crypto::{
    hash::permute_all,
    keccak::{self, KeccakState, Rounds},
};
use engine::driver::{DeviceMemory, Module};
use opencl::OpenCl;
use std::sync::Arc;
use warpcrypt::cli::lab::{Failure, Outcome};

static FATBIN: &[u8] = include_bytes!("../../kernels/keccak.fatbin");

/// Bytes of a state.
const STATE: usize = 200;
/// Maximum number of states, as in the paper.
const MOST_RUNS: usize = 4_000_000;

/// How threads share a state: kernel, threads per block, threads per state, shared memory per block, name.
struct Variant {
    kernel: &'static str,
    threads: u32,
    threads_a_state: f64,
    shared: usize,
    name: &'static str,
}

const fn variant(
    kernel: &'static str,
    threads: u32,
    threads_a_state: f64,
    shared: usize,
    name: &'static str,
) -> Variant {
    Variant { kernel, threads, threads_a_state, shared, name }
}

/// The paper's implementations I, II and III first.
const VARIANTS: [Variant; 11] = [
    variant("arrays", 128, 1.0, 0, "I: one thread, loops over arrays"),
    variant("loop", 128, 1.0, 0, "II: one thread, steps written out"),
    variant("block", 25, 25.0, 25 * 16, "III: 25 threads, a state a block"),
    variant("arrays_shared", 128, 1.0, 128 * 480, "I, arrays in shared memory"),
    variant("two", 128, 1.0, 0, "one thread, two rounds unrolled"),
    variant("unrolled", 128, 1.0, 0, "one thread, all rounds unrolled"),
    variant("block", 200, 25.0, 200 * 16, "25 threads, 8 states a block"),
    variant("block", 800, 25.0, 800 * 16, "25 threads, 32 states a block"),
    variant("warp_shuffle", 128, 32.0, 0, "a warp, shuffles"),
    variant("warp_shared", 128, 32.0, 4 * 256, "a warp, shared memory"),
    variant("five", 128, 32.0 / 6.0, 0, "5 threads, 6 states a warp"),
];
/// The variant measured with transfers: the fastest with many states.
const TRAVELS: &Variant = &VARIANTS[4];

/// Rates of SHA3-224, -256, -384 and -512, in bits.
const RATES: [(usize, &str); 4] =
    [(1152, "SHA3-224"), (1088, "SHA3-256"), (832, "SHA3-384"), (576, "SHA3-512")];

/// Runs `bench keccak`.
///
/// # Errors
/// If the driver fails, a kernel's output differs from the CPU's, or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("keccak", "Keccak: threads of a state");
    report.about("paper", "a thesis on Keccak in OpenCL: GeForce GTX 650 Ti; its text gives ratios alone");
    let bench = Bench::start(args, &mut report)?;
    let counts: &[usize] = if bench.quick || bench.gpu().is_none() {
        &[1, 100, 10_000, 200_000]
    } else {
        &[
            1, 10, 100, 1000, 10_000, 50_000, 100_000, 435_600, 1_000_000, 1_350_000, 1_742_400, 2_500_000,
            MOST_RUNS,
        ]
    };
    let most = counts[counts.len() - 1];
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, most)).transpose()?;
    let opencl = OpenCl::open(most);
    let about = match &opencl {
        Ok(opencl) => opencl.description.clone(),
        Err(why) => format!("none: {why}; without its rows"),
    };
    report.about("OpenCL", about);
    let (section, lines) = by_count(&bench, device.as_ref(), opencl.ok(), counts)?;
    report.section(section);
    if device.is_some() {
        report.section(saved(&lines));
    }
    report.section(by_rate(&bench, device.as_ref(), most.min(1_000_000))?);
    if let Some(device) = &device {
        report.section(transfers(&bench, device, counts)?);
        report.section(beside_the_cpu(&bench, device, most.min(1_000_000))?);
    }
    report.section(k12::section(&bench, device.as_ref())?);
    drop(bench);
    deliver(&report, &args.report)
}

struct Device<'a> {
    bench: &'a Bench,
    lab: &'a Lab,
    module: Arc<Module>,
    data: DeviceMemory,
    states: DeviceMemory,
    /// Initial content of both.
    noise: Vec<u8>,
}

impl<'a> Device<'a> {
    fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
        let open = || {
            let module = lab.load(FATBIN)?;
            let (data, states) = (lab.memory(most * STATE)?, lab.memory(most * STATE)?);
            let noise = noise(1000 * STATE);
            lab.upload(&noise, &data)?;
            Ok(Device { bench, lab, module, data, states, noise })
        };
        open().map_err(failed)
    }

    /// Calls `with` with the launch of this variant over `count` states that absorb `rate` lanes each.
    fn with<T>(
        &self,
        variant: &Variant,
        count: usize,
        rate: usize,
        with: impl FnOnce(&Launch) -> Outcome<Option<T>>,
    ) -> Outcome<Option<T>> {
        let kernel = self
            .lab
            .kernel(&self.module, &format!("keccak_{}", variant.kernel), variant.shared)
            .map_err(failed)?;
        let occupancy = self.lab.occupancy(&kernel, variant.threads).map_err(failed)?;
        let parameters = [
            Parameter::Memory(&self.data),
            Parameter::Number(rate as u64),
            Parameter::Memory(&self.states),
            Parameter::Number(count as u64),
        ];
        let blocks = grid(self.lab, count as f64 * variant.threads_a_state, variant.threads, occupancy);
        with(&Launch { kernel: &kernel, blocks, threads: variant.threads, parameters: &parameters })
    }

    /// Rate in `units` per state, after comparing the output with the CPU's.
    fn rate(&self, variant: &Variant, count: usize, rate: usize, units: f64) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {count} states", variant.name))?;
        self.with(variant, count, rate, |launch| {
            let len = count.min(1000) * STATE;
            self.lab.upload(&self.noise[..len], &self.states).map_err(failed)?;
            self.lab.launch(launch).map_err(failed)?;
            let mut found = vec![0; len];
            self.lab.download(&self.states, &mut found).map_err(failed)?;
            let mut expected = self.noise[..len].to_vec();
            for (at, state) in expected.as_chunks_mut::<STATE>().0.iter_mut().enumerate() {
                let absorbed = &self.noise[at * rate * 8..][..rate * 8];
                state.iter_mut().zip(absorbed).for_each(|(byte, more)| *byte ^= more);
                permute(state);
            }
            compare(variant.name, &found, &expected)?;
            self.bench.kernel(self.lab, &[*launch], units * count as f64)
        })
    }

    /// Millions of states per second, including transfers from and to host memory.
    fn journey(
        &self,
        journeys: &mut Journeys,
        is_pinned: bool,
        variant: &Variant,
        count: usize,
    ) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {count} states with transfers", variant.name))?;
        let [from, to] = journeys.memory(is_pinned, count * STATE);
        self.with(variant, count, 0, |launch| {
            let (upload, download) = ((&*from, &self.states), (&self.states, to));
            self.bench.journey(self.lab, &[*launch], &[upload], download, count as f64 / 1e6)
        })
    }
}

/// Permutes one state on the CPU.
fn permute(bytes: &mut [u8; STATE]) {
    let mut state: KeccakState = [0; 25];
    let lanes = bytes.as_chunks_mut::<8>().0;
    state.iter_mut().zip(&*lanes).for_each(|(lane, bytes)| *lane = u64::from_le_bytes(*bytes));
    keccak::permute(&mut state, Rounds::TwentyFour);
    lanes.iter_mut().zip(state).for_each(|(bytes, lane)| *bytes = lane.to_le_bytes());
}

fn cpu(bench: &Bench, threads: usize, count: usize, units: f64) -> Outcome<Option<Spread>> {
    bench.next(&format!("CPU, {threads} threads, {count} states"))?;
    let count = count.min(100_000);
    let states: Vec<KeccakState> = vec![[0x5a; 25]; count];
    Ok(bench.cpu(threads, (states, 1), units * count as f64, &permute_all))
}

/// Rates by the number of states.
type Lines = Vec<(&'static str, Vec<(f64, f64)>)>;

fn by_count(
    bench: &Bench,
    device: Option<&Device>,
    opencl: Option<OpenCl>,
    counts: &[usize],
) -> Outcome<(Section, Lines)> {
    let title = "Permutations by number of states";
    let mut columns = vec![Column::text("variant"), Column::number("states", "")];
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "million/s")));
    let mut table = Table::new("states", columns);
    let mut measure = |name: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for count in counts {
            let Some(rate) = rate(*count)? else { continue };
            let cells = [name.into(), (*count).into(), rate.median.into(), rate.low.into(), rate.high.into()];
            table.row(cells);
            line.push((*count as f64, rate.median));
        }
        Ok(line)
    };
    let mut lines: Lines = Vec::new();
    for variant in VARIANTS.iter().filter(|_| device.is_some()) {
        let mut rate = |count| device.map_or(Ok(None), |device| device.rate(variant, count, 0, 1e-6));
        lines.push((variant.name, measure(variant.name, &mut rate)?));
    }
    let mut in_opencl: Lines = Vec::new();
    if let Some(mut opencl) = opencl {
        for kernel in &opencl::KERNELS {
            let mut rate = |count| opencl.rate(bench, kernel, count);
            in_opencl.push((kernel.name, measure(kernel.name, &mut rate)?));
        }
    }
    let winners = [winners("Best here", &lines), winners("Best in OpenCL", &in_opencl)];
    for (name, threads) in [("CPU, one core", 1), ("CPU, all cores", bench.cores)] {
        let line = measure(name, &mut |count| cpu(bench, threads, count, 1e-6))?;
        lines.push((name, line.clone()));
        in_opencl.push((name, line));
    }
    let paper = "The paper found III best up to about 1.35 million states, and II best beyond. States lie in the \
                 device's memory. The paper's listing of I declares its arrays as shared memory, one for a whole group of \
                 threads; here each thread has its own, in local memory or in shared memory. The CPU permutes eight or \
                 four side by side where it has vectors for them.";
    let mut plots = vec![plot(title, &lines)];
    plots.extend(winners[1].as_ref().map(|_| plot("The paper's kernels in OpenCL", &in_opencl)));
    let section = winners.into_iter().flatten().fold(Section::new(title), Section::text).text(paper);
    Ok((plots.into_iter().fold(section, Section::plot).table(table), lines))
}

fn plot(title: &str, lines: &Lines) -> Plot {
    let empty = Plot::lines(title, Axis::log("states", ""), Axis::log("rate", "million/s"));
    lines.iter().fold(empty, |plot, (name, line)| plot.line(name, line.clone()))
}

/// Percentage of time that one of the paper's three implementations saves over another.
fn saved(lines: &Lines) -> Section {
    let columns = [Column::text("which"), Column::text("than"), Column::number("states", "")];
    let columns = columns.into_iter().chain(["here", "paper"].map(|of| Column::number(of, "% less time")));
    let mut table = Table::new("saved", columns);
    for (faster, slower, states, paper) in papers::KECCAK_SAVED {
        let name = |number: usize| VARIANTS[number - 1].name;
        let rate = |number: usize| {
            let (_, line) = lines.iter().find(|(of, _)| *of == name(number))?;
            line.iter().find(|point| point.0 as usize == states).map(|point| point.1)
        };
        let here = rate(faster).zip(rate(slower)).map(|(of, than)| 100.0 * (1.0 - than / of));
        table.row([name(faster).into(), name(slower).into(), states.into(), here.into(), paper.into()]);
    }
    let text = "The paper gives gains in percent at the end of each of its three graphs. They fit each other as savings \
                of time (61.5 and 76 % make 38 %), so savings are what stands here; below nothing, the first one \
                takes longer.";
    Section::new("Time saved, beside the paper").text(text).table(table)
}

/// Measures every variant, alone and with transfers from page-locked memory.
fn beside_the_cpu(bench: &Bench, device: &Device, count: usize) -> Outcome<Section> {
    let mut journeys = Journeys::new(device.lab, count * STATE)?;
    let mut pairs: Vec<Pair> = Vec::new();
    for variant in &VARIANTS {
        let kernel = device.rate(variant, count, 0, 1e-6)?;
        pairs.push((variant.name.to_owned(), kernel, device.journey(&mut journeys, true, variant, count)?));
    }
    let cpu = [cpu(bench, 1, count, 1e-6)?, cpu(bench, bench.cores, count, 1e-6)?];
    let text = format!("{count} states; transfers from page-locked memory and back, one after the other.");
    Ok(speedups("speed-up", "Speed-up over the CPU", &text, "million/s", &pairs, cpu))
}

/// A variant takes the lead only if it is better than the leader by this factor; less is noise.
const LEAD: f64 = 1.05;

/// The best variant for each range of states, if any was measured.
fn winners(title: &str, lines: &Lines) -> Option<String> {
    let (_, first) = lines.first()?;
    let mut text = format!("{title}:");
    let mut last = "";
    for (at, (count, _)) in first.iter().enumerate() {
        let best = lines.iter().max_by(|a, b| a.1[at].1.total_cmp(&b.1[at].1));
        let led = lines.iter().find(|line| line.0 == last).map_or(0.0, |line| line.1[at].1 * LEAD);
        if let Some((name, line)) = best.filter(|best| best.1[at].1 > led) {
            let separator = if last.is_empty() { "" } else { ";" };
            let (states, rate) = (if *count == 1.0 { "state" } else { "states" }, significant(line[at].1));
            text += &format!("{separator} from {count} {states} on {name} ({rate} million/s)");
            last = name;
        }
    }
    Some(text + ".")
}

fn by_rate(bench: &Bench, device: Option<&Device>, count: usize) -> Outcome<Section> {
    let title = "Absorbing at the rates of SHA-3";
    let mut columns = vec![Column::text("variant"), Column::text("function"), Column::number("rate", "bit")];
    columns.extend(["absorbed", "lowest", "highest"].map(|name| Column::number(name, "GB/s")));
    let mut table = Table::new("rates", columns);
    let mut section = Section::new(title);
    for (bits, function) in RATES {
        let units = bits as f64 / 8e9;
        let mut plot = Plot::bars(&format!("{function}, r = {bits}"), Axis::linear("absorbed", "GB/s"));
        let mut best = Best::default();
        let mut results = Vec::new();
        for variant in VARIANTS.iter().filter(|_| device.is_some()) {
            let Some(device) = device else { continue };
            let rate = device.rate(variant, count, bits / 64, units)?;
            best.add(variant.name, rate);
            results.push((variant.name, rate));
        }
        results.push(("CPU, all cores", cpu(bench, bench.cores, count, units)?));
        for (name, rate) in results {
            plot = plot.bar(name, rate);
            let Some(rate) = rate else { continue };
            let cells = [name.into(), function.into(), bits.into(), rate.median.into(), rate.low.into()];
            table.row(cells.into_iter().chain([rate.high.into()]));
        }
        section = best.tell(section.plot(plot), &format!(" for {function}"), "GB/s");
    }
    let text = format!("{count} states absorb a block each; on the CPU the block is zeros.");
    Ok(section.text(text).table(table))
}

fn transfers(bench: &Bench, device: &Device, counts: &[usize]) -> Outcome<Section> {
    let title = "With transfers";
    let mut columns = vec![Column::text("variant"), Column::number("states", "")];
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "million/s")));
    let mut table = Table::new("transfers", columns);
    let mut plot = Plot::lines(title, Axis::log("states", ""), Axis::log("rate", "million/s"));
    let mut measure = |name: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for count in counts {
            let Some(rate) = rate(*count)? else { continue };
            table.row([name.into(), (*count).into(), rate.median.into(), rate.low.into(), rate.high.into()]);
            line.push((*count as f64, rate.median));
        }
        Ok::<_, Failure>(line)
    };
    let mut lines = Vec::new();
    let mut journeys = Journeys::new(device.lab, counts[counts.len() - 1] * STATE)?;
    for (name, is_pinned) in Journeys::KINDS {
        let mut rate = |count: usize| device.journey(&mut journeys, is_pinned, TRAVELS, count);
        lines.push((name, measure(name, &mut rate)?));
    }
    let name = "CPU, all cores";
    lines.push((name, measure(name, &mut |count| cpu(bench, bench.cores, count, 1e-6))?));
    for (name, line) in lines {
        plot = plot.line(name, line);
    }
    let text =
        "States go to the device, are permuted by one thread each, two rounds unrolled, and come back.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}
