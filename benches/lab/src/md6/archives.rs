//! The paper's sizes: single files in each way (its table 6.1), the distribution of time, files in
//! partitions, and archives of many files.

use super::{
    BITS, CPU_MOST, KIB, MIB, cpu,
    device::{Case, Device, PART},
    md6,
    ways::{TRAVELS, WAYS},
};
use crate::{
    experiment::Pair,
    papers,
    report::{Column, Section, Table, significant},
};
use warpcrypt::cli::lab::Outcome;

/// Bytes of a megabyte, as used in the paper.
const MB: usize = 1_000_000;

/// Files of the paper's sizes, with speed-ups over one core and over all cores.
pub(super) fn files(device: &Device, most: usize) -> Outcome<Section> {
    let md6 = md6(BITS, None);
    let mut columns = vec![Column::text("variant"), Column::number("file", "B")];
    columns
        .extend(["kernel", "with transfers", "one core", "all cores"].map(|of| Column::number(of, "GB/s")));
    let over =
        ["kernel over one core", "with transfers over one core", "paper: kernel", "paper: with transfers"];
    columns.extend(over.map(|of| Column::number(of, "times")));
    let mut table = Table::new("speed-up", columns);
    let mut memory = device.memory(most)?;
    for (megabytes, with, without) in papers::MD6_SPEEDUPS {
        let bytes = megabytes as usize * MB;
        if bytes > most {
            continue;
        }
        let rate = |threads| {
            Ok(cpu(device.bench(), threads, &md6, bytes.min(CPU_MOST), bytes)?.map(|rate| rate.median))
        };
        let [one, all] = [rate(1)?, rate(device.bench().cores)?];
        for (number, way) in WAYS.iter().enumerate() {
            let case = Case::file(&md6, bytes);
            let pair: Pair = (
                way.name.to_owned(),
                device.rate(way, &case)?,
                device.journey(way, &case, memory.place(false, bytes))?,
            );
            let [kernel, journey] = [pair.1, pair.2].map(|rate| rate.map(|rate| rate.median));
            let over = |rate: Option<f64>| Some(rate? / one?);
            let paper = [without, with].map(|figure| Some(figure).filter(|_| number == 0));
            let rates = [kernel, journey, one, all, over(kernel), over(journey)];
            let cells = rates.into_iter().chain(paper).map(Into::into);
            table.row([pair.0.into(), bytes.into()].into_iter().chain(cells));
        }
    }
    let text = "The sizes of the paper's table 6.1, from pageable memory. Its 506.78 wants care: the kernel that it prints has no \
                loop over the 72 rounds of its text, while its CPU took 43 µs for a node (figure 4.3), as 72 rounds do. The \
                CPU here uses vectors.";
    Ok(Section::new("Files of the paper's sizes").text(text).table(table))
}

/// Share of the time spent on compression.
pub(super) fn shares(device: &Device, most: usize) -> Outcome<Section> {
    let md6 = md6(BITS, None);
    let kernels = ["pack", "rounds", "rewrite"];
    let columns = [Column::number("file", "B")].into_iter();
    let mut table = Table::new("shares", columns.chain(kernels.map(|of| Column::number(of, "%"))));
    let mut last = None;
    for bytes in [MIB, 16 * MIB, 256 * MIB].into_iter().filter(|bytes| *bytes <= most) {
        let rates = device.shares(&Case::file(&md6, bytes))?;
        let seconds = rates.map(|rate| rate.map_or(f64::NAN, |rate| 1.0 / rate.median));
        let sum: f64 = seconds.iter().sum();
        let shares = seconds.map(|seconds| 100.0 * seconds / sum);
        last = Some(shares[1]);
        table.row([bytes.into()].into_iter().chain(shares.map(Into::into)));
    }
    let text = format!(
        "The three kernels of each level: nodes are laid out, compressed, and their values put together. On the paper's CPU the \
         compression took {} % of the time (its figure 4.3){}.",
        papers::MD6_SHARE,
        last.map_or(String::new(), |share| format!("; here its kernel takes {} %", significant(share)))
    );
    Ok(Section::new("Share of the compression").text(text).table(table))
}

/// A file in partitions.
pub(super) fn partitions(device: &Device, most: usize) -> Outcome<Section> {
    let md6 = md6(BITS, None);
    let mut columns = vec![Column::text("variant"), Column::number("partition", "B")];
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "GB/s")));
    let mut table = Table::new("partitions", columns);
    let mut memory = device.memory(most)?;
    let sizes = [PART, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, most];
    for way in [&WAYS[0], TRAVELS] {
        for partition in sizes.into_iter().filter(|size| *size <= most) {
            let rate = device.partitions(way, &md6, (most, partition), memory.place(true, most))?;
            let Some(rate) = rate else { continue };
            let cells =
                [way.name.into(), partition.into(), rate.median.into(), rate.low.into(), rate.high.into()];
            table.row(cells);
        }
    }
    let text = format!(
        "A file of {} MiB from page-locked memory: each partition goes up and is hashed, and its values come down. The paper cuts \
         files that its card cannot hold, and hashes each partition as a file of its own, so the result is not MD6's; here \
         partitions are subtrees, and it is.",
        most / MIB
    );
    Ok(Section::new("Partitions").text(text).table(table))
}

/// Folders of 100 MB to 8 GB.
pub(super) fn archives(device: &Device, most: usize) -> Outcome<Section> {
    let md6 = md6(BITS, None);
    let mut columns = vec![Column::number("archive", "MB"), Column::number("file", "B")];
    columns.extend(["with transfers", "one core", "all cores"].map(|of| Column::number(of, "GB/s")));
    columns.extend(["over one core", "over all cores"].map(|of| Column::number(of, "times")));
    let mut table = Table::new("archives", columns);
    let piece = most.min(256 * MIB);
    let mut memory = device.memory(piece)?;
    for file in [16 * KIB, MIB] {
        let rate = |threads| {
            Ok(cpu(device.bench(), threads, &md6, CPU_MOST, file.min(CPU_MOST))?.map(|rate| rate.median))
        };
        let [one, all] = [rate(1)?, rate(device.bench().cores)?];
        for megabytes in [100, 500, 1000, 2000, 4000, 8000] {
            let bytes = megabytes * MB;
            let pieces = bytes.div_ceil(piece);
            // Equal pieces that consist of whole files.
            let each = (bytes / pieces).next_multiple_of(file).min(piece / file * file);
            let case = Case { file, ..Case::file(&md6, each) };
            let rate = device.archive(&case, pieces, memory.place(false, each))?.map(|rate| rate.median);
            let over = |base: Option<f64>| Some(rate? / base?);
            let cells = [rate, one, all, over(one), over(all)].map(Into::into);
            table.row([megabytes.into(), file.into()].into_iter().chain(cells));
        }
    }
    let text = format!(
        "Archives as large as the paper's, of files of one size, from pageable memory in pieces of up to {} MiB, rounded to whole \
         files; the same piece again and again. The paper does not say how large its files were.",
        piece / MIB
    );
    Ok(Section::new("Archives").text(text).table(table))
}
