//! A thread that reads and hashes: its buffer and slots, and where its results go. The tasks themselves are in
//! `short`, `long` and `offload`.

use super::{
    gpu::Gpu,
    in_flight::GpuSlots,
    large::{Large, Pass},
    queue::Queue,
    serial::Lane,
    source::Source,
    tree::{PartResult, Tree},
};
use crate::crypto::hash::{Digest, Function};
use crossbeam_channel::Sender;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes of a thread's buffer: it stays in the processor's cache.
const BUFFER: usize = 1 << 20;
/// The longest file that a batch takes, if any function is no tree.
const SMALL: usize = 128 << 10;

/// How files are hashed.
pub struct Options<'a> {
    /// Threads that read and hash: at least one.
    pub threads: usize,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
    /// Counts what is done.
    pub progress: &'a Progress,
    /// A GPU for the functions that it supports.
    pub gpu: Option<&'a Gpu>,
}

/// What is done so far. Other threads may read it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read and hashed.
    pub bytes: AtomicU64,
    /// Files done.
    pub files: AtomicU64,
}

/// A file's digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// Bytes.
    pub size: u64,
    /// One for each function.
    pub digests: Vec<Digest>,
}

/// The result of a file, or of a folder that could not be read.
#[derive(Debug)]
pub struct Record {
    /// Its path.
    pub path: PathBuf,
    /// Its digests, or why there are none.
    pub result: io::Result<Hashed>,
}

/// Results with their numbers.
pub(super) type Results = Vec<(u64, Record)>;

/// A thread that reads and hashes.
pub(super) struct Worker<'a, S: Source> {
    pub(super) source: &'a S,
    pub(super) queue: &'a Queue<S::Place, S::Content>,
    functions: &'a [Function],
    pub(super) options: &'a Options<'a>,
    pub(super) results: Sender<Results>,
    pub(super) buffer: Vec<u8>,
    /// Its slots of the GPU.
    pub(super) gpu_slots: Option<GpuSlots<'a, S::Content>>,
    /// The longest file that a batch takes.
    pub(super) small: usize,
}

impl<'a, S: Source> Worker<'a, S> {
    pub(super) fn new(
        source: &'a S,
        queue: &'a Queue<S::Place, S::Content>,
        functions: &'a [Function],
        options: &'a Options<'a>,
        results: Sender<Results>,
    ) -> Self {
        let part = |function: &Function| function.part_len().unwrap_or(SMALL);
        let small = functions.iter().map(part).min().unwrap_or(SMALL).min(BUFFER / 2);
        let gpu_slots = options.gpu.map(GpuSlots::new);
        Worker { source, queue, functions, options, results, buffer: vec![0; BUFFER], gpu_slots, small }
    }

    pub(super) fn functions(&self) -> &'a [Function] {
        self.functions
    }

    pub(super) fn stop(&self) -> &'a AtomicBool {
        self.options.stop
    }

    pub(super) fn stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// Makes the buffer at least this long.
    pub(super) fn reserve(&mut self, len: usize) {
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
    }

    /// Counts the bytes of a long file once, although every function reads them.
    pub(super) fn progress_in(&self, function: usize, bytes: u64) {
        if function == 0 {
            self.options.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn emit_large(&self, number: u64, path: PathBuf, result: io::Result<(u64, Vec<Digest>)>) {
        let result = result.map(|(size, digests)| Hashed { size, digests });
        // The receiver is gone only if the whole run is being unwound.
        let _ = self.results.send(vec![(number, Record { path, result })]);
    }

    /// Tells the GPU how many more bytes it could hash. Short files are counted when they are done: more are likely to
    /// follow.
    pub(super) fn announce(&self, bytes: u64) {
        if let Some(gpu) = self.options.gpu {
            gpu.announce(bytes);
        }
    }

    pub(super) fn add_large(&self, number: u64, path: PathBuf, content: S::Content, size: u64) {
        let large = Arc::new(Large::new(number, path, content, size, self.functions().len()));
        for (at, function) in self.functions().iter().enumerate() {
            if Gpu::takes(function) {
                self.announce(size);
            }
            let pass = Pass { large: large.clone(), function: at };
            // A function is either a tree or serial.
            if let Some(part_len) = function.part_len() {
                self.queue.add_tree(Tree::new(pass, function, part_len));
            } else if let Some(serial) = function.serial() {
                self.queue.add_serial(Lane::new(pass, serial));
            }
        }
    }

    /// Sends the results of short files that a GPU hashed: number, path, bytes, digest.
    pub(super) fn emit_files(&self, files: Vec<(u64, PathBuf, u64, Digest)>) {
        let record = |(number, path, size, digest)| {
            (number, Record { path, result: Ok(Hashed { size, digests: vec![digest] }) })
        };
        let _ = self.results.send(files.into_iter().map(record).collect());
    }

    /// Takes the result of one function of a long file.
    pub(super) fn finish_pass(&self, pass: &Pass<S::Content>, result: io::Result<Digest>) {
        let large = &pass.large;
        if let Some(result) = large.finish(pass.function, result) {
            self.emit_large(large.number, large.path.clone(), result.map(|digests| (large.size, digests)));
        }
    }

    /// Takes the result of a part of a long file.
    pub(super) fn take_part(&self, tree: &Tree<S::Content>, index: u64, result: PartResult) {
        if let Some(result) = tree.take(index, result) {
            self.finish_pass(&tree.pass, result);
        }
    }
}
