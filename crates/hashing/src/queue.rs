//! The tasks of all threads: batches of files, parts of long files, and long files that are hashed several
//! at once. Long files come first because they take longest.

use super::{
    serial::{LANES, Lane},
    source::Content,
    tree::HashTree,
    walk::FoundFile,
};
use parking_lot::{Condvar, Mutex};
use std::{collections::VecDeque, sync::Arc, thread};

/// Files in a batch.
const BATCH: usize = 64;
/// Maximum number of files in the queue before the walk has to wait.
const WAITING_MAX: usize = 16 << 10;

/// A file to hash: its number in the order of the output, and where it is.
pub(super) type HashJob<P> = (u64, FoundFile<P>);

/// A task for a thread.
pub(super) enum QueueTask<P, C: Content> {
    /// Files of any length.
    Batch(Vec<HashJob<P>>),
    /// A part of a long file.
    Part(Arc<HashTree<C>>, u64),
    /// Long files of one function, to hash side by side.
    Serial(Vec<Lane<C>>),
}

pub(super) struct WorkQueue<P, C: Content> {
    state: Mutex<QueueState<P, C>>,
    /// A task is available, or everything is done.
    ready: Condvar,
    /// There is room for more files.
    room: Condvar,
    threads: usize,
    /// Maximum number of files in the queue.
    waiting: usize,
}

struct QueueState<P, C: Content> {
    filling: Vec<HashJob<P>>,
    batches: VecDeque<Vec<HashJob<P>>>,
    /// Long files of tree functions, each with the index of its next part.
    trees: VecDeque<(Arc<HashTree<C>>, u64)>,
    /// Long files of other functions. Those already begun come first.
    serials: VecDeque<Lane<C>>,
    /// Number of those that are being hashed.
    serials_taken: usize,
    /// More files may be found.
    walking: bool,
    /// No more tasks are given out.
    abandoned: bool,
    /// Tasks in progress. They may add long files.
    busy: usize,
}

impl<P, C: Content> QueueState<P, C> {
    /// Takes the next part of the long files.
    fn next_part(&mut self) -> Option<(Arc<HashTree<C>>, u64)> {
        let (tree, next) = self.trees.front_mut()?;
        let (tree, part) = (tree.clone(), *next);
        *next += 1;
        if *next == tree.parts() {
            self.trees.pop_front();
        }
        Some((tree, part))
    }
}

impl<P, C: Content> WorkQueue<P, C> {
    pub(super) fn new(threads: usize, waiting: usize) -> Self {
        let state = QueueState {
            filling: Vec::new(),
            batches: VecDeque::new(),
            trees: VecDeque::new(),
            serials: VecDeque::new(),
            serials_taken: 0,
            walking: true,
            abandoned: false,
            busy: 0,
        };
        WorkQueue {
            state: Mutex::new(state),
            ready: Condvar::new(),
            room: Condvar::new(),
            threads,
            waiting: waiting.min(WAITING_MAX),
        }
    }

    /// Adds a file. Blocks while the queue is full.
    pub(super) fn add(&self, job: HashJob<P>) {
        let mut state = self.state.lock();
        state.filling.push(job);
        if state.filling.len() == BATCH {
            let batch = std::mem::take(&mut state.filling);
            state.batches.push_back(batch);
            self.ready.notify_one();
            self.room.wait_while(&mut state, |state| {
                state.batches.len() * BATCH > self.waiting && !state.abandoned
            });
        }
    }

    /// Records that all files have been found.
    pub(super) fn found_all(&self) {
        let mut state = self.state.lock();
        let batch = std::mem::take(&mut state.filling);
        if !batch.is_empty() {
            state.batches.push_back(batch);
        }
        state.walking = false;
        self.ready.notify_all();
    }

    /// Adds a long file whose parts all threads share.
    pub(super) fn add_tree(&self, tree: HashTree<C>) {
        self.state.lock().trees.push_back((Arc::new(tree), 0));
        self.ready.notify_all();
    }

    /// Adds a long file that is hashed from beginning to end.
    pub(super) fn add_serial(&self, lane: Lane<C>) {
        self.state.lock().serials.push_back(lane);
        self.ready.notify_one();
    }

    /// Returns `taken` long files: those in `left` are unfinished.
    pub(super) fn put_back(&self, left: Vec<Lane<C>>, taken: usize) {
        let mut state = self.state.lock();
        state.serials_taken -= taken;
        left.into_iter().rev().for_each(|lane| state.serials.push_front(lane));
        if !state.serials.is_empty() {
            self.ready.notify_one();
        }
    }

    /// Number of long files that a thread hashes side by side. A vector costs the same however few of its
    /// lanes are used, but the files are divided among all threads so that none is idle.
    fn share(&self, state: &QueueState<P, C>) -> usize {
        (state.serials.len() + state.serials_taken).div_ceil(self.threads).clamp(1, LANES)
    }

    /// Takes up to `most` further parts of long files of this function.
    pub(super) fn more_parts(&self, function: usize, most: usize) -> Vec<(Arc<HashTree<C>>, u64)> {
        let mut state = self.state.lock();
        let mut parts = Vec::with_capacity(most);
        while parts.len() < most
            && state.trees.front().is_some_and(|(tree, _)| tree.function() == function)
            && let Some(part) = state.next_part()
        {
            parts.push(part);
        }
        parts
    }

    /// Takes a task if one is available now. The caller must call `done` after it.
    pub(super) fn try_take(&self) -> Option<QueueTask<P, C>> {
        let mut state = self.state.lock();
        let task = if state.abandoned { None } else { self.next(&mut state) };
        state.busy += usize::from(task.is_some());
        task
    }

    /// Waits for a task; `None` once everything is done. The caller must call `done` after it.
    pub(super) fn take(&self) -> Option<QueueTask<P, C>> {
        let mut state = self.state.lock();
        loop {
            if state.abandoned {
                return None;
            }
            if let Some(task) = self.next(&mut state) {
                state.busy += 1;
                return Some(task);
            }
            if !state.walking && state.busy == 0 {
                self.ready.notify_all();
                return None;
            }
            self.ready.wait(&mut state);
        }
    }

    fn next(&self, state: &mut QueueState<P, C>) -> Option<QueueTask<P, C>> {
        let task = self.pick(state)?;
        // A thread woken earlier for one of the remaining tasks may have found it not ready yet.
        if !(state.trees.is_empty() && state.serials.is_empty() && state.batches.is_empty()) {
            self.ready.notify_one();
        }
        Some(task)
    }

    fn pick(&self, state: &mut QueueState<P, C>) -> Option<QueueTask<P, C>> {
        if let Some((tree, part)) = state.next_part() {
            return Some(QueueTask::Part(tree, part));
        }
        let more_may_come = state.walking || !state.batches.is_empty();
        if let Some(first) = state.serials.front()
            && (first.is_begun() || state.serials.len() >= LANES || !more_may_come)
        {
            let (share, function) = (self.share(state), first.pass.function);
            let (mut lanes, mut at) = (Vec::new(), 0);
            while lanes.len() < share && at < state.serials.len() {
                if state.serials[at].pass.function == function {
                    lanes.extend(state.serials.remove(at));
                } else {
                    at += 1;
                }
            }
            state.serials_taken += lanes.len();
            return Some(QueueTask::Serial(lanes));
        }
        let batch = state.batches.pop_front()?;
        self.room.notify_one();
        Some(QueueTask::Batch(batch))
    }

    /// Gives out no more tasks.
    pub(super) fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// A guard for a working thread: abandons the queue if the thread panics, because its task would never be
    /// done.
    pub(super) fn worked_by_this_thread(&self) -> impl Drop + '_ {
        struct Panics<'a, P, C: Content>(&'a WorkQueue<P, C>);
        impl<P, C: Content> Drop for Panics<'_, P, C> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.abandon();
                }
            }
        }
        Panics(self)
    }

    /// Marks a task as done.
    pub(super) fn done(&self) {
        let mut state = self.state.lock();
        state.busy -= 1;
        if state.busy == 0 {
            self.ready.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::large::{Large, Pass},
        *,
    };
    use crypto::hash::Function;
    use std::{fs::File, os::fd::OwnedFd, path::PathBuf};

    fn lane(number: u64, function: usize) -> Lane<OwnedFd> {
        let content = OwnedFd::from(File::open("/dev/null").expect("a file"));
        let large = Arc::new(Large::new(number, PathBuf::new(), content, 1 << 30, 1));
        let serial = Function::Sha3(256).serial().expect("no tree");
        Lane::new(Pass { large, function }, serial)
    }

    fn taken(queue: &WorkQueue<(), OwnedFd>) -> Vec<Lane<OwnedFd>> {
        let Some(QueueTask::Serial(lanes)) = queue.try_take() else { panic!("long files") };
        lanes
    }

    fn numbers(lanes: &[Lane<OwnedFd>]) -> Vec<u64> {
        lanes.iter().map(|lane| lane.pass.large.number).collect()
    }

    #[test]
    fn long_files_are_shared_by_all_threads() {
        let queue: WorkQueue<(), OwnedFd> = WorkQueue::new(4, WAITING_MAX);
        (0..20).for_each(|number| queue.add_serial(lane(number, 0)));
        queue.found_all();
        let [first, second, third, fourth] = [0; 4].map(|_| taken(&queue));
        for (lanes, from) in [(&first, 0), (&second, 5), (&third, 10), (&fourth, 15)] {
            assert_eq!(numbers(lanes), (from..from + 5).collect::<Vec<_>>());
        }
        assert!(queue.try_take().is_none(), "none is left");
        // Two threads have finished their files. The third's are divided between two threads without any.
        queue.put_back(Vec::new(), first.len());
        queue.put_back(Vec::new(), second.len());
        queue.put_back(third, 5);
        assert_eq!([0, 0].map(|_| numbers(&taken(&queue))), [[10, 11, 12].to_vec(), [13, 14].to_vec()]);
        queue.put_back(Vec::new(), 5);
        queue.put_back(fourth, 5);
        (20..200).for_each(|number| queue.add_serial(lane(number, 0)));
        assert_eq!(
            numbers(&taken(&queue)),
            [15, 16, 17, 18, 19, 20, 21, 22],
            "as many as a vector has lanes"
        );
    }

    #[test]
    fn long_files_are_taken_function_by_function() {
        let queue: WorkQueue<(), OwnedFd> = WorkQueue::new(4, WAITING_MAX);
        (0..20).for_each(|number| queue.add_serial(lane(number, number as usize % 2)));
        let expected = [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9], [10, 12, 14, 16, 18]];
        assert_eq!([0; 3].map(|_| numbers(&taken(&queue))), expected);
    }
}
