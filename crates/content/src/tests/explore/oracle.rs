//! The allowed contents of a file: the promises of `docs/format.md`, segment by segment.

use super::marks::{ABSENT, Value, ZEROS};
use format::layout;
use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

/// The content read from a file; `None` where a chunk is damaged and is allowed to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) size: u64,
    pub(super) values: Vec<Option<Value>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    /// The values that a read may return now.
    now: Vec<Value>,
    /// The values at the last fsync that confirmed the segment, and since.
    confirmed: Vec<Value>,
    /// The values when the segment was last known to be flushed, and since.
    flushed: Vec<Value>,
    /// Values of operations since the last fsync that failed, perhaps after taking effect.
    tried: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Oracle {
    marks: Vec<u64>,
    segments: Vec<Arc<Segment>>,
    pub(super) size: u64,
    /// Sizes, with the same meaning as in a segment, in order.
    confirmed: Vec<u64>,
    flushed: Vec<u64>,
    tried: Vec<u64>,
}

/// A cheap hash; oracles of the same size are compared in full.
impl Hash for Oracle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.size, &self.confirmed).hash(state);
    }
}

impl Oracle {
    /// An empty file.
    pub(super) fn new(marks: &[u64]) -> Self {
        let absent = || vec![ABSENT];
        let segment =
            Arc::new(Segment { now: absent(), confirmed: absent(), flushed: absent(), tried: Vec::new() });
        Oracle {
            segments: vec![segment; marks.len() - 1],
            marks: marks.to_vec(),
            size: 0,
            confirmed: vec![0],
            flushed: vec![0],
            tried: Vec::new(),
        }
    }

    /// The value that an operation gives a segment, if it changes it.
    fn made_of(&self, at: usize, size: u64, first: usize, values: &[Value]) -> Option<Value> {
        if self.marks[at] >= size {
            return Some(ABSENT);
        }
        let value = at.checked_sub(first).and_then(|at| values.get(at)).copied();
        value.or((self.marks[at] >= self.size).then_some(ZEROS))
    }

    /// Called before an operation that makes the file `size` long and sets the segments from `first` to
    /// these values.
    pub(super) fn attempt(&mut self, size: u64, first: usize, values: &[Value]) {
        for at in 0..self.segments.len() {
            let Some(new) = self.made_of(at, size, first, values) else { continue };
            let segment = Arc::make_mut(&mut self.segments[at]);
            push(&mut segment.confirmed, new);
            push(&mut segment.flushed, new);
        }
        push(&mut self.confirmed, size);
        push(&mut self.flushed, size);
    }

    /// The operation succeeded.
    pub(super) fn done(&mut self, size: u64, first: usize, values: &[Value]) {
        for at in 0..self.segments.len() {
            let Some(now) = self.made_of(at, size, first, values) else { continue };
            if self.segments[at].now != [now] {
                Arc::make_mut(&mut self.segments[at]).now = vec![now];
            }
        }
        self.size = size;
    }

    /// The operation failed, perhaps after taking effect in part or in full. The file is now `now` bytes
    /// long.
    pub(super) fn half_done(&mut self, now: u64, size: u64, first: usize, values: &[Value]) {
        let before = self.size;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            let segment = Arc::make_mut(segment);
            let new = at.checked_sub(first).and_then(|at| values.get(at)).copied();
            if let Some(value) = new.or((before..size).contains(&self.marks[at]).then_some(ZEROS)) {
                push(&mut segment.tried, value);
            }
            if self.marks[at] >= now {
                segment.now = vec![ABSENT];
            } else if self.marks[at] >= before {
                segment.now = vec![new.unwrap_or(ZEROS)];
            } else if let Some(value) = new {
                push(&mut segment.now, value);
            }
        }
        self.size = now;
        push(&mut self.tried, size);
        push(&mut self.confirmed, now);
        push(&mut self.flushed, now);
    }

    /// The present content is confirmed.
    pub(super) fn confirm(&mut self) {
        for segment in self.segments.iter_mut().map(Arc::make_mut) {
            let Segment { now, confirmed, .. } = segment;
            confirmed.clone_from(now);
            segment.tried.clear();
        }
        self.confirmed = vec![self.size];
        self.tried.clear();
        self.flush();
    }

    /// The present content is in the store.
    pub(super) fn flush(&mut self) {
        for segment in self.segments.iter_mut().map(Arc::make_mut) {
            let Segment { now, flushed, tried, .. } = segment;
            flushed.clone_from(now);
            flushed.extend_from_slice(tried);
        }
        self.flushed = vec![self.size];
        self.flushed.extend_from_slice(&self.tried);
    }

    /// Flushed data may be lost.
    pub(super) fn lose(&mut self) {
        for segment in self.segments.iter_mut().map(Arc::make_mut) {
            let Segment { confirmed, flushed, .. } = segment;
            flushed.clone_from(confirmed);
        }
        self.flushed.clone_from(&self.confirmed);
    }

    /// A copy to which `lose` was applied.
    pub(super) fn lost(&self) -> Oracle {
        let mut lost = self.clone();
        lost.lose();
        lost
    }

    /// The file was reopened and has this content; `durable` if nothing can undo it.
    pub(super) fn show(&mut self, view: &View, durable: bool) {
        self.size = view.size;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            Arc::make_mut(segment).now = match view.values.get(at) {
                Some(value) if self.marks[at] < view.size => value.iter().copied().collect(),
                _ => vec![ABSENT],
            };
        }
        if durable {
            self.confirm();
        } else {
            push(&mut self.confirmed, view.size);
            push(&mut self.flushed, view.size);
        }
    }

    /// The content of the file, if it is known.
    pub(super) fn known(&self) -> Option<View> {
        let there = self.segments.iter().zip(&self.marks).filter(|(_, mark)| **mark < self.size);
        let value = |(segment, _): (&Arc<Segment>, &u64)| match segment.now[..] {
            [value] => Some(Some(value)),
            _ => None,
        };
        Some(View { size: self.size, values: there.map(value).collect::<Option<_>>()? })
    }

    /// The values that a read of a segment may return.
    pub(super) fn now(&self, at: usize) -> &[Value] {
        &self.segments[at].now
    }

    /// The open file was read and has this content.
    pub(super) fn observe(&mut self, view: &View) -> Result<(), String> {
        if view.size != self.size {
            return Err(format!("the open file has {} bytes, not {}", view.size, self.size));
        }
        for (at, value) in view.values.iter().enumerate() {
            let segment = &mut self.segments[at];
            let Some(value) = value else { continue };
            if !segment.now.contains(value) {
                return Err(format!(
                    "the open file reads {} at {}, not {}",
                    name(*value),
                    self.marks[at],
                    names(&segment.now)
                ));
            }
            if segment.now.len() > 1 {
                Arc::make_mut(segment).now = vec![*value];
            }
        }
        Ok(())
    }

    /// Whether this content is allowed after a crash.
    pub(super) fn allows(&self, view: &View, kill: bool) -> Result<(), String> {
        let sizes = if kill { &self.flushed } else { &self.confirmed };
        if !size_allowed(sizes, view.size) {
            return Err(format!("size {} is none of {sizes:?}", view.size));
        }
        for (at, value) in view.values.iter().enumerate() {
            let segment = &self.segments[at];
            let values = if kill { &segment.flushed } else { &segment.confirmed };
            let Some(value) = value else { continue };
            if !values.contains(value) {
                return Err(format!("{} at {}, not {}", name(*value), self.marks[at], names(values)));
            }
        }
        Ok(())
    }
}

/// Whether the file had this size, or grew past it and it is a chunk border.
fn size_allowed(sizes: &[u64], size: u64) -> bool {
    let between = |at: usize| sizes[..at].iter().any(|smaller| *smaller < size) && size < sizes[at];
    sizes.contains(&size) || size.is_multiple_of(layout::CHUNK) && (0..sizes.len()).any(between)
}

fn push<T: PartialEq>(all: &mut Vec<T>, new: T) {
    if all.last() != Some(&new) {
        all.push(new);
    }
}

pub(super) fn name(value: Value) -> String {
    match value {
        ZEROS => "zeros".into(),
        ABSENT => "nothing".into(),
        value => format!("write {value}"),
    }
}

fn names(values: &[Value]) -> String {
    let all: Vec<String> = values.iter().map(|value| name(*value)).collect();
    format!("[{}]", all.join(", "))
}
