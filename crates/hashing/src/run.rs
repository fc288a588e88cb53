//! A run over all files: threads take tasks until none is left, and results are delivered in the order of
//! the walk.

use super::{
    queue::{QueueTask, WorkQueue},
    source::Source,
    walk::walk,
    worker::{HashRecord, Options, Results, Worker},
};
use crossbeam_channel::{Receiver, unbounded};
use crypto::hash::Function;
use std::{collections::VecDeque, path::PathBuf, sync::atomic::Ordering, thread};

/// Hashes every file below `roots` with each of the functions and passes its record to `each`, in the
/// order of the walk. Once `options.stop` is set, records may be missing.
pub fn run<S: Source>(
    source: &S,
    roots: &[PathBuf],
    functions: &[Function],
    options: &Options,
    mut each: impl FnMut(HashRecord),
) {
    let queue = WorkQueue::new(options.threads, source.waiting_max());
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

fn in_order(incoming: &Receiver<Results>, options: &Options, each: &mut dyn FnMut(HashRecord)) {
    // Records that arrived before their turn, starting with number `next`.
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

impl<S: Source> Worker<'_, S> {
    /// The next task. Before the thread waits for one, it completes its work in flight.
    fn next(&mut self) -> Option<QueueTask<S::Place, S::Content>> {
        if let Some(gpu) = self.options.gpu {
            gpu.open_if_worth();
        }
        self.queue.try_take().or_else(|| {
            self.complete_all();
            self.queue.take()
        })
    }

    fn work(mut self) {
        let _watched = self.queue.worked_by_this_thread();
        while let Some(task) = self.next() {
            match task {
                QueueTask::Batch(jobs) => self.batch(jobs),
                QueueTask::Part(tree, index) => self.part(tree, index),
                QueueTask::Serial(lanes) => self.serial(lanes),
            }
            self.queue.done();
            if self.stopped() {
                self.queue.abandon();
            }
        }
        self.return_slots();
    }
}
