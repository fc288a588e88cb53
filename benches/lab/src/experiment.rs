//! What the experiments with single kernels have in common: the device, the runs, the clock, the way out.

use super::ReportArgs;
use crate::{
    device::{Lab, Launch},
    report::{Cell, Column, Report, Section, Spread, Table, significant},
};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    num::NonZero,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use warpcrypt::{
    cli::lab::{Code, Failure, Interrupt, Outcome},
    engine::{
        DriverError,
        driver::{DeviceMemory, HostMemory},
    },
};

/// Arguments of an experiment.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// Fewer sizes and variants, smaller data
    #[arg(long)]
    pub quick: bool,
    /// Where the report goes.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// What has the same colour in every experiment.
const ALWAYS: [&str; 4] = ["CPU, all cores", "CPU, one core", "page-locked memory", "pageable memory"];
/// Everything is measured so many times; odd, so that a median is one of them.
const RUNS: usize = 5;
/// A run goes on for this long, and is done once at least.
const SLICE: Duration = Duration::from_millis(20);
/// The device's clock counts in half microseconds: a run is not shorter than this unless launches are very short.
const DEVICE_SLICE: f64 = 2e-3;
/// Launches of a run, at most.
const MOST_LAUNCHES: f64 = 50.0;

/// An experiment that is running.
pub(super) struct Bench {
    gpu: Result<Lab, DriverError>,
    /// Whether less is asked for.
    pub quick: bool,
    /// Threads for the CPU's columns.
    pub cores: usize,
    progress: ProgressBar,
    interrupt: Interrupt,
}

/// Any failure of the driver ends an experiment.
pub(super) fn failed(error: DriverError) -> Failure {
    Failure::plain(Code::Failed, error)
}

impl Bench {
    /// Opens the device, and says in the report what is measured on what.
    ///
    /// # Errors
    /// If signals cannot be watched.
    pub fn start(args: &ExperimentArgs, report: &mut Report) -> Outcome<Self> {
        let interrupt = Interrupt::watch()?;
        let progress = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} measured, {elapsed}: {msg}") {
            progress.set_style(style);
        }
        let gpu = Lab::open();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        report.colours(ALWAYS);
        report.about("cores", cores.to_string());
        match &gpu {
            Ok(lab) => {
                let device = lab.description();
                let version = (device.driver / 1000, device.driver % 1000 / 10);
                let text = format!(
                    "{}, {} multiprocessors, driver for CUDA {}.{}",
                    device.name, device.processors, version.0, version.1
                );
                report.about("GPU", text);
            }
            Err(why) => report.about("GPU", format!("none: {why}; the CPU's columns alone")),
        }
        report.about("runs", format!("{RUNS}; the figures are medians"));
        Ok(Bench { gpu, quick: args.quick, cores, progress, interrupt })
    }

    /// The device, if there is one.
    pub fn gpu(&self) -> Option<&Lab> {
        self.gpu.as_ref().ok()
    }

    /// Shows what is being measured.
    ///
    /// # Errors
    /// If a signal asked for the end.
    pub fn next(&self, what: &str) -> Outcome {
        self.progress.set_message(what.to_owned());
        self.progress.inc(1);
        self.interrupt.check()
    }

    /// `units` over the seconds that these launches take on the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn kernel(&self, lab: &Lab, launches: &[Launch], units: f64) -> Outcome<Option<Spread>> {
        self.timed(units, |times| lab.time(launches, times).map_err(failed))
    }

    /// `units` over the seconds that `seconds` says one of so many launches took.
    ///
    /// # Errors
    /// As `seconds`.
    pub fn timed(&self, units: f64, seconds: impl Fn(u32) -> Outcome<f64>) -> Outcome<Option<Spread>> {
        let times = (DEVICE_SLICE / seconds(1)?.max(1e-9)).clamp(1.0, MOST_LAUNCHES) as u32;
        let runs = (0..RUNS).map(|_| seconds(times).map(|seconds| units / seconds));
        Ok(Spread::of(&runs.collect::<Outcome<Vec<f64>>>()?))
    }

    /// `units` over the seconds from the host's memory through these launches to the host's memory, one after the other.
    ///
    /// # Errors
    /// What the driver says.
    pub fn journey(
        &self,
        lab: &Lab,
        launches: &[Launch],
        uploads: &[(&[u8], &DeviceMemory)],
        download: (&DeviceMemory, &mut [u8]),
        units: f64,
    ) -> Outcome<Option<Spread>> {
        let mut once = || {
            let start = Instant::now();
            uploads.iter().try_for_each(|(from, to)| lab.upload(from, to))?;
            launches.iter().try_for_each(|launch| lab.launch(launch))?;
            lab.download(download.0, download.1)?;
            Ok(units / start.elapsed().as_secs_f64())
        };
        once().map_err(failed)?;
        let rates: Vec<f64> = (0..RUNS).map(|_| once()).collect::<Result<_, _>>().map_err(failed)?;
        Ok(Spread::of(&rates))
    }

    /// `units` over the seconds that `work` takes on data, shared by threads in parts of a multiple of `part`.
    pub fn cpu<T: Send>(
        &self,
        threads: usize,
        (mut data, part): (Vec<T>, usize),
        units: f64,
        work: &(dyn Fn(&mut [T]) + Sync),
    ) -> Option<Spread> {
        let len = data.len();
        let share = len.div_ceil(threads).next_multiple_of(part);
        let shares = data.chunks_mut(share).count();
        let together = Barrier::new(shares);
        let per_item = units / len as f64;
        let rates = |share: &mut [T]| -> Vec<f64> {
            // The first pass finds nothing in the caches.
            work(share);
            let mut one = || {
                together.wait();
                let (start, mut passes) = (Instant::now(), 0_u32);
                while passes == 0 || start.elapsed() < SLICE {
                    work(share);
                    passes += 1;
                }
                f64::from(passes) * share.len() as f64 * per_item / start.elapsed().as_secs_f64()
            };
            (0..RUNS).map(|_| one()).collect()
        };
        let of_threads: Vec<Vec<f64>> = thread::scope(|scope| {
            let threads: Vec<_> = data.chunks_mut(share).map(|share| scope.spawn(|| rates(share))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let sums: Vec<f64> = (0..RUNS)
            .map(|run| of_threads.iter().map(|rates| rates.get(run).copied().unwrap_or(f64::NAN)).sum())
            .collect();
        Spread::of(&sums)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

/// The host's memory to go from and to come back to, pageable and page-locked.
pub(super) struct Journeys {
    pageable: [Vec<u8>; 2],
    pinned: [HostMemory; 2],
}

impl Journeys {
    /// Their names in reports, and whether it is page-locked.
    pub const KINDS: [(&'static str, bool); 2] = [("page-locked memory", true), ("pageable memory", false)];

    /// For data and results of so many bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(lab: &Lab, most: usize) -> Outcome<Self> {
        let pinned = || Ok([lab.pinned(most)?, lab.pinned(most)?]);
        let mut pinned = pinned().map_err(failed)?;
        // Noise: look-ups by bytes that are all alike do not meet in a bank.
        let content = much_noise(most);
        pinned[0][..most].copy_from_slice(&content);
        Ok(Journeys { pageable: [content, vec![0; most]], pinned })
    }

    /// The first `len` bytes: of what goes, and of where the results come.
    pub fn memory(&mut self, is_pinned: bool, len: usize) -> [&mut [u8]; 2] {
        if is_pinned {
            self.pinned.each_mut().map(|memory| &mut memory[..len])
        } else {
            self.pageable.each_mut().map(|memory| &mut memory[..len])
        }
    }
}

/// Blocks that give every item a thread, but not more than the device holds at once.
pub(super) fn grid(lab: &Lab, items: f64, threads: u32, occupancy: u32) -> u32 {
    let most = lab.description().processors as f64 * f64::from(occupancy);
    (items / f64::from(threads)).ceil().clamp(1.0, most) as u32
}

/// A variant's rate by itself and with transfers, to be put beside the CPU.
pub(super) type Pair = (String, Option<Spread>, Option<Spread>);

/// How many times as fast as the CPU each variant is, by itself and with transfers, as the papers' tables give it.
/// `cpu`: one core, and all of them.
pub(super) fn speedups(
    name: &str,
    title: &str,
    text: &str,
    unit: &str,
    pairs: &[Pair],
    cpu: [Option<Spread>; 2],
) -> Section {
    let mut columns = vec![Column::text("variant")];
    columns.extend(["kernel", "with transfers", "one core", "all cores"].map(|of| Column::number(of, unit)));
    columns.extend(
        ["kernel over one core", "with transfers over one core"].map(|of| Column::number(of, "times")),
    );
    columns.extend(
        ["kernel over all cores", "with transfers over all cores"].map(|of| Column::number(of, "times")),
    );
    let mut table = Table::new(name, columns);
    let median = |rate: &Option<Spread>| rate.map(|rate| rate.median);
    let [one, all] = cpu.each_ref().map(median);
    for (name, kernel, journey) in pairs {
        let (kernel, journey) = (median(kernel), median(journey));
        let over = |rate: Option<f64>, base: Option<f64>| Some(rate? / base?);
        let rates = [kernel, journey, one, all];
        let ratios = [over(kernel, one), over(journey, one), over(kernel, all), over(journey, all)];
        table.row(
            [Cell::from(name.as_str())].into_iter().chain(rates.into_iter().chain(ratios).map(Cell::from)),
        );
    }
    Section::new(title).text(text).table(table)
}

/// Bytes that look like noise.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// So many bytes of noise, which begins again after each MiB.
pub(super) fn much_noise(len: usize) -> Vec<u8> {
    let mut much = noise(1 << 20).repeat(len.div_ceil(1 << 20));
    much.truncate(len);
    much
}

/// Fails if a kernel's output is not what the portable implementation gives.
///
/// # Errors
/// In that case.
pub(super) fn compare(name: &str, found: &[u8], expected: &[u8]) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let what = format!("{name} does not compute what the CPU computes: nothing was measured with it");
    Err(Failure::plain(Code::Failed, what))
}

/// The best so far, by name.
#[derive(Default)]
pub(super) struct Best(Option<(String, f64)>);

impl Best {
    /// Takes a figure in.
    pub fn add(&mut self, name: &str, value: Option<Spread>) {
        if let Some(Spread { median, .. }) = value
            && self.0.as_ref().is_none_or(|best| best.1 < median)
        {
            self.0 = Some((name.to_owned(), median));
        }
    }

    /// Adds a sentence with the winner, if there is one: without a GPU nothing is compared.
    pub fn tell(&self, section: Section, of: &str, unit: &str) -> Section {
        match &self.0 {
            Some((name, rate)) => {
                section.text(format!("Best here{of}: {name}, {} {unit}.", significant(*rate)))
            }
            None => section,
        }
    }
}
