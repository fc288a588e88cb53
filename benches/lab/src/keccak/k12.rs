//! Keccak in a tree: the leaves of KangarooTwelve on the device, the final node on the CPU.

use super::Device;
use crate::{
    device::{Launch, Parameter},
    experiment::{Bench, Journeys, compare, failed, grid, noise},
    report::{Axis, Column, Plot, Section, Spread, Table},
};
use crypto::hash::{Digest, Function};
use engine::driver::DeviceMemory;
use std::time::Instant;
use warpcrypt::cli::lab::Outcome;

/// Bytes of a chunk of the tree, and of its hash.
const CHUNK: usize = 8192;
const HASH: usize = 32;
/// Padding between the first chunk and the hashes of the others.
const AFTER_FIRST: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];
const MIB: usize = 1 << 20;

/// Kernel, threads per block, threads per leaf, name.
const WAYS: [(&str, u32, f64, &str); 2] =
    [("k12_leaves", 64, 1.0, "a thread a leaf"), ("k12_leaves_warp", 128, 32.0, "a warp a leaf")];

/// Measures whole messages of each size.
pub(super) fn section(bench: &Bench, device: Option<&Device>) -> Outcome<Section> {
    let title = "KangarooTwelve: leaves in a tree";
    let mut columns = vec![Column::text("variant"), Column::number("message", "B")];
    columns.extend(["rate", "lowest", "highest"].map(|name| Column::number(name, "GB/s")));
    let mut table = Table::new("k12", columns);
    let mut lines = Vec::new();
    let most = if bench.quick || device.is_none() { 16 * MIB } else { 1024 * MIB };
    let sizes: Vec<usize> =
        std::iter::successors(Some(MIB), |size| Some(size * 4)).take_while(|size| *size <= most).collect();
    let mut draw = |name: &str, rate: &mut dyn FnMut(usize) -> Outcome<Option<Spread>>| -> Outcome {
        let mut line = Vec::new();
        for bytes in &sizes {
            bench.next(&format!("K12, {name}, {} MiB", bytes / MIB))?;
            let Some(rate) = rate(*bytes)? else { continue };
            table.row([name.into(), (*bytes).into(), rate.median.into(), rate.low.into(), rate.high.into()]);
            line.push((*bytes as f64, rate.median));
        }
        lines.push((name.to_owned(), line));
        Ok(())
    };
    if let Some(device) = device {
        let trees = Trees::open(device, most)?;
        for way in &WAYS {
            draw(&format!("{}: leaves alone", way.3), &mut |bytes| trees.leaves(way, bytes))?;
        }
        let mut journeys = Journeys::new(device.lab, most)?;
        for (name, is_pinned) in Journeys::KINDS {
            draw(&format!("whole, with transfers, {name}"), &mut |bytes| {
                trees.journey(&WAYS[1], journeys.memory(is_pinned, bytes))
            })?;
        }
    }
    for (name, threads) in [("CPU, one core", 1), ("CPU, all cores", bench.cores)] {
        draw(name, &mut |bytes| {
            let bytes = bytes.min(64 * MIB);
            Ok(bench.cpu(threads, (vec![0x5a_u8; bytes], MIB), bytes as f64 / 1e9, &|data| {
                data.chunks(MIB)
                    .zip(1..)
                    .for_each(|(part, index)| drop(Function::K12.part(index, part, false)));
            }))
        })?;
    }
    let plot = lines
        .into_iter()
        .fold(Plot::lines(title, Axis::bytes("message"), Axis::log("rate", "GB/s")), |plot, (name, line)| {
            plot.line(&name, line)
        });
    let text = "The tree mode of Keccak (RFC 9861): leaves of 8 KiB are hashed by twelve rounds, and their hashes with the \
                first chunk, one block after the other, in the final node. The device hashes the leaves. With \
                transfers the message goes up, the hashes come down, and the CPU does the final node, which is a \
                256th of the work but not shared.";
    Ok(Section::new(title).text(text).plot(plot).table(table))
}

/// Leaves in device memory.
struct Trees<'a> {
    device: &'a Device<'a>,
    data: DeviceMemory,
    hashes: DeviceMemory,
    content: Vec<u8>,
}

impl<'a> Trees<'a> {
    fn open(device: &'a Device<'a>, most: usize) -> Outcome<Self> {
        let open = || {
            let content = noise(MIB).repeat(most / MIB);
            let (data, hashes) = (device.lab.memory(most)?, device.lab.memory(most / CHUNK * HASH)?);
            device.lab.upload(&content, &data)?;
            Ok(Trees { device, data, hashes, content })
        };
        open().map_err(failed)
    }

    /// Calls `with` with the launch over `leaves` leaves.
    fn with<T>(
        &self,
        way: &(&str, u32, f64, &str),
        leaves: usize,
        with: impl FnOnce(&Launch) -> Outcome<T>,
    ) -> Outcome<T> {
        let lab = self.device.lab;
        let kernel = lab.kernel(&self.device.module, way.0, 0).map_err(failed)?;
        let occupancy = lab.occupancy(&kernel, way.1).map_err(failed)?;
        let parameters = [
            Parameter::Memory(&self.data),
            Parameter::Number(leaves as u64),
            Parameter::Memory(&self.hashes),
        ];
        let blocks = grid(lab, leaves as f64 * way.2, way.1, occupancy);
        with(&Launch { kernel: &kernel, blocks, threads: way.1, parameters: &parameters })
    }

    /// GB/s of the leaves alone, after comparing the digest of a short message with the CPU's.
    fn leaves(&self, way: &(&str, u32, f64, &str), bytes: usize) -> Outcome<Option<Spread>> {
        self.check(way)?;
        let bench = self.device.bench;
        self.with(way, bytes / CHUNK, |launch| bench.kernel(self.device.lab, &[*launch], bytes as f64 / 1e9))
    }

    /// Compares a digest with the CPU's. A message ends with a zero byte, the length of its customisation
    /// string; this message fills its last chunk with it.
    fn check(&self, way: &(&str, u32, f64, &str)) -> Outcome {
        let mut message = self.content[..MIB].to_vec();
        message[MIB - 1] = 0;
        let lab = self.device.lab;
        lab.upload(&message[CHUNK..], &self.data).map_err(failed)?;
        let leaves = MIB / CHUNK - 1;
        let mut hashes = vec![0; leaves * HASH];
        self.with(way, leaves, |launch| lab.launch(launch).map_err(failed))?;
        lab.download(&self.hashes, &mut hashes).map_err(failed)?;
        let expected = Function::K12.digests(&[&message[..MIB - 1]]);
        compare(way.3, join(&message[..CHUNK], &hashes).bytes(), expected[0].bytes())
    }

    /// GB/s from host memory to the digest.
    fn journey(&self, way: &(&str, u32, f64, &str), memory: [&mut [u8]; 2]) -> Outcome<Option<Spread>> {
        let lab = self.device.lab;
        let [message, back] = memory;
        let (leaves, len) = (message.len() / CHUNK - 1, message.len());
        let hashes = &mut back[..leaves * HASH];
        let rates = self.with(way, leaves, |launch| {
            let mut once = || {
                let start = Instant::now();
                lab.upload(&message[CHUNK..], &self.data)?;
                lab.launch(launch)?;
                lab.download(&self.hashes, hashes)?;
                join(&message[..CHUNK], hashes);
                Ok(len as f64 / 1e9 / start.elapsed().as_secs_f64())
            };
            once().map_err(failed)?;
            (0..5).map(|_| once()).collect::<Result<Vec<f64>, _>>().map_err(failed)
        })?;
        Ok(Spread::of(&rates))
    }
}

/// Computes the final node.
fn join(first: &[u8], hashes: &[u8]) -> Digest {
    let mut join = Function::K12.join().expect("a tree"); // invariant: K12 is one
    join.push(&[first, &AFTER_FIRST, hashes].concat());
    join.finish()
}
