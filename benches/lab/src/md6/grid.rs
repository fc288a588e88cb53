//! Node sizes, rounds and file sizes in all combinations (the paper's figures 6.3 and 6.5).

use super::{
    BITS, KIB, MIB,
    device::{Case, Device},
    md6, sized,
    ways::WAYS,
};
use crate::{
    experiment::{Bench, noise},
    report::{Column, Section, Table},
};
use crypto::hash::md6::{Md6, NODE};
use std::hint::black_box;
use warpcrypt::cli::lab::Outcome;

const NODES: [usize; 4] = [NODE, 1024, 1536, 2048];
const ROUNDS: [u16; 5] = [1, 8, 24, 72, 168];
/// Bytes hashed by the plain code.
const PLAIN: usize = 256 * KIB;

/// Measures them on the device, if there is one, and with plain code on one core.
pub(super) fn section(bench: &Bench, device: Option<&Device>, most: usize) -> Outcome<Section> {
    let mut columns = ["node", "rounds", "file"]
        .map(|of| Column::number(of, if of == "rounds" { "" } else { "B" }))
        .to_vec();
    columns.extend(["kernel", "with transfers", "plain, one core"].map(|of| Column::number(of, "GB/s")));
    columns.extend(["kernel over plain", "with transfers over plain"].map(|of| Column::number(of, "times")));
    let mut table = Table::new("grid", columns);
    let sizes: Vec<usize> =
        [MIB, 16 * MIB, 128 * MIB, 1024 * MIB].into_iter().filter(|size| *size <= most).collect();
    let mut memory = device.map(|device| device.memory(most)).transpose()?;
    for node in NODES {
        for rounds in ROUNDS {
            let md6 = md6(BITS, Some(rounds));
            let plain = plain(bench, &md6, node)?;
            for bytes in sizes.iter().copied() {
                let mut rates = [None; 2];
                if let (Some(device), Some(memory)) = (device, &mut memory) {
                    let case = Case { node, ..Case::file(&md6, bytes) };
                    rates = [
                        device.rate(&WAYS[2], &case)?,
                        device.journey(&WAYS[2], &case, memory.place(true, bytes))?,
                    ]
                    .map(|rate| rate.map(|rate| rate.median));
                }
                let over = |rate: Option<f64>| Some(rate? / plain?);
                let cells = [rates[0], rates[1], plain, over(rates[0]), over(rates[1])].map(Into::into);
                table.row([node.into(), u64::from(rounds).into(), bytes.into()].into_iter().chain(cells));
            }
        }
    }
    let text = "16 threads a node, 16 nodes a block, page-locked memory. The plain code on one core takes one node after the other, as the \
                paper's did; of 256 KiB. Only nodes of 512 bytes are MD6.";
    Ok(Section::new("Nodes, rounds and files").text(text).table(table))
}

/// GB/s of the plain implementation.
fn plain(bench: &Bench, md6: &Md6, node: usize) -> Outcome<Option<f64>> {
    bench.next(&format!("plain, nodes of {node} bytes, {} rounds", md6.rounds()))?;
    let work = |data: &mut [u8]| _ = black_box(sized::digest(md6, data, node));
    Ok(bench.cpu(1, (noise(PLAIN), PLAIN), PLAIN as f64 / 1e9, &work).map(|rate| rate.median))
}
