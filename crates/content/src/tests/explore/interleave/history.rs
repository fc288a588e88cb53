//! The operations that several threads performed on a file, and the search for a sequential order that
//! explains them. No operation may be moved before one that ended before it began (linearizability,
//! Herlihy and Wing 1990). All orders are tried. The oracle follows each of them, and determines in the
//! end what a crash may leave.

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
/// Maximum states to search. Beyond that, it remains undecided whether there is an order.
const STATES: usize = 2_000;

/// Orders the beginnings and ends of operations.
#[derive(Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The effect of an operation on the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// Writes these values, starting at this segment.
    Write(usize, Vec<Value>),
    /// Zeroes this many segments, starting at this one. The file does not grow.
    Punch(usize, usize),
    /// Truncates to this many bytes.
    Truncate(u64),
    /// Grows to at least this many bytes.
    Grow(u64),
    /// The result of reading a segment: a number of bytes with one value.
    Read {
        at: usize,
        len: u64,
        value: Option<Value>,
    },
    Flush,
    Sync,
    /// No effect visible to a reader or after a crash.
    Nothing,
}

/// An operation of a thread.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) thread: usize,
    pub(super) start: u64,
    /// `None` while it is in progress.
    pub(super) end: Option<u64>,
    pub(super) failed: bool,
    pub(super) deed: Deed,
}

/// All operations, in the order in which they were recorded.
#[derive(Default)]
pub(super) struct History(Mutex<Vec<Event>>);

impl History {
    /// A thread begins an operation. Returns the operation's number.
    pub(super) fn begin(&self, thread: usize, start: u64, deed: Deed) -> usize {
        let mut events = self.0.lock().unwrap();
        events.push(Event { thread, start, end: None, failed: false, deed });
        events.len() - 1
    }

    /// The operation has ended.
    pub(super) fn end(&self, number: usize, end: u64, failed: bool) {
        let mut events = self.0.lock().unwrap();
        let event = &mut events[number];
        (event.end, event.failed) = (Some(end), failed);
    }

    /// A thread has read something.
    pub(super) fn has_read(&self, thread: usize, start: u64, end: u64, deed: Deed) {
        self.0.lock().unwrap().push(Event { thread, start, end: Some(end), failed: false, deed });
    }

    /// The operations that began before an instant, in their state at that time.
    pub(super) fn until(&self, instant: u64) -> Vec<Event> {
        let mut events = self.0.lock().unwrap().clone();
        events.retain(|event| event.start < instant);
        for event in &mut events {
            event.end = event.end.filter(|end| *end < instant);
        }
        events
    }
}

/// Searches for an order of `events`, starting from `oracle`, that explains all reads and whose final
/// state `fits` accepts. Returns whether it was found: `false` if there are too many orders to try.
///
/// # Errors
/// Why the last order that was tried does not work.
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

/// The earliest end among these operations. An operation that began after it must not come first.
fn first_end(next: &[(usize, &Event)]) -> u64 {
    next.iter().filter_map(|(_, event)| event.end).min().unwrap_or(u64::MAX)
}

struct Search<'a> {
    marks: &'a [u64],
    /// By thread.
    left: Vec<Vec<&'a Event>>,
    fits: &'a dyn Fn(&Oracle) -> Result<(), String>,
    seen: HashSet<(Vec<usize>, Oracle)>,
    /// Why the last operation that was tried could not come next.
    why: String,
    /// Why the final state of the last complete order was not accepted.
    unfit: Option<String>,
}

impl<'a> Search<'a> {
    /// Continues the search from the state in which each thread has completed `done` operations.
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
        // Most operations take effect in the order in which they ended.
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

    /// The next operation of each thread, with the thread's index in `left`.
    fn next(&self, done: &[usize]) -> Vec<(usize, &'a Event)> {
        let next =
            |(thread, all): (usize, &Vec<&'a Event>)| all.get(done[thread]).map(|event| (thread, *event));
        self.left.iter().enumerate().filter_map(next).collect()
    }

    /// The next operation of each thread, after skipping reads that give no new information. Those may
    /// come at once.
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

    /// Whether a read of a segment can have this length. Only part of a wide segment is read.
    fn has_length(&self, oracle: &Oracle, at: usize, len: u64) -> bool {
        let there = oracle.size.clamp(self.marks[at], self.marks[at + 1]) - self.marks[at];
        (there.min(PART)..=there).contains(&len)
    }

    /// The possible states after an operation.
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
        // The file may have any size in between.
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
