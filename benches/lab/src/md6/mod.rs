//! `bench md6`: threads per node, file size, folders of many files, node size, rounds and digest lengths.
//! After a tool for matching files on a GeForce (16 threads per node, nodes of 512 bytes to 2 KiB), whose
//! figures are shown alongside.

mod archives;
mod device;
mod grid;
mod sized;
mod ways;

use super::{
    deliver,
    experiment::{Bench, Best, ExperimentArgs, noise},
    papers,
};
use crate::report::{Axis, Column, Plot, Report, Section, Spread, Table};
use crypto::hash::{Function, md6::Md6};
use device::{Case, Device};
use warpcrypt::cli::lab::{Failure, Outcome};
use ways::{TRAVELS, WAYS};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The paper uses the number of rounds of a 128-bit digest.
const BITS: u16 = 128;
/// Maximum size of the data on the CPU.
const CPU_MOST: usize = 64 * MIB;
/// Runs `bench md6`.
///
/// # Errors
/// If the driver fails, a kernel's output differs from the CPU's, or a file cannot be written.
pub fn run(args: &ExperimentArgs) -> Outcome {
    let mut report = Report::new("md6", "MD6: threads of a node, sizes, rounds");
    report.about(
        "paper",
        "a thesis on MD6 in CUDA for matching files; its tables give speed-ups over one core",
    );
    let bench = Bench::start(args, &mut report)?;
    let most = if bench.quick || bench.gpu().is_none() { 16 * MIB } else { 1024 * MIB };
    let device = bench.gpu().map(|lab| Device::open(&bench, lab, most)).transpose()?;
    let device = device.as_ref();
    report.section(by_size(&bench, device, most)?);
    if let Some(device) = device {
        report.section(archives::files(device, most)?);
        report.section(archives::shares(device, most)?);
        report.section(archives::partitions(device, most)?);
        report.section(by_nodes(device)?);
        report.section(by_node_size(device, most.min(128 * MIB))?);
    }
    report.section(by_rounds(&bench, device, most.min(128 * MIB))?);
    report.section(grid::section(&bench, device, most)?);
    report.section(folders(&bench, device, most.min(256 * MIB))?);
    if let Some(device) = device {
        report.section(archives::archives(device, most)?);
    }
    drop(bench);
    deliver(&report, &args.report)
}

/// MD6 with a digest of `bits` bits, and with its default rounds unless `rounds` is given.
fn md6(bits: u16, rounds: Option<u16>) -> Md6 {
    let md6 = Md6::new(bits).expect("a digest of MD6"); // invariant: callers name constants
    match rounds {
        Some(rounds) => md6.with_rounds(rounds).expect("rounds of MD6"), // invariant: as above
        None => md6,
    }
}

/// GB/s of the CPU: each thread hashes files of `file` bytes, or its share of a longer file.
fn cpu(bench: &Bench, threads: usize, md6: &Md6, bytes: usize, file: usize) -> Outcome<Option<Spread>> {
    bench.next(&format!("CPU, {threads} threads, {} KiB, {md6:?}", bytes / KIB))?;
    let (function, len) = (Function::Md6(md6.clone()), bytes.min(CPU_MOST));
    let part_len = function.part_len().unwrap_or(file);
    Ok(bench.cpu(threads, (vec![0x5a; len], file.min(part_len)), len as f64 / 1e9, &|data| {
        // Same order as in `hash`: long files in parts, short ones in groups that fit into the cache.
        if file > part_len {
            return data
                .chunks(part_len)
                .zip(0..)
                .for_each(|(part, index)| drop(function.part(index, part, false)));
        }
        let messages: Vec<&[u8]> = data.chunks(file).collect();
        messages.chunks((MIB / file).max(1)).for_each(|some| drop(function.digests(some)));
    }))
}

/// Columns for a rate and its range.
fn rates(unit: &str) -> [Column; 3] {
    ["rate", "lowest", "highest"].map(|name| Column::number(name, unit))
}

fn by_size(bench: &Bench, device: Option<&Device>, most: usize) -> Outcome<Section> {
    let title = "Files by size";
    let mut columns = vec![Column::text("variant"), Column::number("size", "B")];
    columns.extend(rates("GB/s"));
    let mut table = Table::new("size", columns);
    let mut plot = Plot::lines(title, Axis::bytes("file"), Axis::log("rate", "GB/s"));
    let md6 = md6(BITS, None);
    let sizes: Vec<usize> =
        std::iter::successors(Some(64 * KIB), |size| Some(size * if bench.quick { 16 } else { 4 }))
            .take_while(|size| *size <= most)
            .collect();
    let mut lines: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    let mut best = Best::default();
    let mut draw = |name: &'static str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for bytes in &sizes {
            let Some(rate) = rate(*bytes)? else { continue };
            table.row([name.into(), (*bytes).into(), rate.median.into(), rate.low.into(), rate.high.into()]);
            line.push((*bytes as f64, rate.median));
            if !name.starts_with("CPU") && *bytes == sizes[sizes.len() - 1] {
                best.add(name, Some(rate));
            }
        }
        lines.push((name, line));
        Ok::<(), Failure>(())
    };
    if let Some(device) = device {
        for way in &WAYS {
            draw(way.name, &mut |bytes| device.rate(way, &Case::file(&md6, bytes)))?;
        }
        let mut memory = device.memory(most)?;
        for (name, is_pinned) in [("with transfers, page-locked", true), ("with transfers, pageable", false)]
        {
            draw(name, &mut |bytes| {
                device.journey(TRAVELS, &Case::file(&md6, bytes), memory.place(is_pinned, bytes))
            })?;
        }
    }
    for (name, threads) in [("CPU, one core", 1), ("CPU, all cores", bench.cores)] {
        draw(name, &mut |bytes| cpu(bench, threads, &md6, bytes, bytes))?;
    }
    let speedups = speedups(&lines);
    for (name, line) in lines {
        plot = plot.line(name, line);
    }
    let text = format!(
        "Digests of {BITS} bits, 72 rounds, nodes of 512 bytes, as in the paper. With transfers: the file goes to the device, \
         is hashed, and the root's value comes back, one after the other. The CPU's data is not larger than 64 MiB."
    );
    Ok(best.tell(Section::new(title), "", "GB/s").text(text).plot(plot).plot(speedups).table(table))
}

/// Speed-up over one core, next to the paper's.
fn speedups(lines: &[(&'static str, Vec<(f64, f64)>)]) -> Plot {
    let mut plot = Plot::lines(
        "Speed-up over one core",
        Axis::bytes("file"),
        Axis::log("speed-up over one core", "times"),
    );
    let one = lines
        .iter()
        .find(|(name, _)| *name == "CPU, one core")
        .map(|(_, line)| &line[..])
        .unwrap_or_default();
    for (name, line) in lines.iter().filter(|(name, _)| *name != "CPU, one core") {
        let points = line.iter().zip(one).map(|((bytes, rate), (_, base))| (*bytes, rate / base)).collect();
        plot = plot.line(name, points);
    }
    let paper = |pick: fn(&(f64, f64, f64)) -> f64| {
        papers::MD6_SPEEDUPS.iter().map(|p| (p.0 * 1e6, pick(p))).collect()
    };
    plot.line("paper: kernel alone", paper(|p| p.2)).line("paper: with transfers", paper(|p| p.1))
}

/// Times a level with various numbers of nodes, to find where sharing a node among threads stops paying
/// off.
fn by_nodes(device: &Device) -> Outcome<Section> {
    let title = "Nodes of a level";
    let mut columns = vec![Column::text("variant"), Column::number("nodes", "")];
    columns.extend(rates("million/s"));
    let mut table = Table::new("nodes", columns);
    let mut plot = Plot::lines(title, Axis::log("nodes", ""), Axis::log("rate", "million/s"));
    let md6 = md6(256, None);
    for way in &WAYS[..4] {
        let mut line = Vec::new();
        for nodes in (0..=17).map(|power| 1_usize << power) {
            let Some(rate) = device.leaves(way, &md6, nodes)? else { continue };
            table.row([way.name.into(), nodes.into(), rate.median.into(), rate.low.into(), rate.high.into()]);
            line.push((nodes as f64, rate.median));
        }
        plot = plot.line(way.name, line);
    }
    let text = "One launch over leaves of 512 bytes, 104 rounds.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}

fn by_node_size(device: &Device, bytes: usize) -> Outcome<Section> {
    let title = "Size of nodes";
    let mut columns = vec![Column::text("variant"), Column::number("node", "B")];
    columns.extend(rates("GB/s"));
    let mut table = Table::new("node-size", columns);
    let mut plot = Plot::lines(title, Axis::linear("node", "B"), Axis::linear("rate", "GB/s"));
    let md6 = md6(BITS, None);
    let mut best = Best::default();
    for way in &WAYS[1..3] {
        let mut line = Vec::new();
        for node in [512, 1024, 1536, 2048] {
            let case = Case { node, ..Case::file(&md6, bytes) };
            let Some(rate) = device.rate(way, &case)? else { continue };
            best.add(&format!("{}, nodes of {node} bytes", way.name), Some(rate));
            table.row([way.name.into(), node.into(), rate.median.into(), rate.low.into(), rate.high.into()]);
            line.push((node as f64, rate.median));
        }
        plot = plot.line(way.name, line);
    }
    let text = format!(
        "One file of {} MiB, 72 rounds. The paper's speed-up grew in proportion to the node's size (its buffer), since a \
         round costs the same however large the node: each step mixes a word. Only nodes of 512 bytes are MD6.",
        bytes / MIB
    );
    Ok(best.tell(Section::new(title), "", "GB/s").text(text).plot(plot).table(table))
}

fn by_rounds(bench: &Bench, device: Option<&Device>, bytes: usize) -> Outcome<Section> {
    let title = "Rounds and digests";
    let mut columns =
        vec![Column::text("variant"), Column::number("digest", "bit"), Column::number("rounds", "")];
    columns.extend(rates("GB/s"));
    let mut table = Table::new("rounds", columns);
    let mut plot = Plot::lines(title, Axis::linear("rounds", ""), Axis::log("rate", "GB/s"));
    // The digest length does not affect the time, but determines the default number of rounds.
    let hashes = [(BITS, Some(1)), (BITS, Some(8)), (BITS, Some(24)), (128, None), (160, None), (224, None)]
        .into_iter()
        .chain([(256, None), (384, None), (512, None)])
        .map(|(bits, rounds)| md6(bits, rounds));
    let hashes: Vec<Md6> = hashes.collect();
    let mut draw = |name: &str, rate: &mut dyn FnMut(&Md6) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for md6 in &hashes {
            let Some(rate) = rate(md6)? else { continue };
            let cells = [name.into(), u64::from(md6.bits()).into(), u64::from(md6.rounds()).into()];
            table.row(cells.into_iter().chain([rate.median.into(), rate.low.into(), rate.high.into()]));
            line.push((f64::from(md6.rounds()), rate.median));
        }
        Ok::<_, Failure>(line)
    };
    let mut lines = Vec::new();
    if let Some(device) = device {
        for way in &WAYS {
            lines.push((way.name, draw(way.name, &mut |md6| device.rate(way, &Case::file(md6, bytes)))?));
        }
        let mut memory = device.memory(bytes)?;
        let name = "with transfers, page-locked";
        let mut rate =
            |md6: &Md6| device.journey(TRAVELS, &Case::file(md6, bytes), memory.place(true, bytes));
        lines.push((name, draw(name, &mut rate)?));
    }
    let name = "CPU, all cores";
    lines.push((name, draw(name, &mut |md6| cpu(bench, bench.cores, md6, bytes, bytes))?));
    for (name, line) in lines {
        plot = plot.line(name, line);
    }
    let text = format!(
        "One file of {} MiB. 40 + d/4 rounds make a digest of d bits, 72 to 168 for 128 to 512 bits. In the paper the speed-up \
         over the CPU grew with the rounds: transfers weigh less.",
        bytes / MIB
    );
    Ok(Section::new(title).text(text).plot(plot).table(table))
}

fn folders(bench: &Bench, device: Option<&Device>, bytes: usize) -> Outcome<Section> {
    let title = "Folders of files";
    let mut columns = vec![Column::text("variant"), Column::number("file", "B"), Column::number("files", "")];
    columns.extend(rates("GB/s"));
    let mut table = Table::new("folders", columns);
    let mut plot = Plot::lines(title, Axis::bytes("file"), Axis::log("rate", "GB/s"));
    let md6 = md6(BITS, None);
    let sizes = [512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB];
    let mut draw = |name: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| {
        let mut line = Vec::new();
        for file in sizes {
            let Some(rate) = rate(file)? else { continue };
            let cells = [name.into(), file.into(), (bytes / file).into(), rate.median.into()];
            table.row(cells.into_iter().chain([rate.low.into(), rate.high.into()]));
            line.push((file as f64, rate.median));
        }
        Ok::<_, Failure>(line)
    };
    let mut lines = Vec::new();
    if let Some(device) = device {
        let of = |file| Case { file, ..Case::file(&md6, bytes) };
        for way in [&WAYS[0], &WAYS[1], TRAVELS] {
            lines.push((way.name, draw(way.name, &mut |file| device.rate(way, &of(file)))?));
        }
        let mut memory = device.memory(bytes)?;
        for (name, is_pinned) in [("with transfers, page-locked", true), ("with transfers, pageable", false)]
        {
            let mut rate = |file| device.journey(TRAVELS, &of(file), memory.place(is_pinned, bytes));
            lines.push((name, draw(name, &mut rate)?));
        }
    }
    let name = "CPU, all cores";
    lines.push((name, draw(name, &mut |file| cpu(bench, bench.cores, &md6, bytes, file))?));
    for (name, line) in lines {
        plot = plot.line(name, line);
    }
    let text = format!(
        "{} MiB in files of one size, hashed together: each level of all trees is one launch. The paper gained less from \
         folders of small files than from one large file, for it launched for each of them.",
        bytes / MIB
    );
    Ok(Section::new(title).text(text).plot(plot).table(table))
}
