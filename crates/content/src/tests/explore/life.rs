//! One run of a case: a program on a file and its store, together with the oracle.

use super::{
    super::super::{CleanStep, Context, File},
    super::Rng,
    case::{Case, Crash, MANY, Op, Step},
    look::{Counts, Looker, Torn, Wrong, rest},
    marks::{Value, ZEROS, fill},
    oracle::Oracle,
};
use crate::Error;
use format::layout;
use std::{
    fmt::{self, Display, Formatter},
    mem::discriminant,
    num::ParseIntError,
    str::FromStr,
    sync::Arc,
};
use store::{Call, FaultyFile, Snapshot};

/// How thoroughly a run is checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Care {
    /// Instants of each operation at which crashes are checked.
    pub(super) instants: usize,
    /// Power cuts at each instant.
    pub(super) cuts: usize,
    /// The first operation to check.
    pub(super) from: usize,
    /// Depth of crashes and failures inside recoveries.
    pub(super) depth: u32,
}

impl Care {
    pub(super) const ALL: Care = Care { instants: usize::MAX, cuts: 8, from: 0, depth: 2 };
}

/// The form that `FromStr` parses.
impl Display for Care {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Care { instants, cuts, from, depth } = self;
        write!(f, "{instants} {cuts} {from} {depth}")
    }
}

impl FromStr for Care {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.split(' ');
        let mut next = || numbers.next().unwrap_or_default();
        let (instants, cuts, from) = (next().parse()?, next().parse()?, next().parse()?);
        Ok(Care { instants, cuts, from, depth: next().parse()? })
    }
}

/// A violation of the promises.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) step: usize,
    pub(super) text: String,
}

impl Violation {
    /// The text without numbers, and without the crashes that led to it.
    pub(super) fn class(&self) -> String {
        let text = self.text.rsplit(" met by ").next().unwrap_or_default();
        let text = text.trim_start_matches(|letter| letter != ':').trim_start_matches(": ");
        let text = if text.is_empty() { &self.text } else { text };
        let (mut class, mut in_list) = (String::new(), false);
        for letter in text.split(" (call").next().unwrap_or_default().chars() {
            in_list = letter == '[' || in_list && letter != ']';
            if !in_list && !letter.is_ascii_digit() {
                class.push(letter);
            }
        }
        class
    }
}

pub(super) struct Life<'a> {
    case: &'a Case,
    care: Care,
    /// Context of the file. States after crashes are recovered with the looker's contexts.
    context: Arc<Context>,
    looker: Looker,
    store: Arc<FaultyFile>,
    file: Option<Arc<File>>,
    oracle: Oracle,
    last: Value,
    resting: Option<Resting>,
    /// The last operation that met a failure.
    failed: Option<Op>,
    /// Chunks that a write left incomplete.
    torn: Torn,
    /// The calls that the operation made to the store.
    asked: Vec<Call>,
    over: bool,
}

/// A file on its way to a clean record.
#[derive(Clone, Copy)]
struct Resting {
    step: CleanStep,
    synced: bool,
    settled: bool,
}

type Verdict<T = ()> = Result<T, String>;

/// The result of an operation.
enum End {
    /// The operation did not apply.
    Skipped,
    Done,
    Failed,
}

/// Runs a case.
pub(super) fn run(case: &Case, contexts: &[Arc<Context>; 2], seed: u64, care: Care) -> Ran {
    let mut life = Life::new(case, contexts[0].clone(), contexts, seed, care);
    let wrong = life.run();
    life.looker.counts.sequences += 1;
    Ran { counts: life.looker.counts, asked: life.asked, wrong: wrong.err() }
}

/// The result of a run.
pub(super) struct Ran {
    pub(super) counts: Counts,
    /// The calls that the case's last operation made to the store.
    pub(super) asked: Vec<Call>,
    pub(super) wrong: Option<Violation>,
}

impl<'a> Life<'a> {
    /// A file that does not exist yet. It is used with `context`; states after crashes are recovered with
    /// `others`.
    pub(super) fn new(
        case: &'a Case,
        context: Arc<Context>,
        others: &[Arc<Context>; 2],
        seed: u64,
        care: Care,
    ) -> Self {
        let looker = Looker::new(others, case.place, seed);
        Life {
            case,
            care,
            context,
            oracle: Oracle::new(&looker.marks),
            looker,
            store: FaultyFile::new(),
            file: None,
            last: ZEROS,
            resting: None,
            failed: None,
            torn: Torn::new(),
            asked: Vec::new(),
            over: false,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        for (step, what) in self.case.steps.iter().enumerate() {
            self.step(step, what).map_err(|text| Violation { step, text })?;
            if self.over {
                return Ok(());
            }
        }
        self.end().map_err(|text| Violation { step: self.case.steps.len(), text })
    }

    pub(super) fn step(&mut self, at: usize, step: &Step) -> Verdict {
        self.make_ready(step.op)?;
        if self.over {
            return Ok(());
        }
        let before = self.store.failed();
        let was_failed = self.file.as_ref().is_some_and(|file| file.failed());
        // Opening makes its own promises.
        let promised = (step.op == Op::Open).then(|| self.oracle.clone());
        self.store.record();
        self.store.asked();
        if let Some(fault) = step.fault {
            self.store.fail_at(fault.from, fault.times, fault.failure);
        }
        let end = self.act(step.op, before, was_failed);
        if step.fault.is_some_and(|fault| fault.times < MANY) {
            self.store.calm();
        }
        let states = self.store.recorded();
        let end = end?;
        if at < self.case.steps.len() {
            self.asked = self.store.asked();
        }
        self.note(step.op, before, &end);
        let opened = promised.map(|before| std::mem::replace(&mut self.oracle, before));
        if at >= self.care.from {
            self.look(&states[..states.len() - 1])?;
        }
        if let Some(crash) = step.crash {
            self.crash(&states, crash);
            return Ok(());
        }
        if let Some(opened) = opened {
            self.oracle = opened;
        }
        self.promise(step.op, &end);
        if at >= self.care.from && !matches!(end, End::Skipped) {
            self.look(&states[states.len() - 1..])?;
            self.tamper(step.op, &states[states.len() - 1])?;
            self.splice(&states[states.len() - 1])?;
        }
        Ok(())
    }

    /// Damages confirmed or clean data of a file that met no failure so far.
    fn tamper(&mut self, op: Op, state: &Snapshot) -> Verdict {
        let Some(file) = &self.file else { return Ok(()) };
        let at_rest = file.is_clean();
        if self.store.failed() > 0
            || !self.torn.is_empty()
            || !(at_rest || op == Op::Sync)
            || !self.looker.chance(2)
        {
            return Ok(());
        }
        let Some(view) = self.oracle.known() else { return Ok(()) };
        self.looker.damage(&view, state)?;
        if at_rest { self.looker.meddle(&view, state) } else { Ok(()) }
    }

    /// Writes copies separately, starting from a file that met no failure so far.
    fn splice(&mut self, state: &Snapshot) -> Verdict {
        if self.store.failed() == 0 && self.torn.is_empty() && self.looker.chance(16) {
            self.looker.splice(state)?;
        }
        Ok(())
    }

    /// Opens the file if the operation needs it.
    fn make_ready(&mut self, op: Op) -> Verdict {
        if let Some(file) = &self.file
            && file.sync_failed()
        {
            let refused =
                file.write(0, &[1; 8]).is_err() && file.truncate(0).is_err() && file.sync().is_err();
            if !refused {
                return Err("takes a write after a failed sync".into());
            }
            self.file = None;
        }
        let needless =
            matches!(op, Op::Open | Op::Drop | Op::Evict(_) | Op::Fill(_) | Op::Free | Op::Nothing);
        if self.file.is_none() && !needless { self.open() } else { Ok(()) }
    }

    /// Opens the file and compares its whole content.
    fn open(&mut self) -> Verdict {
        self.resting = None;
        let before = self.store.failed();
        let opened = File::open(self.store.clone(), self.context.clone());
        self.store.calm();
        let file = match opened {
            Ok(file) => file,
            Err(Error::Store(_)) if self.store.failed() > before => return Ok(()),
            Err(e) => return Err(format!("does not open: {e}")),
        };
        let view = self.looker.view(&file, &self.torn)?;
        self.oracle.allows(&view, true).map_err(|e| format!("opened: {e}"))?;
        self.over = view.values.contains(&None);
        self.oracle.show(&view, !file.failed());
        self.looker.counts.states += 1;
        self.looker.counts.beyond += u64::from(self.looker.beyond);
        self.file = Some(file);
        Ok(())
    }

    /// Records which operation met a failure, and whether a different one follows.
    fn note(&mut self, op: Op, before: u64, end: &End) {
        self.note_torn();
        let counts = &mut self.looker.counts;
        counts.faults += self.store.failed() - before;
        if let Some(failed) = self.failed
            && !matches!(end, End::Skipped)
            && discriminant(&failed) != discriminant(&op)
        {
            counts.others += 1;
            self.looker.beyond = true;
        }
        if self.store.failed() > before {
            self.failed = Some(op);
        }
    }

    fn note_torn(&mut self) {
        let torn = self.store.torn();
        self.torn.extend(torn.iter().filter_map(|page| self.looker.chunk_in(*page)));
    }

    /// Performs an operation.
    fn act(&mut self, op: Op, before: u64, was_failed: bool) -> Verdict<End> {
        match op {
            Op::Open => {
                self.file = None;
                self.open()?;
                return Ok(End::Done);
            }
            Op::Drop => self.file = None,
            Op::Evict(seed) => {
                let mut rng = Rng(seed);
                self.store.evict(|n| rng.below(n as u64) as usize);
                self.oracle.lose();
            }
            Op::Fill(copies) => self.store.fill(libc::ENOSPC, copies),
            Op::Free => self.store.mend(),
            Op::Nothing => {}
            _ => {
                let Some(file) = self.file.clone() else { return Ok(End::Skipped) };
                return self.act_on(&file, op, before, was_failed);
            }
        }
        Ok(End::Done)
    }

    fn act_on(&mut self, file: &Arc<File>, op: Op, before: u64, was_failed: bool) -> Verdict<End> {
        let Some(change) = self.change(op) else { return Ok(End::Skipped) };
        let (size, first, values) = change;
        self.oracle.attempt(size, first, &values);
        let old = self.oracle.size;
        let result = self.call(file, op, &values);
        let Some(result) = result? else { return Ok(End::Skipped) };
        let now = file.size();
        match result {
            Ok(()) => {
                self.oracle.done(size, first, &values);
                if now != size {
                    return Err(format!("{now} bytes in the open file, not {size}"));
                }
                Ok(End::Done)
            }
            Err(Error::Damaged(damage)) if self.torn.is_empty() => Err(format!("damaged: {damage}")),
            Err(Error::Store(e)) if self.store.failed() == before && !was_failed => {
                Err(format!("fails without a cause: {e}"))
            }
            Err(_) => {
                let between = old.min(size)..=old.max(size);
                if !between.contains(&now) {
                    return Err(format!("{now} bytes in the open file, neither {old} nor {size}"));
                }
                self.oracle.half_done(now, size, first, &values);
                Ok(End::Failed)
            }
        }
    }

    /// The size after an operation, and the new values from a segment on; `None` if the operation does
    /// not apply.
    fn change(&mut self, op: Op) -> Option<(u64, usize, Vec<Value>)> {
        let marks = &self.looker.marks;
        let (last, size) = (marks.len() - 1, self.oracle.size);
        let range = match op {
            Op::Write(a, b) if a < b && b <= last => a..b,
            Op::Append(n) => {
                let start = marks.iter().position(|mark| *mark == size).filter(|at| *at < last)?;
                start..(start + n).min(last)
            }
            Op::Punch(a, b) | Op::Allocate(a, b, _) | Op::Read(a, b) if a >= b || b > last => return None,
            Op::Punch(a, b) => return Some((size, a, vec![ZEROS; b - a])),
            Op::Allocate(_, b, false) => return Some((size.max(marks[b]), 0, Vec::new())),
            Op::Truncate(a) if a <= last => return Some((marks[a], 0, Vec::new())),
            Op::Write(..) | Op::Truncate(_) => return None,
            Op::Seek(a, _) if a > last => return None,
            _ => return Some((size, 0, Vec::new())),
        };
        let wide = |at: usize| marks[at + 1] - marks[at] > layout::CHUNK;
        if range.is_empty() || range.clone().any(wide) {
            return None;
        }
        let end = size.max(marks[range.end]);
        let first = self.last + 1;
        self.last += range.len() as Value;
        Some((end, range.start, (first..=self.last).collect()))
    }

    fn data(&self, first: usize, values: &[Value]) -> Vec<u8> {
        let marks = &self.looker.marks;
        let mut data = vec![0; (marks[first + values.len()] - marks[first]) as usize];
        for (at, value) in (first..).zip(values) {
            let place = (marks[at] - marks[first]) as usize..(marks[at + 1] - marks[first]) as usize;
            fill(*value, marks[at], &mut data[place]);
        }
        data
    }

    /// Calls the file.
    fn call(&mut self, file: &Arc<File>, op: Op, values: &[Value]) -> Verdict<Option<Result<(), Error>>> {
        let mark = |at: usize| self.looker.marks[at];
        Ok(Some(match op {
            Op::Write(a, _) => file.write(mark(a), &self.data(a, values)),
            Op::Append(_) => {
                let size = self.oracle.size;
                let first = self.looker.marks.partition_point(|mark| *mark < size);
                match file.append(&self.data(first, values)) {
                    Ok(at) if at != size => return Err(format!("appended at {at}, not {size}")),
                    result => result.map(drop),
                }
            }
            Op::Truncate(a) => file.truncate(mark(a)),
            Op::Punch(a, b) => file.punch(mark(a), mark(b) - mark(a)),
            Op::Allocate(a, b, keep) => file.allocate(mark(a), mark(b) - mark(a), keep),
            Op::Read(a, b) => match self.looker.part(file, a..b, &self.torn) {
                Ok(view) => {
                    self.oracle.observe(&view)?;
                    Ok(())
                }
                Err(Wrong::Read(e)) => Err(e),
                Err(Wrong::Mixed(e)) => return Err(e),
            },
            Op::Seek(a, data) => match file.seek(mark(a), data) {
                Err(Error::NoData) => Ok(()),
                result => result.map(drop),
            },
            Op::Flush => file.flush(),
            Op::Close => file.flush_at_close(),
            Op::Sync => file.sync(),
            Op::Rest => rest(file),
            Op::RestFlush => file.cleaner().flush().map(|step| {
                self.resting = Some(Resting { step, synced: false, settled: false });
            }),
            Op::RestSync => self.rest_sync(file).map(drop),
            Op::RestSettle => self.rest_sync(file).and_then(|resting| {
                let Some(Resting { step, settled: false, .. }) = resting else { return Ok(()) };
                let more = file.cleaner().settle(step)?;
                self.resting = more.then_some(Resting { step, synced: false, settled: true });
                Ok(())
            }),
            Op::RestFinish => self.rest_sync(file).and_then(|resting| match resting {
                Some(Resting { step, settled: true, .. }) => file.cleaner().finish(step),
                _ => Ok(()),
            }),
            Op::Salt => file.salt(true).map(drop),
            _ => return Ok(None),
        }))
    }

    fn rest_sync(&mut self, file: &Arc<File>) -> Result<Option<Resting>, Error> {
        if let Some(resting) = &mut self.resting
            && !resting.synced
        {
            file.cleaner().sync()?;
            resting.synced = true;
        }
        Ok(self.resting)
    }

    /// Updates the oracle with the promises of an operation that ended this way.
    fn promise(&mut self, op: Op, end: &End) {
        let Some(file) = &self.file else { return };
        if file.sync_failed() {
            return self.oracle.lose();
        }
        if !matches!(end, End::Done) {
            return;
        }
        match op {
            Op::Sync => self.oracle.confirm(),
            Op::Rest | Op::RestSettle | Op::RestFinish if file.is_clean() => self.oracle.confirm(),
            Op::Flush => self.oracle.flush(),
            Op::Close | Op::Rest | Op::RestFlush if file.cleaner().is_flushed() => self.oracle.flush(),
            _ => {}
        }
    }

    /// Checks crashes at some of these instants.
    fn look(&mut self, states: &[Snapshot]) -> Verdict {
        let torn = self.torn.clone();
        let all = states.len() <= self.care.instants;
        for at in 0..states.len().min(self.care.instants) {
            let at = if all { at } else { self.looker.rng.below(states.len() as u64) as usize };
            let state = &states[at];
            let told = |e| format!("{e} (call {at} of {})", states.len());
            if all || self.looker.chance(2) {
                self.looker.crash(&self.oracle, state, false, &torn, self.care.depth).map_err(told)?;
            }
            if torn.is_empty() && self.looker.chance(8) {
                self.looker.wear(state).map_err(told)?;
            }
            if state.unsynced() {
                for _ in 0..self.care.cuts {
                    self.looker.crash(&self.oracle, state, true, &torn, self.care.depth).map_err(told)?;
                }
            }
        }
        Ok(())
    }

    /// Crashes, and continues from the resulting state.
    fn crash(&mut self, states: &[Snapshot], crash: Crash) {
        let state = &states[(crash.at % states.len() as u64) as usize];
        self.file = None;
        match crash.cut {
            Some(seed) => {
                let before = std::mem::replace(&mut self.looker.rng, Rng(seed));
                let (store, torn) = self.looker.cut(state, false);
                self.looker.rng = before;
                self.store = store;
                self.over |= !torn.is_empty();
                self.oracle.lose();
            }
            None => self.store = FaultyFile::killed(state),
        }
    }

    /// Starts recording the store while others are working.
    pub(super) fn record(&self) {
        self.store.record();
    }

    /// Checks crashes at every call that others made to this file's store since `record`.
    pub(super) fn look_on(&mut self) -> Verdict {
        let states = self.store.recorded();
        self.note_torn();
        if self.file.as_ref().is_some_and(|file| file.sync_failed()) {
            self.oracle.lose();
        }
        if self.over { Ok(()) } else { self.look(&states) }
    }

    /// Crashes in the present state.
    pub(super) fn crash_now(&mut self, cut: Option<u64>) {
        self.note_torn();
        self.crash(&[self.store.snapshot()], Crash { at: 0, cut });
    }

    /// Whether a power cut damaged the file, so that nothing more can be checked.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.looker.counts
    }

    /// At the end, the store works again, and so must the file.
    pub(super) fn end(&mut self) -> Verdict {
        self.store.mend();
        if self.looker.chance(4) {
            return Ok(());
        }
        for op in [Op::Read(0, self.looker.marks.len() - 1), Op::Sync, Op::Rest] {
            self.step(usize::MAX, &Step { op, fault: None, crash: None })
                .map_err(|e| format!("in the end, {op}: {e}"))?;
            if self.over {
                break;
            }
        }
        Ok(())
    }
}
