//! MD6 on the device: the launches for a case, and their timing.

use super::{
    super::experiment::{Bench, compare, failed, grid},
    noise,
    ways::{TRAVELS, WAYS, WORK, Way},
};
use crate::{
    device::{Lab, Launch, Parameter},
    md6::sized,
    report::Spread,
};
use crypto::hash::{
    Digest, Function,
    md6::{
        Md6, NODE, VALUE,
        forest::{Forest, LAYER, Tree},
    },
};
use engine::{
    DriverError,
    driver::{DeviceMemory, HostMemory, Module},
};
use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Instant};
use warpcrypt::cli::lab::Outcome;

static FATBIN: &[u8] = include_bytes!("../../kernels/md6.fatbin");

/// Maximum number of files hashed together.
const FILES: usize = 512 << 10;
/// Nodes of a size other than MD6's are compared with the CPU's up to this many bytes, because there is no
/// fast CPU code for them.
const SIZED_MOST: usize = 1 << 20;

/// An archive of more pieces is hashed once instead of three times.
const MOST_PIECES: usize = 4;
/// Bytes of a part of a tree that can be hashed independently.
pub(super) const PART: usize = 512 << 10;

/// A hashing task.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub md6: &'a Md6,
    pub bytes: usize,
    /// Bytes per file; the last one may be shorter.
    pub file: usize,
    /// Bytes per node.
    pub node: usize,
}

impl<'a> Case<'a> {
    /// A single file.
    pub fn file(md6: &'a Md6, bytes: usize) -> Self {
        Case { md6, bytes, file: bytes, node: NODE }
    }
}

/// Host memory for transfers.
pub(super) struct Memory {
    pageable: Vec<u8>,
    pinned: HostMemory,
    roots: HostMemory,
}

impl Memory {
    /// `bytes` bytes to upload, and room for the downloaded results.
    pub fn place(&mut self, is_pinned: bool, bytes: usize) -> (&[u8], &mut [u8]) {
        let from = if is_pinned { &self.pinned[..bytes] } else { &self.pageable[..bytes] };
        (from, &mut self.roots)
    }
}

pub(super) struct Device<'a> {
    bench: &'a Bench,
    lab: &'a Lab,
    module: Arc<Module>,
    content: Vec<u8>,
    data: DeviceMemory,
    values: DeviceMemory,
    layers: DeviceMemory,
    hash: DeviceMemory,
    work: DeviceMemory,
    known: RefCell<Known>,
}

/// The CPU's results for cases, by digest bits, rounds, total bytes, file bytes and node bytes.
type Known = HashMap<(u16, u16, usize, usize, usize), Vec<Digest>>;

impl<'a> Device<'a> {
    /// Opens it for files of up to `most` bytes.
    pub fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
        let open = || {
            let content = noise(1 << 20).repeat(most.div_ceil(1 << 20));
            let device = Device {
                bench,
                lab,
                module: lab.load(FATBIN)?,
                data: lab.memory(content.len())?,
                // A third of the data, plus the incomplete last nodes of levels.
                values: lab.memory(most / 3 + (1 << 20))?,
                layers: lab.memory(FILES * LAYER)?,
                hash: lab.memory(128)?,
                work: lab.memory(most / NODE * WORK)?,
                known: RefCell::default(),
                content,
            };
            lab.upload(&device.content, &device.data)?;
            Ok(device)
        };
        open().map_err(failed)
    }

    /// The experiment that it belongs to.
    pub fn bench(&self) -> &'a Bench {
        self.bench
    }

    /// Host memory for transfers of `bytes` bytes.
    pub fn memory(&self, bytes: usize) -> Outcome<Memory> {
        let make = || {
            let mut pinned = self.lab.pinned(bytes)?;
            pinned[..bytes].copy_from_slice(&self.content[..bytes]);
            let roots = self.lab.pinned(FILES * VALUE)?;
            Ok(Memory { pageable: self.content[..bytes].to_vec(), pinned, roots })
        };
        make().map_err(failed)
    }

    /// Uploads everything except the data, then calls `with` with the launches.
    fn with<T>(
        &self,
        way: &Way,
        case: &Case,
        with: impl FnOnce(&[Launch], &Forest) -> Outcome<T>,
    ) -> Outcome<T> {
        let tree = |at| {
            let bits = 8 * case.file.min(case.bytes - at) as u64;
            Tree { data: at as u64, bits, part: None }
        };
        let trees: Vec<Tree> = (0..case.bytes).step_by(case.file).map(tree).collect();
        self.launched(way, case, &Forest::new(&trees, case.node), with)
    }

    /// Like `with`, but for arbitrary trees with the case's hash and node size.
    fn launched<T>(
        &self,
        way: &Way,
        case: &Case,
        forest: &Forest,
        with: impl FnOnce(&[Launch], &Forest) -> Outcome<T>,
    ) -> Outcome<T> {
        let words = case.node / 8;
        let upload = || {
            self.lab.upload(case.md6.shared().as_slice(), &self.hash)?;
            self.lab.upload(&forest.layers, &self.layers)
        };
        upload().map_err(failed)?;
        let processors = self.lab.description().processors;
        let mut ready = Vec::new();
        for level in &forest.levels {
            let data = if level.number == 1 { &self.data } else { &self.values };
            let mut parameters = vec![
                Parameter::Memory(&self.hash),
                Parameter::Number(self.layers.address(level.layers.0 * LAYER)),
                Parameter::Number(level.layers.1 as u64),
                Parameter::Number(level.number.into()),
                Parameter::Number(level.nodes.into()),
                Parameter::Memory(data),
                Parameter::Memory(&self.values),
            ];
            if way.has_three() {
                parameters.push(Parameter::Memory(&self.work));
            }
            for step in way.steps(level.nodes, processors, words) {
                let kernel = self.lab.kernel(&self.module, &step.name, step.shared).map_err(failed)?;
                let occupancy = self.lab.occupancy(&kernel, step.threads).map_err(failed)?;
                let blocks = grid(self.lab, f64::from(level.nodes) / step.nodes, step.threads, occupancy);
                ready.push((kernel, blocks, step.threads, parameters.clone()));
            }
        }
        let launches: Vec<Launch> = ready
            .iter()
            .map(|(kernel, blocks, threads, parameters)| Launch {
                kernel,
                blocks: *blocks,
                threads: *threads,
                parameters,
            })
            .collect();
        with(&launches, forest)
    }

    /// Fails if the values of the roots differ from the CPU's.
    fn check(&self, way: &Way, case: &Case) -> Outcome {
        self.with(way, case, |launches, _| {
            launches.iter().try_for_each(|launch| self.lab.launch(launch)).map_err(failed)?;
            let files: Vec<&[u8]> = self.content[..case.bytes].chunks(case.file).take(1000).collect();
            let mut values = vec![0; files.len() * VALUE];
            self.lab.download(&self.values, &mut values).map_err(failed)?;
            let found: Vec<Digest> =
                values.as_chunks().0.iter().map(|value| case.md6.of_root(value)).collect();
            let key = (case.md6.bits(), case.md6.rounds(), case.bytes, case.file, case.node);
            let mut known = self.known.borrow_mut();
            let expected = known.entry(key).or_insert_with(|| match case.node {
                NODE => Function::Md6(case.md6.clone()).digests(&files),
                node => files.iter().map(|file| sized::digest(case.md6, file, node)).collect(),
            });
            let bytes =
                |digests: &[Digest]| digests.iter().flat_map(|d| d.bytes().to_vec()).collect::<Vec<u8>>();
            compare(way.name, &bytes(&found), &bytes(expected))
        })
    }

    /// Rate of each of the three kernels over all levels of a file, in files per second.
    pub fn shares(&self, case: &Case) -> Outcome<[Option<Spread>; 3]> {
        let way = &WAYS[0];
        self.bench.next(&format!("shares of {}, {} KiB", way.name, case.bytes >> 10))?;
        self.check(way, case)?;
        self.with(way, case, |launches, _| {
            let mut shares = [None; 3];
            for (number, share) in shares.iter_mut().enumerate() {
                let own: Vec<Launch> = launches.iter().skip(number).step_by(3).copied().collect();
                *share = self.bench.kernel(self.lab, &own, 1.0)?;
            }
            Ok(shares)
        })
    }

    /// GB/s of a file in partitions, as the paper hashes files that do not fit into its card's memory. Each
    /// partition is uploaded and hashed as subtrees, their values are downloaded, and the CPU combines
    /// them. The digest is compared with the CPU's first.
    pub fn partitions(
        &self,
        way: &Way,
        md6: &Md6,
        (bytes, partition): (usize, usize),
        memory: (&[u8], &mut [u8]),
    ) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, partitions of {} KiB", way.name, partition >> 10))?;
        let (from, tops) = memory;
        let function = Function::Md6(md6.clone());
        let mut once = || -> Outcome<(f64, Digest)> {
            let (start, mut join) = (Instant::now(), function.join().expect("a tree")); // invariant: MD6 is one
            for at in (0..bytes).step_by(partition) {
                let len = partition.min(bytes - at);
                let tree = |data: usize| Tree {
                    data: data as u64,
                    bits: 8 * PART.min(len - data) as u64,
                    part: Some(((at + data) / PART) as u64),
                };
                let trees: Vec<Tree> = (0..len).step_by(PART).map(tree).collect();
                self.lab.upload(&from[at..at + len], &self.data).map_err(failed)?;
                let case = Case::file(md6, len);
                self.launched(way, &case, &Forest::of_md6(&trees), |launches, _| {
                    launches.iter().try_for_each(|launch| self.lab.launch(launch)).map_err(failed)
                })?;
                let tops = &mut tops[..trees.len() * VALUE];
                self.lab.download(&self.values, tops).map_err(failed)?;
                tops.chunks(VALUE).for_each(|top| join.push(top));
            }
            let digest = join.finish();
            Ok((bytes as f64 / 1e9 / start.elapsed().as_secs_f64(), digest))
        };
        let (_, digest) = once()?;
        let key = (md6.bits(), md6.rounds(), bytes, bytes, NODE);
        let mut known = self.known.borrow_mut();
        let expected = known.entry(key).or_insert_with(|| function.digests(&[&from[..bytes]]));
        compare("partitions", digest.bytes(), expected[0].bytes())?;
        let rates = (0..5).map(|_| Ok(once()?.0)).collect::<Outcome<Vec<f64>>>()?;
        // Restore the data for other measurements.
        self.lab.upload(&self.content[..partition], &self.data).map_err(failed)?;
        Ok(Spread::of(&rates))
    }

    /// GB/s of an archive larger than the device memory in use, in pieces of `case.bytes`, with transfers.
    pub fn archive(&self, case: &Case, pieces: usize, memory: (&[u8], &mut [u8])) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{pieces} pieces of {} KiB in files of {}", case.bytes >> 10, case.file))?;
        let (from, roots) = memory;
        self.with(TRAVELS, case, |launches, forest| {
            let mut once = || {
                let start = Instant::now();
                for _ in 0..pieces {
                    self.lab.upload(from, &self.data)?;
                    self.lab.upload(&forest.layers, &self.layers)?;
                    launches.iter().try_for_each(|launch| self.lab.launch(launch))?;
                    self.lab.download(&self.values, &mut roots[..case.bytes.div_ceil(case.file) * VALUE])?;
                }
                Ok((case.bytes * pieces) as f64 / 1e9 / start.elapsed().as_secs_f64())
            };
            let runs = if pieces > MOST_PIECES { 1 } else { 3 };
            let rates: Vec<f64> =
                (0..runs).map(|_| once()).collect::<Result<_, DriverError>>().map_err(failed)?;
            Ok(Spread::of(&rates))
        })
    }

    /// GB/s from device memory to the roots, after comparing them with the CPU's.
    pub fn rate(&self, way: &Way, case: &Case) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {} KiB, {:?}", way.name, case.bytes >> 10, case.md6))?;
        let short = case.bytes.min(SIZED_MOST);
        match case.node {
            NODE => self.check(way, case)?,
            _ => self.check(way, &Case { bytes: short, file: case.file.min(short), ..*case })?,
        }
        self.with(way, case, |launches, _| self.bench.kernel(self.lab, launches, case.bytes as f64 / 1e9))
    }

    /// Millions of leaves per second in one launch.
    pub fn leaves(&self, way: &Way, md6: &Md6, nodes: usize) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {nodes} nodes", way.name))?;
        let case = Case::file(md6, nodes * NODE);
        if case.bytes > self.content.len() {
            return Ok(None);
        }
        self.check(way, &case)?;
        // Only the first level.
        let first = if way.has_three() { 3 } else { 1 };
        self.with(way, &case, |launches, _| {
            self.bench.kernel(self.lab, &launches[..first], nodes as f64 / 1e6)
        })
    }

    /// GB/s from host memory to roots in host memory: upload, kernels and download one after the other.
    pub fn journey(&self, way: &Way, case: &Case, memory: (&[u8], &mut [u8])) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{} with transfers, {} KiB, {:?}", way.name, case.bytes >> 10, case.md6))?;
        let (from, roots) = memory;
        self.with(way, case, |launches, forest| {
            let uploads = [(from, &self.data), (&forest.layers[..], &self.layers)];
            let files = case.bytes.div_ceil(case.file);
            let download = (&self.values, &mut roots[..files * VALUE]);
            self.bench.journey(self.lab, launches, &uploads, download, case.bytes as f64 / 1e9)
        })
    }
}
