//! What several threads did to a file, and whether there is an order in which one thread could have done it: one that
//! no operation is moved past another in that began after it had ended (linearizability, Herlihy and Wing 1990). All
//! orders are tried. The oracle follows each of them, and says in the end what a crash may leave.

use super::super::{
    marks::{Value, ZEROS},
    oracle::{Oracle, View},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that are read of a wide segment.
pub(super) const PART: u64 = 512;
/// So many states are looked at; then it remains open whether there is an order.
const STATES: usize = 2_000;

/// Counts the beginnings and the ends of operations.
#[derive(Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// What an operation is to do to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// These values, from that segment on.
    Write(usize, Vec<Value>),
    /// So many segments from that one on read as zeros; the file does not grow.
    Punch(usize, usize),
    /// To so many bytes.
    Truncate(u64),
    /// To so many at least.
    Grow(u64),
    /// What was read of a segment: so many bytes of one value.
    Read {
        at: usize,
        len: u64,
        value: Option<Value>,
    },
    Flush,
    Sync,
    /// Nothing that a reader or a crash could tell.
    Nothing,
}

/// An operation of a thread.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) thread: usize,
    pub(super) start: u64,
    /// `None` while it is under way.
    pub(super) end: Option<u64>,
    pub(super) failed: bool,
    pub(super) deed: Deed,
}

/// All operations, in the order in which they began.
#[derive(Default)]
pub(super) struct History(Mutex<Vec<Event>>);

impl History {
    /// A thread begins something. Returns its number.
    pub(super) fn begin(&self, thread: usize, start: u64, deed: Deed) -> usize {
        let mut events = self.0.lock().unwrap();
        events.push(Event { thread, start, end: None, failed: false, deed });
        events.len() - 1
    }

    /// It has ended.
    pub(super) fn end(&self, number: usize, end: u64, failed: bool) {
        let mut events = self.0.lock().unwrap();
        let event = &mut events[number];
        (event.end, event.failed) = (Some(end), failed);
    }

    /// A thread has read something.
    pub(super) fn has_read(&self, thread: usize, start: u64, end: u64, deed: Deed) {
        self.0.lock().unwrap().push(Event { thread, start, end: Some(end), failed: false, deed });
    }

    /// What had begun before an instant, as it was then.
    pub(super) fn until(&self, instant: u64) -> Vec<Event> {
        let mut events = self.0.lock().unwrap().clone();
        events.retain(|event| event.start < instant);
        for event in &mut events {
            event.end = event.end.filter(|end| *end < instant);
        }
        events
    }
}

/// Looks for an order of `events` from `oracle` on in which all that was read could be, and of which `fits` approves in
/// the end. Returns whether it was found: `false` if there are too many to try.
///
/// # Errors
/// Why the last one that was tried is none.
pub(super) fn explain(
    oracle: &Oracle,
    marks: &[u64],
    events: &[Event],
    fits: &dyn Fn(&Oracle) -> Result<(), String>,
) -> Result<bool, String> {
    let mut left: BTreeMap<usize, Vec<&Event>> = BTreeMap::new();
    events.iter().for_each(|event| left.entry(event.thread).or_default().push(event));
    let left = Vec::from_iter(left.into_values());
    let done = vec![0; left.len()];
    let mut search = Search { marks, left, fits, seen: HashSet::new(), why: String::new(), unfit: None };
    if search.go(oracle, &done) {
        return Ok(true);
    }
    if search.seen.len() >= STATES {
        return Ok(false);
    }
    Err(search.unfit.unwrap_or(search.why))
}

/// What began after another had ended does not come before it.
fn first_end(next: &[(usize, &Event)]) -> u64 {
    next.iter().filter_map(|(_, event)| event.end).min().unwrap_or(u64::MAX)
}

struct Search<'a> {
    marks: &'a [u64],
    /// By thread.
    left: Vec<Vec<&'a Event>>,
    fits: &'a dyn Fn(&Oracle) -> Result<(), String>,
    seen: HashSet<(Vec<usize>, Oracle)>,
    /// Why the last operation that was tried could not come then.
    why: String,
    /// What is wrong with the end of the last order that is one.
    unfit: Option<String>,
}

impl<'a> Search<'a> {
    /// Goes on from where each thread has done so many of its operations.
    fn go(&mut self, oracle: &Oracle, done: &[usize]) -> bool {
        let mut done = done.to_vec();
        let next = self.next_after_reads(oracle, &mut done);
        if next.len() > 1 && !self.seen.insert((done.clone(), oracle.clone())) || self.seen.len() >= STATES {
            return false;
        }
        if next.iter().all(|(_, event)| event.end.is_none()) {
            match (self.fits)(oracle) {
                Ok(()) => return true,
                Err(why) => self.unfit = Some(why),
            }
        }
        let first_end = first_end(&next);
        let mut next = Vec::from_iter(next.into_iter().filter(|(_, event)| event.start <= first_end));
        // Most were done in the order in which they ended.
        next.sort_by_key(|(_, event)| event.end.unwrap_or(u64::MAX));
        for (thread, event) in next {
            match self.does(oracle, event) {
                Ok(ways) => {
                    done[thread] += 1;
                    if ways.iter().any(|oracle| self.go(oracle, &done)) {
                        return true;
                    }
                    done[thread] -= 1;
                }
                Err(why) => self.why = why,
            }
        }
        false
    }

    /// The next operation of each thread, with its place in `left`.
    fn next(&self, done: &[usize]) -> Vec<(usize, &'a Event)> {
        let next =
            |(thread, all): (usize, &Vec<&'a Event>)| all.get(done[thread]).map(|event| (thread, *event));
        self.left.iter().enumerate().filter_map(next).collect()
    }

    /// What each thread does next, after the reads that tell nothing new: where one of those can come at once, it may.
    fn next_after_reads(&self, oracle: &Oracle, done: &mut [usize]) -> Vec<(usize, &'a Event)> {
        loop {
            let next = self.next(done);
            let first_end = first_end(&next);
            let is_plain = |event: &Event| event.start <= first_end && self.tells_nothing(oracle, event);
            let plain =
                Vec::from_iter(next.iter().filter(|(_, event)| is_plain(event)).map(|(thread, _)| *thread));
            if plain.is_empty() {
                return next;
            }
            plain.into_iter().for_each(|thread| done[thread] += 1);
        }
    }

    fn tells_nothing(&self, oracle: &Oracle, event: &Event) -> bool {
        match &event.deed {
            Deed::Read { at, len, value } => {
                let known = value.is_none_or(|value| oracle.now(*at) == [value]);
                self.has_length(oracle, *at, *len) && (*len == 0 || known)
            }
            _ => false,
        }
    }

    /// Whether there are so many bytes of a segment; of a wide one a part is read.
    fn has_length(&self, oracle: &Oracle, at: usize, len: u64) -> bool {
        let there = oracle.size.clamp(self.marks[at], self.marks[at + 1]) - self.marks[at];
        (there.min(PART)..=there).contains(&len)
    }

    /// What an operation may make of the file.
    fn does(&self, oracle: &Oracle, event: &Event) -> Result<Vec<Oracle>, String> {
        let mut after = oracle.clone();
        let (size, first, values) = match &event.deed {
            Deed::Read { at, len, value } => {
                if !self.has_length(oracle, *at, *len) {
                    return Err(format!("{len} bytes read at {} of {}", self.marks[*at], oracle.size));
                }
                if *len > 0 {
                    let mut values = vec![None; *at];
                    values.push(*value);
                    after.observe(&View { size: oracle.size, values })?;
                }
                return Ok(vec![after]);
            }
            Deed::Sync if !event.failed && event.end.is_some() => {
                after.confirm();
                return Ok(vec![after]);
            }
            Deed::Flush if !event.failed && event.end.is_some() => {
                after.flush();
                return Ok(vec![after]);
            }
            Deed::Nothing | Deed::Sync | Deed::Flush => (oracle.size, 0, Vec::new()),
            Deed::Write(first, values) => {
                (oracle.size.max(self.marks[first + values.len()]), *first, values.clone())
            }
            Deed::Punch(first, n) => (oracle.size, *first, vec![ZEROS; *n]),
            Deed::Truncate(size) => (*size, 0, Vec::new()),
            Deed::Grow(size) => (oracle.size.max(*size), 0, Vec::new()),
        };
        after.attempt(size, first, &values);
        if !event.failed {
            after.done(size, first, &values);
            return Ok(vec![after]);
        }
        // It may have come to any size on the way.
        let (from, to) = (oracle.size.min(size), oracle.size.max(size));
        let between = self.marks.iter().copied().filter(|mark| (from..=to).contains(mark));
        let sizes: HashSet<u64> = between.chain([from, to]).collect();
        let half = |now: u64| {
            let mut after = after.clone();
            after.half_done(now, size, first, &values);
            after
        };
        Ok(sizes.into_iter().map(half).collect())
    }
}
