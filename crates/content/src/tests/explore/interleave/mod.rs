//! Threads that use one file concurrently, in orders chosen by a scheduler (shuttle): readers, writers,
//! threads that truncate and punch, the flusher, and the background threads. Another thread may continue
//! at every lock and every call of the store. A call may fail, and a kill or power cut may come between
//! any two calls.
//!
//! Everything that they read, and the state after a crash, must be explained by some sequential order of
//! all operations. `history` searches for it.

mod history;
mod program;
mod store;

use self::store::{Instant, Interrupted};
use super::{
    super::{
        super::{
            Background, Budget, Context, Durability, File, SmallRead,
            background::BackgroundJob,
            rules::{Rule, break_rule},
        },
        SINGLES_BY_HAND, context_over,
    },
    case::Op,
    look::{Looker, Torn, keys, rest},
    marks::{Value, identify},
    oracle::{Oracle, View},
};
use crate::Error;
use ::store::FaultyFile;
use crossbeam_channel::{Receiver, TryRecvError};
use engine::Router;
use format::layout;
use history::{Clock, Deed, History, PART, explain};
use program::{Act, Program};
use shuttle::{
    Config, Runner,
    rand::Rng,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Background threads.
const BEHIND: usize = 2;
/// Maximum reads that are done together.
const TOGETHER: usize = 100;
/// Bytes of a thread's stack.
const STACK: usize = 1 << 20;

type Verdict<T = ()> = Result<T, String>;

/// Statistics.
#[derive(Default)]
struct Counts {
    orders: AtomicU64,
    /// Operations of threads.
    events: AtomicU64,
    /// Calls that failed.
    faults: AtomicU64,
    /// Crashes that were recovered and compared.
    crashes: AtomicU64,
    /// Searches that were abandoned.
    open: AtomicU64,
}

/// A run of a program.
struct Run {
    file: Arc<File>,
    store: Arc<Interrupted>,
    clock: Arc<Clock>,
    history: History,
    marks: Vec<u64>,
    /// The number of the last write.
    last: AtomicU64,
}

fn context(durability: Durability) -> (Arc<Context>, Receiver<BackgroundJob>) {
    let (background, jobs) = Background::by_hand();
    let router = Router::of_one_thread(Budget::of(64 << 20).buffers);
    let context = context_over(background);
    let budget = Budget { singles: SINGLES_BY_HAND, ..context.budget };
    (Arc::new(Context { keys: keys(), durability, router, budget, ..context }), jobs)
}

/// Runs background jobs until no more will come.
fn work_behind(jobs: &Receiver<BackgroundJob>, over: &AtomicBool) {
    loop {
        match jobs.try_recv() {
            Ok(job) => job(),
            Err(TryRecvError::Empty) if !over.load(Ordering::Relaxed) => thread::yield_now(),
            Err(_) => return,
        }
    }
}

impl Run {
    fn values(&self, n: usize) -> Vec<Value> {
        let first = self.last.fetch_add(n as u64, Ordering::Relaxed) as Value + 1;
        (first..).take(n).collect()
    }

    fn data(&self, first: usize, values: &[Value]) -> Vec<u8> {
        let mut data = vec![0; (self.marks[first + values.len()] - self.marks[first]) as usize];
        for (at, value) in (first..).zip(values) {
            let place = (self.marks[at] - self.marks[first]) as usize
                ..(self.marks[at + 1] - self.marks[first]) as usize;
            super::marks::fill(*value, self.marks[at], &mut data[place]);
        }
        data
    }

    fn is_wide(&self, at: usize) -> bool {
        self.marks[at + 1] - self.marks[at] > layout::CHUNK
    }

    /// Performs an action. A failure of the store is not an error.
    fn act(&self, number: usize, act: Act) -> Verdict {
        match act {
            Act::Through(a, b) => {
                for at in (a..b).filter(|at| !self.is_wide(*at)) {
                    let (start, len) = (self.marks[at], (self.marks[at + 1] - self.marks[at]) as usize);
                    self.read(number, at, |few| self.file.read_to(start, len, few, <[u8]>::to_vec))?;
                }
                Ok(())
            }
            Act::Op(Op::Read(a, b)) => {
                for at in a..b {
                    let len = if self.is_wide(at) {
                        PART as usize
                    } else {
                        (self.marks[at + 1] - self.marks[at]) as usize
                    };
                    self.read(number, at, |buf| {
                        buf.resize(len, 0);
                        let n = self.file.read(self.marks[at], buf)?;
                        Ok(buf[..n].to_vec())
                    })?;
                }
                Ok(())
            }
            Act::Long(a, b) => self.read_long(number, a, b),
            Act::Scattered(first, step, n) => {
                let places = (first..self.marks.len() - 1).step_by(step).take(n);
                places.into_iter().try_for_each(|at| self.change(number, Op::Write(at, at + 1)))
            }
            Act::Several(a, b) => self.read_together(number, a, b),
            Act::Clean => self.clean(number),
            Act::RestReaders => {
                self.file.drop_idle_readers();
                self.file.end_readers();
                Ok(())
            }
            Act::Op(op) => self.change(number, op),
        }
    }

    fn read(
        &self,
        number: usize,
        at: usize,
        read: impl FnOnce(&mut Vec<u8>) -> Result<Vec<u8>, Error>,
    ) -> Verdict {
        let start = self.clock.tick();
        let result = read(&mut Vec::new());
        self.has_read(number, start, at, result)
    }

    fn has_read(&self, number: usize, start: u64, at: usize, result: Result<Vec<u8>, Error>) -> Verdict {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(e) => return self.may_fail(&e),
        };
        let value = match bytes.len() {
            0..8 => None,
            _ => {
                let value = identify(self.marks[at], &bytes);
                Some(value.ok_or_else(|| format!("bytes of several writes at {}", self.marks[at]))?)
            }
        };
        let deed = Deed::Read { at, len: bytes.len() as u64, value };
        self.history.has_read(number, start, self.clock.tick(), deed);
        Ok(())
    }

    fn read_together(&self, number: usize, a: usize, b: usize) -> Verdict {
        let places: Vec<usize> = (a..b).filter(|at| !self.is_wide(*at)).take(8).collect();
        let mut bytes: Vec<Vec<u8>> =
            places.iter().map(|at| vec![0; (self.marks[at + 1] - self.marks[*at]) as usize]).collect();
        let start = self.clock.tick();
        let reads = places.iter().zip(&mut bytes).map(|(at, out)| SmallRead { offset: self.marks[*at], out });
        let results = self.file.read_together(&mut Vec::from_iter(reads));
        for (one, ((at, mut bytes), result)) in places.into_iter().zip(bytes).zip(results).enumerate() {
            let result = result.map(|n| {
                bytes.truncate(n);
                bytes
            });
            // Each is an independent request and may come before or after the others.
            self.has_read(TOGETHER * number + one, start, at, result)?;
        }
        Ok(())
    }

    /// A long read is consistent chunk by chunk, but not as a whole.
    fn read_long(&self, number: usize, a: usize, b: usize) -> Verdict {
        let (from, len) = (self.marks[a], (self.marks[b] - self.marks[a]) as usize);
        let start = self.clock.tick();
        let bytes = match self.file.read_to(from, len, &mut Vec::new(), <[u8]>::to_vec) {
            Ok(bytes) => bytes,
            Err(e) => return self.may_fail(&e),
        };
        for at in a..b {
            let place = |mark: u64| ((mark - from) as usize).min(bytes.len());
            let part = bytes[place(self.marks[at])..place(self.marks[at + 1])].to_vec();
            self.has_read(TOGETHER * number + at - a, start, at, Ok(part))?;
        }
        Ok(())
    }

    fn change(&self, number: usize, op: Op) -> Verdict {
        let marks = &self.marks;
        if let Op::Write(a, b) | Op::Allocate(a, b, _) | Op::Punch(a, b) = op
            && (a..b).any(|at| self.is_wide(at))
        {
            return Ok(());
        }
        let deed = match op {
            Op::Write(a, b) => Deed::Write(a, self.values(b - a)),
            Op::Punch(a, b) => Deed::Punch(a, b - a),
            Op::Truncate(a) => Deed::Truncate(marks[a]),
            Op::Allocate(_, b, false) => Deed::Grow(marks[b]),
            Op::Flush => Deed::Flush,
            Op::Sync => Deed::Sync,
            _ => Deed::Nothing,
        };
        let event = self.history.begin(number, self.clock.tick(), deed.clone());
        let result = match (op, deed) {
            (Op::Write(a, _), Deed::Write(_, values)) => self.file.write(marks[a], &self.data(a, &values)),
            (Op::Punch(a, b), _) => self.file.punch(marks[a], marks[b] - marks[a]),
            (Op::Truncate(a), _) => self.file.truncate(marks[a]),
            (Op::Allocate(a, b, keep), _) => self.file.allocate(marks[a], marks[b] - marks[a], keep),
            (Op::Flush, _) => self.file.flush(),
            (Op::Close, _) => self.file.flush_at_close(),
            (Op::Sync, _) => self.file.sync(),
            (Op::Rest, _) => rest(&self.file),
            (Op::Seek(a, data), _) => match self.file.seek(marks[a], data) {
                Err(Error::NoData) => Ok(()),
                result => result.map(drop),
            },
            (op, _) => return Err(format!("{op} is not for threads")),
        };
        self.history.end(event, self.clock.tick(), result.is_err());
        result.or_else(|e| self.may_fail(&e))
    }

    fn clean(&self, number: usize) -> Verdict {
        let event = self.history.begin(number, self.clock.tick(), Deed::Nothing);
        let result = self.clean_in_steps();
        self.history.end(event, self.clock.tick(), result.is_err());
        result.or_else(|e| self.may_fail(&e))
    }

    /// Like `rest`, but other threads can make much progress between the steps.
    fn clean_in_steps(&self) -> Result<(), Error> {
        let others = || (0..shuttle::rand::thread_rng().gen_range(0..16)).for_each(|_| thread::yield_now());
        let step = self.file.cleaner().flush()?;
        others();
        self.file.cleaner().sync()?;
        if self.file.cleaner().settle(step)? {
            others();
            self.file.cleaner().sync()?;
            self.file.cleaner().finish(step)?;
        }
        Ok(())
    }

    fn may_fail(&self, e: &Error) -> Verdict {
        match e {
            Error::Store(_) if self.store.content.failed() > 0 => Ok(()),
            e => Err(format!("fails without a cause: {e}")),
        }
    }
}

/// One run of a program, in an order chosen by the scheduler.
fn run(program: &Program, counts: &Counts) -> Verdict {
    let (context, jobs) = context(program.durability);
    let (other, _) = self::context(program.durability);
    let clock = Arc::new(Clock::default());
    let content = FaultyFile::new();
    let store = Interrupted::new(content.clone(), clock.clone());
    let mut looker =
        Looker::new(&[context.clone(), other], program.place, shuttle::rand::thread_rng().r#gen());
    let file = File::open(store.clone(), context.clone()).map_err(|e| e.to_string())?;
    let marks = looker.marks.clone();
    let last = AtomicU64::new(0);
    let mut run = Run { file, store, clock, history: History::default(), marks, last };
    // Run by a single thread.
    for op in &program.before {
        match op {
            Op::Drop => {
                rest(&run.file).map_err(|e| e.to_string())?;
                run.file = File::open(run.store.clone(), context.clone()).map_err(|e| e.to_string())?;
            }
            op => run.change(0, *op)?,
        }
    }
    while let Ok(job) = jobs.try_recv() {
        job();
    }
    match program.fault {
        Some(fault) if program.of_sync => content.fail_sync(fault.from, fault.failure),
        Some(fault) => content.fail_at(fault.from, fault.times, fault.failure),
        None => {}
    }
    let (run, over) = (Arc::new(run), Arc::new(AtomicBool::new(false)));
    let behind: Vec<_> = (0..BEHIND)
        .map(|_| {
            let (jobs, over) = (jobs.clone(), over.clone());
            thread::spawn(move || work_behind(&jobs, &over))
        })
        .collect();
    let threads: Vec<_> = program
        .threads
        .iter()
        .enumerate()
        .map(|(number, acts)| {
            let (run, acts) = (run.clone(), acts.clone());
            thread::spawn(move || acts.into_iter().try_for_each(|act| run.act(number + 1, act)))
        })
        .collect();
    let ended: Vec<Verdict> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    over.store(true, Ordering::Relaxed);
    behind.into_iter().for_each(|thread| thread.join().unwrap());
    content.calm();
    ended.into_iter().collect::<Verdict>()?;
    looked_at(&run, &mut looker, counts)?;
    if content.failed() == 0 {
        return Ok(());
    }
    goes_on(&run, &mut looker, program.durability)
}

/// Compares the final content of the file, and the states after crashes, with the operations.
fn looked_at(run: &Run, looker: &mut Looker, counts: &Counts) -> Verdict {
    let mut instants = run.store.instants();
    instants.push(run.store.now());
    let whole = if run.file.sync_failed() { None } else { Some(looker.view(&run.file, &Torn::new())) };
    if let Some(view) = whole {
        let view = view.map_err(|e| format!("in the end: {e}"))?;
        for (at, value) in view.values.iter().enumerate() {
            let there = (view.size.min(run.marks[at + 1]) - run.marks[at]).min(if run.is_wide(at) {
                512
            } else {
                u64::MAX
            });
            let now = run.clock.tick();
            run.history.has_read(0, now, now, Deed::Read { at, len: there, value: *value });
        }
    }
    let oracle = Oracle::new(&run.marks);
    let all = run.history.until(u64::MAX);
    let found = explain(&oracle, &run.marks, &all, &|_| Ok(()))
        .map_err(|e| format!("no order explains this: {e}\n{}", list(&all)))?;
    counts.open.fetch_add(u64::from(!found), Ordering::Relaxed);
    for instant in &instants {
        for cut in [false, true] {
            let view = crashed(looker, instant, cut)?;
            let events = run.history.until(instant.at);
            let fits = |oracle: &Oracle| oracle.allows(&view, !cut && !instant.failed);
            let what = if cut { "a power cut" } else { "a kill" };
            let found = explain(&oracle, &run.marks, &events, &fits)
                .map_err(|e| format!("after {what} at {}: {e}\n{}", instant.at, list(&events)))?;
            counts.open.fetch_add(u64::from(!found), Ordering::Relaxed);
            counts.crashes.fetch_add(1, Ordering::Relaxed);
        }
    }
    counts.orders.fetch_add(1, Ordering::Relaxed);
    counts.events.fetch_add(all.len() as u64, Ordering::Relaxed);
    counts.faults.fetch_add(run.store.content.failed(), Ordering::Relaxed);
    Ok(())
}

/// Reopens the file after a failed sync, writes, syncs, and cuts the power.
fn goes_on(run: &Run, looker: &mut Looker, durability: Durability) -> Verdict {
    let content = &run.store.content;
    if run.file.sync_failed() && durability == Durability::Strict {
        content.evict(|n| looker.rng.below(n as u64) as usize);
    }
    let opened = File::open(content.clone(), looker.context.clone());
    let file = opened.map_err(|e| format!("does not open again: {e}"))?;
    let view = looker.view(&file, &Torn::new()).map_err(|e| format!("opened again: {e}"))?;
    let all = run.history.until(u64::MAX);
    let fits = |oracle: &Oracle| oracle.allows(&view, false);
    explain(&Oracle::new(&run.marks), &run.marks, &all, &fits)
        .map_err(|e| format!("opened again: {e}\n{}", list(&all)))?;
    looker.go_on(content, &file, &view, &Torn::new())
}

/// The content of the file after a crash.
fn crashed(looker: &mut Looker, instant: &Instant, cut: bool) -> Verdict<View> {
    let (store, torn) = match cut {
        true => looker.cut(&instant.state, false),
        false => (FaultyFile::killed(&instant.state), Torn::new()),
    };
    let file =
        File::open(store, looker.other.clone()).map_err(|e| format!("does not open after a crash: {e}"))?;
    looker.view(&file, &torn)
}

fn list(events: &[history::Event]) -> String {
    let line = |event: &history::Event| {
        let end = event.end.map_or("".to_owned(), |end| end.to_string());
        let failed = if event.failed { " failed" } else { "" };
        format!("  {}..{end} thread {}: {:?}{failed}\n", event.start, event.thread, event.deed)
    };
    events.iter().map(line).collect()
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.silence_warnings = true;
    config
}

/// Runs a program in this many orders with each of two random schedulers.
fn run_in_orders(seed: u64, orders: usize, counts: &Arc<Counts>) {
    let (once, counts) = (Arc::new(Program::random(seed)), counts.clone());
    let body = move || {
        if let Err(e) = run(&once, &counts) {
            panic!("ORDERS={orders} PROGRAM={seed}: {e}\n{once}");
        }
    };
    Runner::new(RandomScheduler::new_from_seed(seed, orders), config()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, orders), config()).run(body);
}

fn explore(programs: std::ops::Range<u64>, orders: usize) {
    let (counts, next) = (Arc::new(Counts::default()), AtomicU64::new(programs.start));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= programs.end {
                return;
            }
            run_in_orders(seed, orders, &counts);
        }
    };
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} programs, {} orders, {} operations, {} failed calls, {} crashes: none wrong, {} left open, in {:.0} s",
        programs.end - programs.start,
        of(&counts.orders),
        of(&counts.events),
        of(&counts.faults),
        of(&counts.crashes),
        of(&counts.open),
        start.elapsed().as_secs_f64()
    );
}

#[test]
fn some_orders() {
    explore(0..400, 10);
}

/// Programs that found a bug.
#[test]
fn known_programs() {
    [268, 756, 811].into_iter().for_each(|seed| run_in_orders(seed, 25, &Arc::default()));
}

#[test]
#[ignore = "takes long: just prove"]
fn many_orders() {
    explore(0..10_000, 25);
}

/// `PROGRAM=7 ORDERS=10 cargo test --release --lib this_program -- --ignored`; `RULE=KeepNewer` breaks a
/// rule.
#[test]
#[ignore = "needs a program in the environment"]
fn this_program() {
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    break_rule(std::env::var("RULE").ok().map(|name| rule_of(&name)));
    run_in_orders(number("PROGRAM"), number("ORDERS") as usize, &Arc::default());
}

/// For each rule that matters between threads, a program that detects when it is broken.
const FOUND_BY: [(Rule, u64); 8] = [
    (Rule::SameContent, 21),
    (Rule::ReadAgainHeld, 163),
    (Rule::CleanStepIsVoid, 13),
    (Rule::CompleteBeforeReading, 20),
    (Rule::CompleteBeforeChanging, 4),
    (Rule::ApartInEpoch, 6),
    (Rule::KeepNewer, 9),
    (Rule::CompleteBeforeSync, 131),
];

/// If any of these rules is broken, something fails.
#[test]
fn each_rule_between_threads_matters() {
    let missed: Vec<Rule> =
        FOUND_BY.into_iter().filter(|found| !is_found(found)).map(|(rule, _)| rule).collect();
    assert!(missed.is_empty(), "broken, and not found: {missed:?}");
}

/// Tries further programs if the known one no longer detects the broken rule.
fn is_found((rule, known): &(Rule, u64)) -> bool {
    let start = std::time::Instant::now();
    let found = (*known..).take(40).find(|seed| finds(*seed, *rule));
    if let Some(seed) = found {
        println!("{rule:?}: PROGRAM={seed}, {:.1} s", start.elapsed().as_secs_f64());
    }
    found.is_some()
}

/// Whether a program detects a broken rule.
fn finds(seed: u64, rule: Rule) -> bool {
    break_rule(Some(rule));
    let ran = catch_unwind(AssertUnwindSafe(|| run_in_orders(seed, 25, &Arc::default())));
    break_rule(None);
    ran.is_err()
}

fn rule_of(name: &str) -> Rule {
    FOUND_BY.into_iter().map(|(rule, _)| rule).find(|rule| format!("{rule:?}") == name).unwrap()
}

/// `RULE=KeepNewer PROGRAMS=1000 cargo test --release --lib any_program_finds -- --ignored --nocapture`
#[test]
#[ignore = "needs a rule in the environment"]
fn any_program_finds() {
    let of = |name| std::env::var(name).unwrap();
    let (rule, programs): (_, u64) = (rule_of(&of("RULE")), of("PROGRAMS").parse().unwrap());
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= programs {
                return;
            }
            if finds(seed, rule) {
                println!("{rule:?}: PROGRAM={seed}");
                return next.store(programs, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
}
