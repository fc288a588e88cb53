//! Shared parts of the experiments with single kernels: the device, the runs, the clock, and error
//! handling.

use super::ReportArgs;
use crate::{
    device::{Lab, Launch},
    report::{Cell, Column, Report, Section, Spread, Table, significant},
};
use clap::Args;
use engine::{
    DriverError,
    driver::{DeviceMemory, HostMemory},
};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    num::NonZero,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use warpcrypt::cli::lab::{Code, Failure, Interrupt, Outcome};

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

/// Names that have the same colour in every experiment.
const ALWAYS: [&str; 4] = ["CPU, all cores", "CPU, one core", "page-locked memory", "pageable memory"];
/// Number of runs of each measurement. Odd, so that the median is one of them.
const RUNS: usize = 5;
/// Minimum duration of a run, which makes at least one pass.
const SLICE: Duration = Duration::from_millis(20);
/// Minimum duration of a run, in seconds, unless it reaches `MOST_LAUNCHES`: the device's clock has a
/// resolution of half a microsecond.
const DEVICE_SLICE: f64 = 2e-3;
/// Maximum number of launches in a run.
const MOST_LAUNCHES: f64 = 50.0;

/// A running experiment.
pub(super) struct Bench {
    gpu: Result<Lab, DriverError>,
    /// Whether a reduced measurement was requested.
    pub quick: bool,
    /// Number of threads for the CPU's columns.
    pub cores: usize,
    progress: ProgressBar,
    interrupt: Interrupt,
}

/// Any failure of the driver ends an experiment.
pub(super) fn failed(error: DriverError) -> Failure {
    Failure::plain(Code::Failed, error)
}

impl Bench {
    /// Opens the device, and describes the machine in the report.
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
    /// If a signal requested termination.
    pub fn next(&self, what: &str) -> Outcome {
        self.progress.set_message(what.to_owned());
        self.progress.inc(1);
        self.interrupt.check()
    }

    /// `units` per second, from the time that these launches take on the device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn kernel(&self, lab: &Lab, launches: &[Launch], units: f64) -> Outcome<Option<Spread>> {
        self.timed(units, |times| lab.time(launches, times).map_err(failed))
    }

    /// `units` per second. `seconds` returns the time of one launch, averaged over the given number of
    /// launches.
    ///
    /// # Errors
    /// As `seconds`.
    pub fn timed(&self, units: f64, seconds: impl Fn(u32) -> Outcome<f64>) -> Outcome<Option<Spread>> {
        let times = (DEVICE_SLICE / seconds(1)?.max(1e-9)).clamp(1.0, MOST_LAUNCHES) as u32;
        let runs = (0..RUNS).map(|_| seconds(times).map(|seconds| units / seconds));
        Ok(Spread::of(&runs.collect::<Outcome<Vec<f64>>>()?))
    }

    /// `units` per second for the uploads, these launches and the download, one after the other.
    ///
    /// # Errors
    /// The driver's error.
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

    /// `units` per second of `work` on the data, divided among threads in parts whose length is a multiple
    /// of `part`.
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
            // Warm-up: the first pass finds cold caches.
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

/// Host memory for input and output, pageable and page-locked.
pub(super) struct Journeys {
    pageable: [Vec<u8>; 2],
    pinned: [HostMemory; 2],
}

impl Journeys {
    /// Names in reports, and whether the memory is page-locked.
    pub const KINDS: [(&'static str, bool); 2] = [("page-locked memory", true), ("pageable memory", false)];

    /// For input and output of up to `most` bytes.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(lab: &Lab, most: usize) -> Outcome<Self> {
        let pinned = || Ok([lab.pinned(most)?, lab.pinned(most)?]);
        let mut pinned = pinned().map_err(failed)?;
        // Noise: look-ups by equal bytes would cause no bank conflicts.
        let content = much_noise(most);
        pinned[0][..most].copy_from_slice(&content);
        Ok(Journeys { pageable: [content, vec![0; most]], pinned })
    }

    /// The first `len` bytes of the input and of the output.
    pub fn memory(&mut self, is_pinned: bool, len: usize) -> [&mut [u8]; 2] {
        if is_pinned {
            self.pinned.each_mut().map(|memory| &mut memory[..len])
        } else {
            self.pageable.each_mut().map(|memory| &mut memory[..len])
        }
    }
}

/// Number of blocks that gives every item a thread, but no more than the device holds at once.
pub(super) fn grid(lab: &Lab, items: f64, threads: u32, occupancy: u32) -> u32 {
    let most = lab.description().processors as f64 * f64::from(occupancy);
    (items / f64::from(threads)).ceil().clamp(1.0, most) as u32
}

/// A variant's rate alone and with transfers, to compare with the CPU.
pub(super) type Pair = (String, Option<Spread>, Option<Spread>);

/// Speed-up of each variant over the CPU, alone and with transfers, as in the papers' tables. `cpu`: one
/// core, and all cores.
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

/// Pseudo-random bytes.
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

/// Pseudo-random bytes that repeat after each MiB.
pub(super) fn much_noise(len: usize) -> Vec<u8> {
    let mut much = noise(1 << 20).repeat(len.div_ceil(1 << 20));
    much.truncate(len);
    much
}

/// Compares a kernel's output with the portable implementation's.
///
/// # Errors
/// If they differ.
pub(super) fn compare(name: &str, found: &[u8], expected: &[u8]) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let what = format!("{name} does not compute what the CPU computes: nothing was measured with it");
    Err(Failure::plain(Code::Failed, what))
}

/// The best variant so far, by name.
#[derive(Default)]
pub(super) struct Best(Option<(String, f64)>);

impl Best {
    /// Considers a result.
    pub fn add(&mut self, name: &str, value: Option<Spread>) {
        if let Some(Spread { median, .. }) = value
            && self.0.as_ref().is_none_or(|best| best.1 < median)
        {
            self.0 = Some((name.to_owned(), median));
        }
    }

    /// Adds a sentence with the best variant, if there is one: without a GPU nothing is compared.
    pub fn tell(&self, section: Section, of: &str, unit: &str) -> Section {
        match &self.0 {
            Some((name, rate)) => {
                section.text(format!("Best here{of}: {name}, {} {unit}.", significant(*rate)))
            }
            None => section,
        }
    }
}
