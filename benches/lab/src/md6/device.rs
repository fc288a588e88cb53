//! MD6 on the device: what is launched for a case, and how long it takes.

use super::{
    super::experiment::{Bench, compare, failed, grid},
    noise,
};
use crate::{
    device::{Lab, Launch, Parameter},
    md6::sized,
    report::Spread,
};
use std::sync::Arc;
use warpcrypt::{
    cli::lab::Outcome,
    crypto::hash::{
        Digest, Function,
        md6::{
            Md6, NODE, VALUE,
            forest::{Forest, LAYER, Tree, are_few},
        },
    },
    engine::{
        DriverError,
        driver::{DeviceMemory, HostMemory, Module},
    },
};

static FATBIN: &[u8] = include_bytes!("../../kernels/md6.fatbin");

/// The most files that are hashed together.
const FILES: usize = 512 << 10;
/// Nodes of another size than MD6's are compared with the CPU's up to this length: there is no fast code for them.
const SIZED_MOST: usize = 1 << 20;

/// How threads share nodes.
pub(super) struct Way {
    pub name: &'static str,
    /// Threads of a block where each has a node for itself; none if that is never so.
    alone: u32,
    /// Where 16 share a node; none if they never do.
    shared: u32,
}

/// The paper's first, what `hash` uses last.
pub(super) const WAYS: [Way; 4] = [
    Way { name: "16 threads, a node a block", alone: 0, shared: 16 },
    Way { name: "16 threads, 16 nodes a block", alone: 0, shared: 256 },
    Way { name: "a thread a node", alone: 64, shared: 0 },
    Way { name: "a thread a node, 16 where few", alone: 64, shared: 64 },
];

/// What is hashed.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub md6: &'a Md6,
    pub bytes: usize,
    /// Bytes of each file; the last one may be shorter.
    pub file: usize,
    /// Bytes of a node.
    pub node: usize,
}

impl<'a> Case<'a> {
    /// One file.
    pub fn file(md6: &'a Md6, bytes: usize) -> Self {
        Case { md6, bytes, file: bytes, node: NODE }
    }
}

/// The host's memory for journeys.
pub(super) struct Memory {
    pageable: Vec<u8>,
    pinned: HostMemory,
    roots: HostMemory,
}

impl Memory {
    /// So many bytes to go up, and room for what comes down.
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
}

impl<'a> Device<'a> {
    /// For files of `most` bytes.
    pub fn open(bench: &'a Bench, lab: &'a Lab, most: usize) -> Outcome<Self> {
        let open = || {
            let content = noise(1 << 20).repeat(most.div_ceil(1 << 20));
            let device = Device {
                bench,
                lab,
                module: lab.load(FATBIN)?,
                data: lab.memory(content.len())?,
                // A third of the data, and the last nodes of levels.
                values: lab.memory(most / 3 + (1 << 20))?,
                layers: lab.memory(FILES * LAYER)?,
                hash: lab.memory(128)?,
                content,
            };
            lab.upload(&device.content, &device.data)?;
            Ok(device)
        };
        open().map_err(failed)
    }

    /// Memory for journeys of so many bytes.
    pub fn memory(&self, bytes: usize) -> Outcome<Memory> {
        let make = || {
            let mut pinned = self.lab.pinned(bytes)?;
            pinned[..bytes].copy_from_slice(&self.content[..bytes]);
            let roots = self.lab.pinned(FILES * VALUE)?;
            Ok(Memory { pageable: self.content[..bytes].to_vec(), pinned, roots })
        };
        make().map_err(failed)
    }

    /// Calls `with` with what is launched, once all that it needs but the data is on the device.
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
        let forest = Forest::new(&trees, case.node);
        let words = case.node / 8;
        let shared = (words + 48) * way.shared as usize;
        let open = || {
            self.lab.upload(case.md6.shared().as_slice(), &self.hash)?;
            self.lab.upload(&forest.layers, &self.layers)?;
            let kernel = |name: &str, threads: u32, shared: usize| {
                let kernel = self.lab.kernel(&self.module, &format!("md6_{name}_{words}"), shared)?;
                let occupancy = self.lab.occupancy(&kernel, threads)?;
                Ok::<_, DriverError>((kernel, threads, occupancy))
            };
            let alone = (way.alone > 0).then(|| kernel("alone", way.alone, 0)).transpose()?;
            let shared = (way.shared > 0).then(|| kernel("shared", way.shared, shared)).transpose()?;
            Ok((alone, shared))
        };
        let (alone, shared) = open().map_err(failed)?;
        let processors = self.lab.description().processors;
        let mut parameters = Vec::with_capacity(forest.levels.len());
        for level in &forest.levels {
            let data = if level.number == 1 { &self.data } else { &self.values };
            parameters.push([
                Parameter::Memory(&self.hash),
                Parameter::Number(self.layers.address(level.layers.0 * LAYER)),
                Parameter::Number(level.layers.1 as u64),
                Parameter::Number(level.number.into()),
                Parameter::Number(level.nodes.into()),
                Parameter::Memory(data),
                Parameter::Memory(&self.values),
            ]);
        }
        let mut launches = Vec::with_capacity(forest.levels.len());
        for (level, parameters) in forest.levels.iter().zip(&parameters) {
            let few = are_few(level.nodes, processors);
            let nodes = f64::from(level.nodes);
            let chosen = match (&alone, &shared) {
                (Some(alone), Some(shared)) => {
                    if few {
                        (shared, 16.0)
                    } else {
                        (alone, 1.0)
                    }
                }
                (Some(alone), None) => (alone, 1.0),
                (_, shared) => (shared.as_ref().expect("one of the two"), 16.0), // invariant: ways name one
            };
            let ((kernel, threads, occupancy), sharing) = chosen;
            let blocks = grid(self.lab, nodes * sharing, *threads, *occupancy);
            launches.push(Launch { kernel, blocks, threads: *threads, parameters });
        }
        with(&launches, &forest)
    }

    /// Fails if the roots' values are not what the CPU gives.
    fn check(&self, way: &Way, case: &Case) -> Outcome {
        self.with(way, case, |launches, _| {
            launches.iter().try_for_each(|launch| self.lab.launch(launch)).map_err(failed)?;
            let files: Vec<&[u8]> = self.content[..case.bytes].chunks(case.file).take(1000).collect();
            let mut values = vec![0; files.len() * VALUE];
            self.lab.download(&self.values, &mut values).map_err(failed)?;
            let found: Vec<Digest> =
                values.as_chunks().0.iter().map(|value| case.md6.of_root(value)).collect();
            let expected = match case.node {
                NODE => Function::Md6(case.md6.clone()).digests(&files),
                node => files.iter().map(|file| sized::digest(case.md6, file, node)).collect(),
            };
            let bytes =
                |digests: &[Digest]| digests.iter().flat_map(|d| d.bytes().to_vec()).collect::<Vec<u8>>();
            compare(way.name, &bytes(&found), &bytes(&expected))
        })
    }

    /// GB/s from the device's memory to the roots, after they were compared with the CPU's.
    pub fn rate(&self, way: &Way, case: &Case) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {} KiB, {:?}", way.name, case.bytes >> 10, case.md6))?;
        let short = case.bytes.min(SIZED_MOST);
        match case.node {
            NODE => self.check(way, case)?,
            _ => self.check(way, &Case { bytes: short, file: case.file.min(short), ..*case })?,
        }
        self.with(way, case, |launches, _| self.bench.kernel(self.lab, launches, case.bytes as f64 / 1e9))
    }

    /// Millions of leaves a second in one launch.
    pub fn leaves(&self, way: &Way, md6: &Md6, nodes: usize) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("{}, {nodes} nodes", way.name))?;
        let case = Case::file(md6, nodes * NODE);
        if case.bytes > self.content.len() {
            return Ok(None);
        }
        self.check(way, &case)?;
        self.with(way, &case, |launches, _| self.bench.kernel(self.lab, &launches[..1], nodes as f64 / 1e6))
    }

    /// GB/s from the host's memory to roots in the host's memory, one after the other.
    pub fn journey(&self, case: &Case, memory: (&[u8], &mut [u8])) -> Outcome<Option<Spread>> {
        self.bench.next(&format!("with transfers, {} KiB, {:?}", case.bytes >> 10, case.md6))?;
        let (from, roots) = memory;
        self.with(&WAYS[3], case, |launches, forest| {
            let uploads = [(from, &self.data), (&forest.layers[..], &self.layers)];
            let files = case.bytes.div_ceil(case.file);
            let download = (&self.values, &mut roots[..files * VALUE]);
            self.bench.journey(self.lab, launches, &uploads, download, case.bytes as f64 / 1e9)
        })
    }
}
