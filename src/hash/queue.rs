//! What is to be done, and by whom: files in batches, parts of long files, and long files that are hashed
//! several at once. Long files go first, for they take longest.

use super::{
    large::{Pass, Tree},
    source::Content,
    walk::Found,
};
use parking_lot::{Condvar, Mutex};
use std::{collections::VecDeque, sync::Arc};

/// Files of a batch.
const BATCH: usize = 64;
/// Files that wait before whoever finds them has to.
const WAITING_MAX: usize = 16 << 10;
/// Messages that the widest vector takes.
pub(super) const LANES: usize = 8;

/// A file to be hashed: its number in the order of the output, and where it is.
pub(super) type Job<P> = (u64, Found<P>);

/// Something for a thread to do.
pub(super) enum Task<P, C: Content> {
    /// Files of any length.
    Batch(Vec<Job<P>>),
    /// A part of a long file.
    Part(Arc<Tree<C>>, u64),
    /// Long files of one function, side by side.
    Serial(Vec<Pass<C>>),
}

pub(super) struct Queue<P, C: Content> {
    state: Mutex<State<P, C>>,
    /// Something can be taken, or all is done.
    ready: Condvar,
    /// There is room for more files.
    room: Condvar,
    threads: usize,
}

struct State<P, C: Content> {
    filling: Vec<Job<P>>,
    batches: VecDeque<Vec<Job<P>>>,
    /// Long files of tree functions, with the number of the part that is next.
    trees: VecDeque<(Arc<Tree<C>>, u64)>,
    serials: VecDeque<Pass<C>>,
    /// Of them, those that are being hashed.
    serials_taken: usize,
    /// More files may be found.
    walking: bool,
    /// Nothing is to be done any more.
    abandoned: bool,
    /// Tasks that are being done: they may find long files.
    busy: usize,
}

impl<P, C: Content> State<P, C> {
    /// The part that is next of the long files.
    fn next_part(&mut self) -> Option<(Arc<Tree<C>>, u64)> {
        let (tree, next) = self.trees.front_mut()?;
        let (tree, part) = (tree.clone(), *next);
        *next += 1;
        if *next == tree.parts() {
            self.trees.pop_front();
        }
        Some((tree, part))
    }
}

impl<P, C: Content> Queue<P, C> {
    pub(super) fn new(threads: usize) -> Self {
        let state = State {
            filling: Vec::new(),
            batches: VecDeque::new(),
            trees: VecDeque::new(),
            serials: VecDeque::new(),
            serials_taken: 0,
            walking: true,
            abandoned: false,
            busy: 0,
        };
        Queue { state: Mutex::new(state), ready: Condvar::new(), room: Condvar::new(), threads }
    }

    /// Takes in a file that was found; waits while too many do.
    pub(super) fn add(&self, job: Job<P>) {
        let mut state = self.state.lock();
        state.filling.push(job);
        if state.filling.len() == BATCH {
            let batch = std::mem::take(&mut state.filling);
            state.batches.push_back(batch);
            self.ready.notify_one();
            self.room.wait_while(&mut state, |state| {
                state.batches.len() * BATCH > WAITING_MAX && !state.abandoned
            });
        }
    }

    /// Says that all files were found.
    pub(super) fn found_all(&self) {
        let mut state = self.state.lock();
        let batch = std::mem::take(&mut state.filling);
        if !batch.is_empty() {
            state.batches.push_back(batch);
        }
        state.walking = false;
        self.ready.notify_all();
    }

    /// Takes in a long file whose parts all threads share.
    pub(super) fn add_tree(&self, tree: Tree<C>) {
        self.state.lock().trees.push_back((Arc::new(tree), 0));
        self.ready.notify_all();
    }

    /// Takes in a long file that is hashed from its beginning to its end.
    pub(super) fn add_serial(&self, pass: Pass<C>) {
        self.state.lock().serials.push_back(pass);
        self.ready.notify_one();
    }

    /// A long file more of this function, for a thread that hashes `own` of them, if it has less than its share.
    pub(super) fn one_more(&self, function: usize, own: usize) -> Option<Pass<C>> {
        let mut state = self.state.lock();
        if own >= self.share(&state) {
            return None;
        }
        let at = state.serials.iter().position(|pass| pass.function == function)?;
        let pass = state.serials.remove(at)?;
        state.serials_taken += 1;
        Some(pass)
    }

    /// Says that a long file that was taken is through.
    pub(super) fn serial_done(&self) {
        self.state.lock().serials_taken -= 1;
    }

    /// Long files that a thread hashes side by side: a lane costs the same, used or not, so those that there are go
    /// to all threads.
    fn share(&self, state: &State<P, C>) -> usize {
        (state.serials.len() + state.serials_taken).div_ceil(self.threads).clamp(1, LANES)
    }

    /// The parts that are next, at most so many, of long files of this function.
    pub(super) fn more_parts(&self, function: usize, most: usize) -> Vec<(Arc<Tree<C>>, u64)> {
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

    /// What can be done at once. `done` is to be called after each.
    pub(super) fn try_take(&self) -> Option<Task<P, C>> {
        let mut state = self.state.lock();
        let task = if state.abandoned { None } else { self.next(&mut state) };
        state.busy += usize::from(task.is_some());
        task
    }

    /// The next thing to do; nothing once all is done. `done` is to be called after each.
    pub(super) fn take(&self) -> Option<Task<P, C>> {
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

    fn next(&self, state: &mut State<P, C>) -> Option<Task<P, C>> {
        let task = self.pick(state)?;
        // Whoever was woken for what is left may have come too early for it.
        if !(state.trees.is_empty() && state.serials.is_empty() && state.batches.is_empty()) {
            self.ready.notify_one();
        }
        Some(task)
    }

    fn pick(&self, state: &mut State<P, C>) -> Option<Task<P, C>> {
        if let Some((tree, part)) = state.next_part() {
            return Some(Task::Part(tree, part));
        }
        let more_may_come = state.walking || !state.batches.is_empty();
        if state.serials.len() >= LANES || !more_may_come && !state.serials.is_empty() {
            let share = self.share(state);
            let function = state.serials[0].function;
            let mut passes = Vec::new();
            while passes.len() < share && state.serials.front().is_some_and(|p| p.function == function) {
                passes.extend(state.serials.pop_front());
            }
            state.serials_taken += passes.len();
            return Some(Task::Serial(passes));
        }
        let batch = state.batches.pop_front()?;
        self.room.notify_one();
        Some(Task::Batch(batch))
    }

    /// Lets nobody take anything any more.
    pub(super) fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Ends a task that was taken.
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
    use super::{super::large::Large, *};
    use std::{fs::File, os::fd::OwnedFd, path::PathBuf};

    fn pass(number: u64) -> Pass<OwnedFd> {
        let content = OwnedFd::from(File::open("/dev/null").expect("a file"));
        Pass { large: Arc::new(Large::new(number, PathBuf::new(), content, 1 << 30, 1)), function: 0 }
    }

    #[test]
    fn long_files_are_shared_by_all_threads() {
        let queue: Queue<(), OwnedFd> = Queue::new(4);
        (0..20).for_each(|number| queue.add_serial(pass(number)));
        queue.found_all();
        for _ in 0..4 {
            let Some(Task::Serial(passes)) = queue.take() else { panic!("long files") };
            assert_eq!(passes.len(), 5);
        }
        (20..23).for_each(|number| queue.add_serial(pass(number)));
        assert!(queue.one_more(1, 0).is_none(), "another function's");
        for _ in 0..3 {
            assert!(queue.one_more(0, 6).is_none(), "more than its share");
            assert!(queue.one_more(0, 5).is_some());
        }
        assert!(queue.one_more(0, 5).is_none() && queue.try_take().is_none(), "none is left");
        (0..8).for_each(|_| queue.serial_done());
        (23..200).for_each(|number| queue.add_serial(pass(number)));
        let Some(Task::Serial(passes)) = queue.try_take() else { panic!("long files") };
        assert_eq!(passes.len(), LANES, "more than a vector has lanes");
    }
}
