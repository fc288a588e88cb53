//! A thread that reads and hashes: its buffer and slots, and the destination of its results. The tasks
//! themselves are in `short`, `long` and `offload`.

use super::{
    gpu::HashGpu,
    in_flight::GpuSlots,
    large::{Large, Pass},
    queue::WorkQueue,
    serial::Lane,
    source::Source,
    tree::{HashTree, PartResult},
};
use crossbeam_channel::Sender;
use crypto::hash::{Digest, Function};
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes of a thread's buffer; small enough to stay in the processor's cache.
const BUFFER: usize = 1 << 20;
/// Maximum length of a file in a batch, if some function is not a tree.
const SMALL: usize = 128 << 10;

/// How files are hashed.
pub struct Options<'a> {
    /// Number of threads that read and hash; at least one.
    pub threads: usize,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
    /// Counts the completed work.
    pub progress: &'a Progress,
    /// A GPU for the functions that it supports.
    pub gpu: Option<&'a HashGpu>,
}

/// Progress of a run. Other threads may read it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read and hashed.
    pub bytes: AtomicU64,
    /// Completed files.
    pub files: AtomicU64,
}

/// A file's digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// Length in bytes.
    pub size: u64,
    /// One for each function.
    pub digests: Vec<Digest>,
}

/// The result for a file, or for a folder that could not be read.
#[derive(Debug)]
pub struct HashRecord {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Its digests, or why there are none.
    pub result: io::Result<Hashed>,
}

/// Results with their numbers in the order of the output.
pub(super) type Results = Vec<(u64, HashRecord)>;

/// A thread that reads and hashes.
pub(super) struct Worker<'a, S: Source> {
    pub(super) source: &'a S,
    pub(super) queue: &'a WorkQueue<S::Place, S::Content>,
    functions: &'a [Function],
    pub(super) options: &'a Options<'a>,
    pub(super) results: Sender<Results>,
    pub(super) buffer: Vec<u8>,
    /// The thread's slots of the GPU.
    pub(super) gpu_slots: Option<GpuSlots<'a, S::Content>>,
    /// Maximum length of a file in a batch.
    pub(super) small: usize,
}

impl<'a, S: Source> Worker<'a, S> {
    pub(super) fn new(
        source: &'a S,
        queue: &'a WorkQueue<S::Place, S::Content>,
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

    /// Grows the buffer to at least this length.
    pub(super) fn reserve(&mut self, len: usize) {
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
    }

    /// Counts the bytes of a long file only once, although every function reads them.
    pub(super) fn progress_in(&self, function: usize, bytes: u64) {
        if function == 0 {
            self.options.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn emit_large(&self, number: u64, path: PathBuf, result: io::Result<(u64, Vec<Digest>)>) {
        let result = result.map(|(size, digests)| Hashed { size, digests });
        // The receiver is gone only if the whole run is being unwound.
        let _ = self.results.send(vec![(number, HashRecord { path, result })]);
    }

    /// Tells the GPU that it could hash this many more bytes. Short files are announced after they are
    /// hashed: more are likely to follow.
    pub(super) fn announce(&self, bytes: u64) {
        if let Some(gpu) = self.options.gpu {
            gpu.announce(bytes);
        }
    }

    pub(super) fn add_large(&self, number: u64, path: PathBuf, content: S::Content, size: u64) {
        let large = Arc::new(Large::new(number, path, content, size, self.functions().len()));
        for (at, function) in self.functions().iter().enumerate() {
            if HashGpu::takes(function) {
                self.announce(size);
            }
            let pass = Pass { large: large.clone(), function: at };
            // Every function is either a tree or serial.
            if let Some(part_len) = function.part_len() {
                self.queue.add_tree(HashTree::new(pass, function, part_len));
            } else if let Some(serial) = function.serial() {
                self.queue.add_serial(Lane::new(pass, serial));
            }
        }
    }

    /// Sends the results of short files hashed by a GPU: number, path, bytes, digest.
    pub(super) fn emit_files(&self, files: Vec<(u64, PathBuf, u64, Digest)>) {
        let record = |(number, path, size, digest)| {
            (number, HashRecord { path, result: Ok(Hashed { size, digests: vec![digest] }) })
        };
        let _ = self.results.send(files.into_iter().map(record).collect());
    }

    /// Stores the result of one function of a long file, and sends the file's record if it is the last.
    pub(super) fn finish_pass(&self, pass: &Pass<S::Content>, result: io::Result<Digest>) {
        let large = &pass.large;
        if let Some(result) = large.finish(pass.function, result) {
            self.emit_large(large.number, large.path.clone(), result.map(|digests| (large.size, digests)));
        }
    }

    /// Stores the result of a part of a long file, and finishes the function if it is the last.
    pub(super) fn take_part(&self, tree: &HashTree<S::Content>, index: u64, result: PartResult) {
        if let Some(result) = tree.take(index, result) {
            self.finish_pass(&tree.pass, result);
        }
    }
}
