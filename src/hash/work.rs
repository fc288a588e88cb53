//! The threads that read and hash, and the order in which their results come out: that of the walk.

use super::{
    flights::{Cargo, Hangar, only},
    gpu::{Gpu, Slot},
    large::{Large, Pass, Tree},
    queue::{Job, Queue, Task},
    source::{Content, Source},
    walk::{Found, walk},
};
use crate::crypto::hash::{Digest, Function, md6::Md6};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
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

/// Bytes of a file that are read before its size is asked for: few files are longer, and long ones are not to be
/// read twice.
const PROBE: usize = 16 << 10;

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
type Results = Vec<(u64, Record)>;

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

/// A file that was read as a short one.
enum Short<C> {
    /// All of it: so many bytes.
    All(usize),
    /// It is longer: its size.
    Longer(u64, C),
}

/// A thread that reads and hashes.
pub(super) struct Worker<'a, S: Source> {
    source: &'a S,
    pub(super) queue: &'a Queue<S::Place, S::Content>,
    functions: &'a [Function],
    options: &'a Options<'a>,
    results: Sender<Results>,
    pub(super) buffer: Vec<u8>,
    /// Its part of the GPU.
    pub(super) hangar: Option<Hangar<'a, S::Content>>,
    /// The longest file that a batch takes.
    small: usize,
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
        self.queue.try_take().or_else(|| {
            self.land_all();
            self.queue.take()
        })
    }

    fn work(mut self) {
        while let Some(task) = self.next() {
            match task {
                Task::Batch(jobs) => self.batch(jobs),
                Task::Part(tree, index) => self.part(tree, index),
                Task::Serial(passes) => self.serial(passes),
            }
            self.queue.done();
            if self.stopped() {
                self.queue.abandon();
            }
        }
        self.land_all();
    }

    pub(super) fn functions(&self) -> &'a [Function] {
        self.functions
    }

    pub(super) fn stop(&self) -> &'a AtomicBool {
        self.options.stop
    }

    fn stopped(&self) -> bool {
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

    /// Short files, as they came off a slot: number, path, bytes, digest.
    pub(super) fn emit_files(&self, files: Vec<(u64, PathBuf, u64, Digest)>) {
        let record = |(number, path, size, digest)| {
            (number, Record { path, result: Ok(Hashed { size, digests: vec![digest] }) })
        };
        let _ = self.results.send(files.into_iter().map(record).collect());
    }

    /// Reads files side by side and hashes many at once, here or on a GPU.
    fn batch(&mut self, jobs: Vec<Job<S::Place>>) {
        match only(self.functions) {
            Some(md6) => match self.slot() {
                Some(slot) => self.batch_flying(slot, md6, jobs),
                None => self.batch_here(jobs),
            },
            None => self.batch_here(jobs),
        }
    }

    /// As `batch`, on a GPU while it has slots.
    fn batch_flying(&mut self, mut slot: Slot, md6: &Md6, jobs: Vec<Job<S::Place>>) {
        let (mut cargo, mut failed) = (Cargo::new(md6), Vec::new());
        let mut jobs = jobs.into_iter();
        while let Some((number, Found { path, place })) = jobs.next() {
            if self.stopped() {
                break;
            }
            let at = cargo.end();
            match self.read_short(&path, place, &mut slot.input()[at..at + self.small + 1]) {
                Ok(Short::All(len)) => cargo.add_file(number, path, len),
                Ok(Short::Longer(size, content)) => self.add_large(number, path, content, size),
                Err(e) => failed.push((number, Record { path, result: Err(e) })),
            }
            if !cargo.has_room(self.small + 1) {
                self.send(slot, std::mem::replace(&mut cargo, Cargo::new(md6)));
                let Some(next) = self.slot() else {
                    let _ = self.results.send(failed);
                    return self.batch_here(jobs.collect());
                };
                slot = next;
            }
        }
        let _ = self.results.send(failed);
        self.send(slot, cargo);
    }

    /// Reads a file if it is not longer than `self.small`, one byte less than `out`.
    fn read_short(
        &self,
        path: &Path,
        place: io::Result<S::Place>,
        out: &mut [u8],
    ) -> io::Result<Short<S::Content>> {
        let content = self.source.open(path, &place?)?;
        let probe = PROBE.min(out.len());
        let mut len = content.read_full(&mut out[..probe], 0)?;
        if len == probe {
            let size = content.size()?;
            if size > self.small as u64 {
                return Ok(Short::Longer(size, content));
            }
            len += content.read_full(&mut out[probe..], probe as u64)?;
        }
        if len <= self.small {
            return Ok(Short::All(len));
        }
        match content.size()? {
            size if size >= len as u64 => Ok(Short::Longer(size, content)),
            _ => Err(io::Error::other("its size is not known before it is read")),
        }
    }

    /// Reads files side by side and hashes as many at once as the buffer holds.
    fn batch_here(&mut self, jobs: Vec<Job<S::Place>>) {
        let mut results = Vec::with_capacity(jobs.len());
        let mut held: Vec<(u64, PathBuf, usize)> = Vec::with_capacity(jobs.len());
        let mut used = 0;
        for (number, Found { path, place }) in jobs {
            if self.stopped() {
                break;
            }
            if self.buffer.len() - used <= self.small {
                self.flush(&mut held, &mut used, &mut results);
            }
            let room = used..used + self.small + 1;
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.read_short(&path, place, &mut buffer[room]);
            self.buffer = buffer;
            match read {
                Ok(Short::All(len)) => {
                    held.push((number, path, len));
                    used += len;
                }
                Ok(Short::Longer(size, content)) => self.add_large(number, path, content, size),
                Err(e) => results.push((number, Record { path, result: Err(e) })),
            }
        }
        self.flush(&mut held, &mut used, &mut results);
        let _ = self.results.send(results);
    }

    fn flush(&self, held: &mut Vec<(u64, PathBuf, usize)>, used: &mut usize, results: &mut Results) {
        let mut rest = &self.buffer[..*used];
        let mut messages = Vec::with_capacity(held.len());
        for (_, _, len) in held.iter() {
            let (message, others) = rest.split_at(*len);
            messages.push(message);
            rest = others;
        }
        let digests: Vec<Vec<Digest>> = self.functions().iter().map(|f| f.digests(&messages)).collect();
        for (at, (number, path, len)) in held.drain(..).enumerate() {
            let digests = digests.iter().map(|of_function| of_function[at]).collect();
            results.push((number, Record { path, result: Ok(Hashed { size: len as u64, digests }) }));
        }
        self.options.progress.bytes.fetch_add(*used as u64, Ordering::Relaxed);
        if only(self.functions).is_some() {
            self.announce(*used as u64);
        }
        *used = 0;
    }

    /// Says that there is so much for a GPU; short files are counted when they are done, as a sign of more.
    fn announce(&self, bytes: u64) {
        if let Some(gpu) = self.options.gpu {
            gpu.announce(bytes);
        }
    }

    fn add_large(&self, number: u64, path: PathBuf, content: S::Content, size: u64) {
        let large = Arc::new(Large::new(number, path, content, size, self.functions().len()));
        for (at, function) in self.functions().iter().enumerate() {
            if Gpu::takes(function) {
                self.announce(size);
            }
            let pass = Pass { large: large.clone(), function: at };
            match function.part_len() {
                Some(part_len) => self.queue.add_tree(Tree::new(pass, function, part_len)),
                None => self.queue.add_serial(pass),
            }
        }
    }
}
