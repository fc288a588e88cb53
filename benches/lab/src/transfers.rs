//! `bench transfers`: rates of copies to a device, back, and within it. After table 2.2 of the publication
//! on AES of 2012.

use super::{
    deliver,
    experiment::{Bench, ExperimentArgs, Journeys, failed},
    papers,
};
use crate::{
    device::Lab,
    report::{Axis, Column, Plot, Report, Section, Spread, Table},
};
use engine::driver::DeviceMemory;
use std::time::Instant;
use warpcrypt::cli::lab::Outcome;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const RUNS: usize = 5;
/// Copies within the device that are timed together.
const TOGETHER: u32 = 8;

/// Runs `bench transfers`.
///
/// # Errors
/// If the driver fails or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("transfers", "Copies to, from and within a GPU");
    report.about("paper", "Ma Mengqi 2012, table 2.2: four GPUs on PCI Express 2.0");
    let bench = Bench::start(args, &mut report)?;
    let most = if bench.quick { 4 * MIB } else { 256 * MIB };
    let mut table = Table::new(
        "rates",
        columns([Column::text("GPU"), Column::text("copy"), Column::number("size", "B")]),
    );
    let mut section = Section::new("By size").text(
        "To the device and back by the host's clock, each copy waited for; within the device by its own clock, eight copies one \
         after the other, and bytes count twice, as they are read and written: the paper's figures would else be half \
         of what its cards' memory can do.",
    );
    if bench.gpu().is_some() {
        for number in 0..engine::gpus().unwrap_or(0) {
            let lab = Lab::open_number(number).map_err(failed)?;
            section = section.plot(of_device(&bench, &lab, most, &mut table)?);
        }
    }
    report.section(section.table(table));
    report.section(paper());
    drop(bench);
    deliver(&report, &args.report)
}

fn columns<const N: usize>(first: [Column; N]) -> Vec<Column> {
    let rates = ["rate", "lowest", "highest"].map(|name| Column::number(name, "GB/s"));
    first.into_iter().chain(rates).collect()
}

/// Measures all copies on one device.
fn of_device(bench: &Bench, lab: &Lab, most: usize, table: &mut Table) -> Outcome<Plot> {
    let name = lab.description().name.clone();
    let mut plot = Plot::lines(&name, Axis::bytes("size"), Axis::log("rate", "GB/s"));
    let sizes: Vec<usize> = std::iter::successors(Some(64 * KIB), |size| Some(size * 4))
        .take_while(|size| *size <= most)
        .collect();
    let memory = [lab.memory(most).map_err(failed)?, lab.memory(most).map_err(failed)?];
    let mut journeys = Journeys::new(lab, most)?;
    let mut draw =
        |shown: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| -> Outcome<Vec<(f64, f64)>> {
            let mut line = Vec::new();
            for bytes in &sizes {
                bench.next(&format!("{shown}, {} KiB", bytes / KIB))?;
                let Some(rate) = rate(*bytes)? else { continue };
                let cells = [name.as_str().into(), shown.into(), (*bytes).into(), rate.median.into()];
                table.row(cells.into_iter().chain([rate.low.into(), rate.high.into()]));
                line.push((*bytes as f64, rate.median));
            }
            Ok(line)
        };
    for (kind, is_pinned) in Journeys::KINDS {
        for (way, is_up) in [("host to device", true), ("device to host", false)] {
            let shown = format!("{way}, {kind}");
            let line = draw(&shown, &mut |bytes| {
                over_the_bus(lab, &memory[0], journeys.memory(is_pinned, bytes), is_up)
            })?;
            plot = plot.line(&shown, line);
        }
    }
    let shown = "device to device";
    let line = draw(shown, &mut |bytes| {
        let time = || lab.time_copy(&memory[0], &memory[1], bytes, TOGETHER).map_err(failed);
        time()?;
        let rates =
            (0..RUNS).map(|_| Ok(2.0 * bytes as f64 / 1e9 / time()?)).collect::<Outcome<Vec<f64>>>()?;
        Ok(Spread::of(&rates))
    })?;
    Ok(plot.line(shown, line))
}

fn over_the_bus(
    lab: &Lab,
    device: &DeviceMemory,
    [from, to]: [&mut [u8]; 2],
    is_up: bool,
) -> Outcome<Option<Spread>> {
    let mut once = || {
        let start = Instant::now();
        if is_up { lab.upload(from, device) } else { lab.download(device, to) }.map_err(failed)?;
        Ok(from.len() as f64 / 1e9 / start.elapsed().as_secs_f64())
    };
    once()?;
    Ok(Spread::of(&(0..RUNS).map(|_| once()).collect::<Outcome<Vec<f64>>>()?))
}

/// The paper's table.
fn paper() -> Section {
    let heads =
        ["host to device", "device to host", "device to device"].map(|way| Column::number(way, "GB/s"));
    let mut table = Table::new("paper", [Column::text("GPU")].into_iter().chain(heads));
    for (gpu, rates) in papers::BANDWIDTHS {
        table.row([gpu.into()].into_iter().chain(rates.map(Into::into)));
    }
    Section::new("The paper's table 2.2").table(table)
}
