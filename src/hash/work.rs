//! The threads that read and hash, and the order in which their results come out: that of the walk.

use super::{
    flights::Hangar,
    gpu::Gpu,
    large::{Large, Pass},
    queue::{Queue, Task},
    serial::Lane,
    source::Source,
    tree::Tree,
    walk::walk,
};
use crate::crypto::hash::{Digest, Function};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// Bytes of a thread's buffer: it stays in the processor's cache.
const BUFFER: usize = 1 << 20;
/// The longest file that a batch takes, if any function is no tree.
const SMALL: usize = 128 << 10;

/// How to work.
pub struct Options<'a> {
    /// Threads that read and hash: at least one.
    pub threads: usize,
    /// Set when it is to end early.
    pub stop: &'a AtomicBool,
    /// What is done so far.
    pub progress: &'a Progress,
    /// What hashes beside the threads, where it can.
    pub gpu: Option<&'a Gpu>,
}

/// What is done so far, for others to look at.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read and hashed.
    pub bytes: AtomicU64,
    /// Files through.
    pub files: AtomicU64,
}

/// A file's digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// Bytes.
    pub size: u64,
    /// One of each function.
    pub digests: Vec<Digest>,
}

/// What came of a file, or of a folder that could not be read.
#[derive(Debug)]
pub struct Record {
    /// Its path.
    pub path: PathBuf,
    /// Its digests, or why there are none.
    pub result: io::Result<Hashed>,
}

/// Hashes every file below `roots` with each of the functions and gives what came of it to `each`, in the order
/// of the walk. Once `options.stop` is set, what comes may be incomplete.
pub fn run<S: Source>(
    source: &S,
    roots: &[PathBuf],
    functions: &[Function],
    options: &Options,
    mut each: impl FnMut(Record),
) {
    let queue = Queue::new(options.threads);
    let (results, incoming) = unbounded();
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            let worker = Worker::new(source, &queue, functions, options, results.clone());
            scope.spawn(move || worker.work());
        }
        drop(results);
        scope.spawn(|| {
            let mut number = 0;
            walk(source, roots, options.stop, &mut |found| {
                queue.add((number, found));
                number += 1;
            });
            queue.found_all();
        });
        in_order(&incoming, options, &mut each);
    });
}

/// Results with their numbers.
pub(super) type Results = Vec<(u64, Record)>;

fn in_order(incoming: &Receiver<Results>, options: &Options, each: &mut dyn FnMut(Record)) {
    // What came before its turn, from number `next` on.
    let (mut early, mut next) = (VecDeque::new(), 0_u64);
    for results in incoming {
        for (number, record) in results {
            let at = (number - next) as usize;
            if early.len() <= at {
                early.resize_with(at + 1, || None);
            }
            early[at] = Some(record);
        }
        while let Some(record) = early.front_mut().and_then(Option::take) {
            early.pop_front();
            next += 1;
            options.progress.files.fetch_add(1, Ordering::Relaxed);
            each(record);
        }
    }
}

/// A thread that reads and hashes.
pub(super) struct Worker<'a, S: Source> {
    pub(super) source: &'a S,
    pub(super) queue: &'a Queue<S::Place, S::Content>,
    functions: &'a [Function],
    pub(super) options: &'a Options<'a>,
    pub(super) results: Sender<Results>,
    pub(super) buffer: Vec<u8>,
    /// Its part of the GPU.
    pub(super) hangar: Option<Hangar<'a, S::Content>>,
    /// The longest file that a batch takes.
    pub(super) small: usize,
}

impl<'a, S: Source> Worker<'a, S> {
    fn new(
        source: &'a S,
        queue: &'a Queue<S::Place, S::Content>,
        functions: &'a [Function],
        options: &'a Options<'a>,
        results: Sender<Results>,
    ) -> Self {
        let part = |function: &Function| function.part_len().unwrap_or(SMALL);
        let small = functions.iter().map(part).min().unwrap_or(SMALL).min(BUFFER / 2);
        let hangar = options.gpu.map(Hangar::new);
        Worker { source, queue, functions, options, results, buffer: vec![0; BUFFER], hangar, small }
    }

    /// Something to do; what is on its way lands before the thread waits for more.
    fn next(&mut self) -> Option<Task<S::Place, S::Content>> {
        if let Some(gpu) = self.options.gpu {
            gpu.open_if_worth();
        }
        self.queue.try_take().or_else(|| {
            self.land_all();
            self.queue.take()
        })
    }

    fn work(mut self) {
        let _watched = self.queue.worked_by_this_thread();
        while let Some(task) = self.next() {
            match task {
                Task::Batch(jobs) => self.batch(jobs),
                Task::Part(tree, index) => self.part(tree, index),
                Task::Serial(lanes) => self.serial(lanes),
            }
            self.queue.done();
            if self.stopped() {
                self.queue.abandon();
            }
        }
        self.leave();
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

    /// Makes the buffer at least so long.
    pub(super) fn reserve(&mut self, len: usize) {
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
    }

    /// Counts bytes of a long file, each once, though every function reads them.
    pub(super) fn progress_in(&self, function: usize, bytes: u64) {
        if function == 0 {
            self.options.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn emit_large(&self, number: u64, path: PathBuf, result: io::Result<(u64, Vec<Digest>)>) {
        let result = result.map(|(size, digests)| Hashed { size, digests });
        // Nobody listens any more only if the whole run is being unwound.
        let _ = self.results.send(vec![(number, Record { path, result })]);
    }

    /// Says that there is so much for a GPU; short files are counted when they are done, as a sign of more.
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
            // A function is one or the other.
            if let Some(part_len) = function.part_len() {
                self.queue.add_tree(Tree::new(pass, function, part_len));
            } else if let Some(serial) = function.serial() {
                self.queue.add_serial(Lane::new(pass, serial));
            }
        }
    }
}
