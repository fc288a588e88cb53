//! `bench engines`: batches of every size on the CPU, on the GPU, and on the engine that the router
//! chooses.

use super::{ReportArgs, deliver, progress::steps_bar};
use crate::{
    contest::{Contest, Series, Times},
    report::{Axis, Cell, Column, Plot, Report, Section, Spread, Table},
};
use clap::{Args, value_parser};
use crypto::{cipher::Cipher, integrity::Integrity};
use engine::Function;
use warpcrypt::cli::lab::{Code, Failure, Outcome};

const ABOUT: &str = "Each batch is run by the CPU engine, by the first GPU and by the router, in short series in turn, in \
    one process; the first of a series does not count, and the CPU writes the batch's buffers before each run. The ratio is \
    the median of the router's times to that of the better engine's. Where it is beyond 1.1 all three are measured once more, \
    and what is found then stands, with the first ratio beside it. What noise alone makes of such a ratio: the better \
    engine's odd series to its even ones.";

/// The pairs compared by default: the fastest on a CPU, the usual one, and the one with the slow cipher.
const PAIRS: [(Cipher, Integrity); 3] = [
    (Cipher::Aes128, Integrity::TurboShake128x4),
    (Cipher::Aes256, Integrity::TurboShake128x4),
    (Cipher::Kuznyechik, Integrity::TurboShake128x4),
];

/// Up to this ratio the choice counts as right.
const CLOSE: f64 = 1.1;

/// Arguments of `bench engines`.
#[derive(Debug, Args)]
pub struct EnginesArgs {
    /// Runs of each that count, at least; their median is taken
    #[arg(long, default_value_t = 36, value_parser = value_parser!(u16).range(2..))]
    runs: u16,
    /// Every cipher with every integrity function, instead of three pairs
    #[arg(long)]
    all: bool,
    /// Where the report goes.
    #[command(flatten)]
    report: ReportArgs,
}

/// Runs `bench engines`.
pub fn run(args: &EnginesArgs) -> Outcome {
    let contest = Contest::new().map_err(|why| {
        let advice = "`warpcrypt bench crypto` measures the CPU.";
        Failure::new(Code::NoGpu, format!("there is no GPU to compare with: {why}"), advice)
    })?;
    let mut report = Report::new("engines", "Which engine runs a batch");
    report.about("Runs", args.runs.to_string());
    let wanted = |function: &Function| args.all || PAIRS.contains(&(function.cipher, function.integrity));
    let functions: Vec<Function> = Function::all().filter(wanted).collect();
    let sizes: Vec<usize> = sizes().collect();
    let progress = steps_bar(functions.len() * sizes.len());
    let mut all = Vec::with_capacity(functions.len());
    for function in functions {
        progress.set_message(function.to_string());
        let mut rows = Vec::with_capacity(sizes.len());
        for bytes in &sizes {
            rows.extend(row(&contest, function, *bytes, args.runs.into())?);
            progress.inc(1);
        }
        all.push((function, rows));
    }
    progress.finish_and_clear();
    report.section(summary(&all));
    all.iter().for_each(|(function, rows)| report.section(section(*function, rows)));
    deliver(&report, &args.report)
}

/// Measures one size, and once more if the router was too far from the better engine.
fn row(contest: &Contest, function: Function, bytes: usize, runs: usize) -> Outcome<Option<Row>> {
    let measure = || {
        let times = contest.run(function, bytes, runs);
        times.map(|times| Row::new(bytes, &times)).map_err(|error| Failure::plain(Code::Failed, error))
    };
    let Some(first) = measure()? else { return Ok(None) };
    if first.ratio() <= CLOSE {
        return Ok(Some(first));
    }
    Ok(measure()?.map(|row| Row { first: Some(first.ratio()), ..row }))
}

/// Counts how often the choice was right, and lists the cases where it was not.
fn summary(all: &[(Function, Vec<Row>)]) -> Section {
    let columns = [Column::text("functions")].into_iter().chain(columns());
    let mut far = Table::new("beyond", columns);
    let (mut cells, mut once, mut again, mut noisy) = (0, 0, 0, 0);
    for (function, row) in all.iter().flat_map(|(function, rows)| rows.iter().map(move |row| (function, row)))
    {
        cells += 1;
        once += usize::from(row.first.is_none());
        again += usize::from(row.first.is_some() && row.ratio() <= CLOSE);
        noisy += usize::from(row.noise > CLOSE || row.noise < 1.0 / CLOSE);
        if row.first.is_some() {
            far.row([Cell::from(function.to_string())].into_iter().chain(row.cells()));
        }
    }
    let counts = format!(
        "{once} of {cells} are within 10 % of the better engine, {again} more when they were measured again, {} are \
         not; of the better engine's own odd series, {} are of its even ones. The table has those that were measured \
         again.",
        cells - once - again,
        cells - noisy
    );
    Section::new("The choice").text(ABOUT).text(counts).table(far)
}

/// Sizes of the batches, in bytes: powers of two from 4 KiB to 64 MiB. In the range where a GPU may begin
/// to win, one size is added between each two, where the router has to interpolate.
fn sizes() -> impl Iterator<Item = usize> {
    (12..=26).flat_map(|power| {
        let steps: &[usize] = if (16..24).contains(&power) { &[2, 3] } else { &[2] };
        steps.iter().map(move |step| (step << power) / 2)
    })
}

/// Medians for one size, in microseconds.
#[derive(Clone, Copy)]
struct Row {
    bytes: usize,
    cpu: f64,
    gpu: f64,
    auto: f64,
    /// Share of the router's batches that went to a GPU.
    share: f64,
    /// Ratio of the median of the better engine's odd series to that of its even ones.
    noise: f64,
    /// The first ratio, if it was measured again.
    first: Option<f64>,
}

impl Row {
    fn new(bytes: usize, times: &Times) -> Option<Self> {
        let [cpu, gpu, auto] = [&times.cpu, &times.gpu, &times.auto].map(|times| median(times.iter()));
        let (cpu, gpu) = (cpu?, gpu?);
        let better = if cpu < gpu { &times.cpu } else { &times.gpu };
        let noise = median(better.iter().skip(1).step_by(2))? / median(better.iter().step_by(2))?;
        Some(Row { bytes, cpu, gpu, auto: auto?, share: times.on_gpu, noise, first: None })
    }

    fn cells(&self) -> [Cell; 8] {
        [
            Cell::from(self.bytes >> 10),
            self.cpu.into(),
            self.gpu.into(),
            self.auto.into(),
            self.ratio().into(),
            self.first.into(),
            self.noise.into(),
            (100.0 * self.share).round().into(),
        ]
    }

    /// Ratio of the router's time to that of the better engine.
    fn ratio(&self) -> f64 {
        self.auto / self.cpu.min(self.gpu)
    }
}

fn median<'a>(series: impl Iterator<Item = &'a Series>) -> Option<f64> {
    let micros: Vec<f64> = series.flatten().map(|time| time.as_secs_f64() * 1e6).collect();
    Some(Spread::of(&micros)?.median)
}

fn columns() -> [Column; 8] {
    [
        Column::number("size", "KiB"),
        Column::number("cpu", "µs"),
        Column::number("gpu", "µs"),
        Column::number("auto", "µs"),
        Column::number("auto / better engine", ""),
        Column::number("at first", ""),
        Column::number("noise", ""),
        Column::number("auto on the gpu", "%"),
    ]
}

fn section(function: Function, rows: &[Row]) -> Section {
    let line = |of: fn(&Row) -> f64| rows.iter().map(|row| (row.bytes as f64, of(row))).collect::<Vec<_>>();
    let plot = Plot::lines(&function.to_string(), Axis::bytes("batch"), Axis::log("time", "µs"))
        .line("cpu", line(|row| row.cpu))
        .line("gpu", line(|row| row.gpu))
        .line("auto", line(|row| row.auto));
    let mut table = Table::new(&function.to_string().replace(' ', "-"), columns());
    rows.iter().for_each(|row| table.row(row.cells()));
    Section::new(&function.to_string()).plot(plot).table(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_choice_is_set_against_the_better_engine() {
        let micros = |times: &[u64]| times.iter().map(|time| [Duration::from_micros(*time); 3]).collect();
        let times = Times {
            cpu: micros(&[20, 20, 20]),
            gpu: micros(&[10, 12, 10]),
            auto: micros(&[11, 99, 11]),
            on_gpu: 0.5,
        };
        let row = Row::new(8192, &times).expect("there are times");
        assert_eq!((row.ratio(), row.noise), (1.1, 1.2));
        let good = |bytes| Row { first: None, bytes, ..row };
        let rows =
            vec![good(4096), Row { first: Some(1.3), ..row }, Row { first: Some(1.3), auto: 12.0, ..row }];
        let text = format!("{:?}", summary(&[(Function::all().next().expect("one"), rows)]));
        let counts =
            "1 of 3 are within 10 % of the better engine, 1 more when they were measured again, 1 are not";
        assert!(text.contains(counts) && text.contains("0 are of its"), "{text}");
    }

    #[test]
    fn sizes_rise_and_are_whole_chunks() {
        let sizes: Vec<usize> = sizes().collect();
        assert!(sizes.is_sorted_by(|a, b| a < b) && sizes.iter().all(|size| size % 4096 == 0));
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (4096, 64 << 20));
    }
}
