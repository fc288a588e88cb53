//! `bench crypto`: rates of the ciphers, the tags and the engines on this machine, on one core and on all,
//! next to commonly used crates.

mod rates;
mod subjects;

use super::{ReportArgs, deliver};
use crate::report::{Axis, Column, Plot, Report, Section, Spread, Table};
use clap::Args;
use rates::Plan;
use std::{num::NonZero, thread, time::Duration};
use subjects::Group;
use warpcrypt::cli::lab::{Code, Failure, Outcome};

/// Runs of each measurement, in turn. Odd, so that the median is one of them.
const RUNS: u32 = 9;

/// Arguments of `bench crypto`.
#[derive(Debug, Args)]
pub struct CryptoArgs {
    /// How long each of about seventy measurements takes
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    #[command(flatten)]
    report: ReportArgs,
}

/// Runs `bench crypto`.
///
/// # Errors
/// If a file cannot be written.
pub fn run(args: &CryptoArgs) -> Outcome {
    let slice = Duration::try_from_secs_f64(args.seconds / f64::from(RUNS))
        .map_err(|_| Failure::plain(Code::Usage, "--seconds takes a number of seconds"))?;
    let groups = [subjects::ciphers(), subjects::tags(), subjects::chunks(), subjects::engines()].concat();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let plan = Plan::new(&groups, RUNS, slice, cores);
    let mut report = Report::new("crypto", "Ciphers, tags and engines");
    report.about("cores", cores.to_string());
    for group in &groups {
        report.section(section(group, &plan, cores));
    }
    deliver(&report, &args.report)
}

/// Measures a group, with its subjects taking turns.
fn section(group: &Group, plan: &Plan, cores: usize) -> Section {
    let one = plan.measure(&group.subjects, 1);
    let all = if group.is_per_core { plan.measure(&group.subjects, cores) } else { Vec::new() };
    let mut columns = vec![Column::text("implementation")];
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "GB/s")));
    columns.push(Column::number("per call", "µs"));
    if group.beside.is_some() {
        columns.push(Column::number("against it", "times"));
    }
    if group.is_per_core {
        columns.push(Column::number("all cores", "GB/s"));
    }
    let mut table = Table::new(&group.name, columns);
    let mut plot = Plot::bars(&group.title, Axis::linear("rate of one core", "GB/s"));
    for (at, subject) in group.subjects.iter().enumerate() {
        let Some(spread) = Spread::of(&one[at]) else { continue };
        let mut row = vec![subject.name.as_str().into(), spread.median.into(), spread.low.into()];
        row.extend([spread.high.into(), (subject.bytes as f64 / spread.median / 1e3).into()]);
        if let Some(beside) = group.beside {
            row.push(ratio(&one[at], &one[beside]).into());
        }
        if let Some(all) = all.get(at) {
            row.push(Spread::of(all).map(|spread| spread.median).into());
        }
        table.row(row);
        plot = plot.bar(&subject.name, Some(spread));
    }
    Section::new(&group.title).text(&group.text).plot(plot).table(table)
}

/// The median of the ratios of the runs. Disturbances that affect both at the same moment cancel out.
fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    Spread::of(&ratios).map(|spread| spread.median)
}
