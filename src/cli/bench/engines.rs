//! `bench engines`: batches of every size on the CPU, on the GPU, and where the router sends them.

use super::{
    super::{
        exit::{Code, Failure, Outcome},
        progress::steps_bar,
    },
    ReportArgs, deliver,
};
use crate::{
    engine::{Contest, Function, Times},
    report::{Axis, Cell, Column, Plot, Report, Section, Spread, Table},
};
use clap::{Args, value_parser};
use std::time::Duration;

const ABOUT: &str = "Each batch is run by the CPU engine, by the first GPU and by the router in turn, in one process, \
    each twice in a row of which the second counts, its buffers freshly written by the CPU before each run. The ratio is \
    the median of the router's times to that of the better engine's. What noise alone makes of such a ratio is shown \
    beside it: the better engine's odd runs to its even runs. Where the router chose the better engine and is \
    slower all the same, that is noise, too.";

/// The ratio up to which the choice counts as right.
const CLOSE: f64 = 1.1;

/// Arguments of `bench engines`.
#[derive(Debug, Args)]
pub struct EnginesArgs {
    /// Runs of each at least; their median counts
    #[arg(long, default_value_t = 15, value_parser = value_parser!(u16).range(2..))]
    runs: u16,
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
    let sizes: Vec<usize> = sizes().collect();
    let progress = steps_bar(Function::COUNT * sizes.len());
    let mut all = Vec::with_capacity(Function::COUNT);
    for function in Function::all() {
        progress.set_message(function.to_string());
        let mut rows = Vec::with_capacity(sizes.len());
        for bytes in &sizes {
            let times = contest.run(function, *bytes, args.runs.into());
            let times = times.map_err(|error| Failure::plain(Code::Failed, error))?;
            rows.extend(Row::new(*bytes, &times));
            progress.inc(1);
        }
        all.push((function, rows));
    }
    progress.finish_and_clear();
    report.section(summary(&all));
    all.iter().for_each(|(function, rows)| report.section(section(*function, rows)));
    deliver(&report, &args.report)
}

/// How often the choice was right, and where it was not.
fn summary(all: &[(Function, Vec<Row>)]) -> Section {
    let columns = [Column::text("functions")].into_iter().chain(columns());
    let mut far = Table::new("beyond", columns);
    let (mut cells, mut close, mut noisy) = (0, 0, 0);
    for (function, row) in all.iter().flat_map(|(function, rows)| rows.iter().map(move |row| (function, row)))
    {
        cells += 1;
        close += usize::from(row.ratio() <= CLOSE);
        noisy += usize::from(row.noise > CLOSE || row.noise < 1.0 / CLOSE);
        if row.ratio() > CLOSE {
            far.row([Cell::from(function.to_string())].into_iter().chain(row.cells()));
        }
    }
    let counts = format!(
        "{close} of {cells} are within 10 % of the better engine; of the better engine's own odd runs, {} are of its \
         even ones. The table has the others.",
        cells - noisy
    );
    Section::new("The choice").text(ABOUT).text(counts).table(far)
}

/// Sizes of the batches in bytes: powers of two from 4 KiB to 64 MiB, and between those at which a GPU may begin to
/// win another each, where the router has to guess.
fn sizes() -> impl Iterator<Item = usize> {
    (12..=26).flat_map(|power| {
        let steps: &[usize] = if (16..24).contains(&power) { &[2, 3] } else { &[2] };
        steps.iter().map(move |step| (step << power) / 2)
    })
}

/// Medians for one size, in microseconds.
struct Row {
    bytes: usize,
    cpu: f64,
    gpu: f64,
    auto: f64,
    /// Share of the router's batches that went to a GPU.
    share: f64,
    /// The median of the better engine's odd runs to that of its even ones.
    noise: f64,
}

impl Row {
    fn new(bytes: usize, times: &Times) -> Option<Self> {
        let [cpu, gpu, auto] = [&times.cpu, &times.gpu, &times.auto].map(|times| median(times.iter()));
        let (cpu, gpu) = (cpu?, gpu?);
        let better = if cpu < gpu { &times.cpu } else { &times.gpu };
        let noise = median(better.iter().skip(1).step_by(2))? / median(better.iter().step_by(2))?;
        Some(Row { bytes, cpu, gpu, auto: auto?, share: times.on_gpu, noise })
    }

    fn cells(&self) -> [Cell; 7] {
        [
            Cell::from(self.bytes >> 10),
            self.cpu.into(),
            self.gpu.into(),
            self.auto.into(),
            self.ratio().into(),
            self.noise.into(),
            (100.0 * self.share).round().into(),
        ]
    }

    /// The router's time to that of the better engine.
    fn ratio(&self) -> f64 {
        self.auto / self.cpu.min(self.gpu)
    }
}

fn median<'a>(times: impl Iterator<Item = &'a Duration>) -> Option<f64> {
    let micros: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e6).collect();
    Some(Spread::of(&micros)?.median)
}

fn columns() -> [Column; 7] {
    [
        Column::number("size", "KiB"),
        Column::number("cpu", "µs"),
        Column::number("gpu", "µs"),
        Column::number("auto", "µs"),
        Column::number("auto / better engine", ""),
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

    #[test]
    fn the_choice_is_set_against_the_better_engine() {
        let micros = |times: &[u64]| times.iter().copied().map(Duration::from_micros).collect();
        let times = Times {
            cpu: micros(&[20, 20, 20]),
            gpu: micros(&[10, 12, 10]),
            auto: micros(&[11, 99, 11]),
            on_gpu: 0.5,
        };
        let row = Row::new(8192, &times).expect("there are times");
        assert_eq!((row.ratio(), row.noise), (1.1, 1.2));
        let text = format!("{:?}", summary(&[(Function::all().next().expect("one"), vec![row])]));
        assert!(text.contains("1 of 1 are within") && text.contains("0 are of its"), "{text}");
    }

    #[test]
    fn sizes_rise_and_are_whole_chunks() {
        let sizes: Vec<usize> = sizes().collect();
        assert!(sizes.is_sorted_by(|a, b| a < b) && sizes.iter().all(|size| size % 4096 == 0));
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (4096, 64 << 20));
    }
}
