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
    its buffers freshly written by the CPU before each run, and the medians are compared. The ratio is the router's time to the better engine's. The engines' profiles were \
    measured beforehand, at powers of two from 64 KiB to 64 MiB. Where the router chose the better engine all the \
    same, what is left of the ratio is noise.";

/// Arguments of `bench engines`.
#[derive(Debug, Args)]
pub struct EnginesArgs {
    /// Runs of each at least; their median counts
    #[arg(long, default_value_t = 11, value_parser = value_parser!(u16).range(1..))]
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
    let columns = [
        Column::text("functions"),
        Column::number("auto / better engine", ""),
        Column::number("size", "KiB"),
    ];
    let (mut worst, mut sections) = (Table::new("worst", columns), Vec::new());
    for function in Function::all() {
        progress.set_message(name(function));
        let mut rows = Vec::with_capacity(sizes.len());
        for bytes in &sizes {
            let times = contest.run(function, *bytes, args.runs.into());
            let times = times.map_err(|error| Failure::plain(Code::Failed, error))?;
            rows.extend(Row::new(*bytes, &times));
            progress.inc(1);
        }
        if let Some(row) = rows.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio())) {
            worst.row([name(function).into(), row.ratio().into(), Cell::from(row.bytes >> 10)]);
        }
        sections.push(section(function, &rows));
    }
    progress.finish_and_clear();
    report.section(Section::new("The choice at its worst").text(ABOUT).table(worst));
    sections.into_iter().for_each(|section| report.section(section));
    deliver(&report, &args.report)
}

/// Sizes of the batches in bytes: powers of two from 4 KiB to 64 MiB, and between those at which a GPU may begin to
/// win another each, where the router has to guess.
fn sizes() -> impl Iterator<Item = usize> {
    (12..=26).flat_map(|power| {
        let steps: &[usize] = if (16..24).contains(&power) { &[2, 3] } else { &[2] };
        steps.iter().map(move |step| (step << power) / 2)
    })
}

fn name(function: Function) -> String {
    format!("{} {} {}", function.op.name(), function.cipher.name(), function.integrity.name())
}

/// Medians for one size, in microseconds.
struct Row {
    bytes: usize,
    cpu: f64,
    gpu: f64,
    auto: f64,
    /// Share of the router's batches that went to a GPU.
    share: f64,
}

impl Row {
    fn new(bytes: usize, times: &Times) -> Option<Self> {
        let median = |times: &[Duration]| {
            let micros: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
            Some(Spread::of(&micros)?.median)
        };
        let share = times.given_to_gpu as f64 / times.auto.len().max(1) as f64;
        Some(Row {
            bytes,
            share,
            cpu: median(&times.cpu)?,
            gpu: median(&times.gpu)?,
            auto: median(&times.auto)?,
        })
    }

    /// The router's time to that of the better engine.
    fn ratio(&self) -> f64 {
        self.auto / self.cpu.min(self.gpu)
    }
}

fn section(function: Function, rows: &[Row]) -> Section {
    let line = |of: fn(&Row) -> f64| rows.iter().map(|row| (row.bytes as f64, of(row))).collect::<Vec<_>>();
    let plot = Plot::lines(&name(function), Axis::bytes("batch"), Axis::log("time", "µs"))
        .line("cpu", line(|row| row.cpu))
        .line("gpu", line(|row| row.gpu))
        .line("auto", line(|row| row.auto));
    let columns = [
        Column::number("size", "KiB"),
        Column::number("cpu", "µs"),
        Column::number("gpu", "µs"),
        Column::number("auto", "µs"),
        Column::number("auto / better engine", ""),
        Column::number("auto on the gpu", "%"),
    ];
    let mut table = Table::new(&name(function).replace(' ', "-"), columns);
    for row in rows {
        table.row([
            Cell::from(row.bytes >> 10),
            row.cpu.into(),
            row.gpu.into(),
            row.auto.into(),
            row.ratio().into(),
            (100.0 * row.share).round().into(),
        ]);
    }
    Section::new(&name(function)).plot(plot).table(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_and_are_whole_chunks() {
        let sizes: Vec<usize> = sizes().collect();
        assert!(sizes.is_sorted_by(|a, b| a < b) && sizes.iter().all(|size| size % 4096 == 0));
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (4096, 64 << 20));
    }
}
