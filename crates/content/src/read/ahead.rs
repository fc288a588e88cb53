//! Read-ahead: recognises readers that proceed through a file in steps, and plans which chunks to open
//! before they ask.
//!
//! This module neither touches the store nor opens windows.

use super::window::Window;
use crate::{
    ahead_memory::ReadAheadMemory,
    chunk_range::chunks_of,
    rules::{Rule, holds},
};
use format::layout;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Maximum readers of one file that are tracked.
const STREAMS: usize = 16;
/// Initial bytes ahead of a reader. Doubled with every expected step.
const FIRST_REACH: u64 = 128 << 10;
/// Maximum bytes ahead of a reader.
const LAST_REACH: u64 = 8 << 20;
/// Maximum windows that cover `LAST_REACH`. With fewer threads to open them, windows and distance are
/// shorter, because long windows would leave the CPU caches between the store and the reader.
const WINDOWS_AHEAD: u64 = 8;
/// Bytes of a window per thread, and its maximum, which is what one batch opens.
const WINDOW_OF_THREAD: u64 = 256 << 10;
const WINDOW: u64 = 2 << 20;
/// Windows kept behind a reader's current one, because requests overtake one another.
const KEPT_BEHIND: u64 = 1;
/// Steps ahead of a reader that leaves gaps.
const STEPS: u64 = 8;
/// Shortest request with gaps that is worth a window. Opening a shorter one on demand costs less.
const GAP_REQUEST: u64 = 16 << 10;
/// Consecutive expected steps after which a reader has a pattern. With up to `STREAMS` tracked positions,
/// a random reader hits one by chance now and then, but rarely the next one, too.
const STEADY: u32 = 2;
/// A reader is considered stopped after this many requests by the file's other readers.
const STOPPED: u64 = 64;
/// A file that was not read for this long gives up its windows.
const IDLE: Duration = Duration::from_secs(2);

/// A reader that proceeds through the file in equal steps.
struct ReadStream {
    id: u64,
    /// Start of its last request.
    at: u64,
    end: u64,
    /// Distance from the previous request to the last one.
    step: i64,
    /// Number of expected steps. Starting at offset 0 counts as one.
    foreseen: u32,
    reach: u64,
    /// Edge of the next window: its start, or its end for a backward reader.
    edge: Option<u64>,
    used: u64,
}

impl ReadStream {
    /// Whether the reader is unlikely to make another request: it has reached the end of a file of `size`
    /// bytes (or its start, if it reads backward), or it has stopped while others continued. `requests`
    /// counts the requests of all readers.
    fn has_ended(&self, size: u64, requests: u64) -> bool {
        let at_end = self.end >= size || self.step < 0 && self.at == 0;
        self.used < requests && at_end || self.used + STOPPED < requests
    }
}

/// Result of recording a request.
#[derive(Default)]
pub(crate) struct FoundWindow {
    /// The windows that hold parts of it.
    pub(crate) windows: Vec<Arc<Window>>,
    /// New windows, to be opened in the background.
    pub(crate) begun: Vec<Arc<Window>>,
}

/// The readers of one file and the windows ahead of them.
pub(crate) struct Ahead {
    streams: Vec<ReadStream>,
    windows: Vec<Arc<Window>>,
    /// Id of the content from which the windows are opened.
    content: u64,
    requests: u64,
    last: u64,
    /// Whether the last reader that started at offset 0 continued.
    goes_on: bool,
    windows_begun: u64,
    used_at: Instant,
    /// The windows of all files, and the maximum bytes in them.
    all: Arc<ReadAheadMemory>,
    most: usize,
    /// Maximum bytes of a window.
    window: u64,
    /// Whether this file is counted in `all.files`.
    counts: bool,
}

impl Ahead {
    /// No readers yet. The windows of all files may use `most` bytes; `threads` open one window together.
    pub(crate) fn new(all: Arc<ReadAheadMemory>, most: usize, threads: usize) -> Self {
        Ahead {
            streams: Vec::new(),
            windows: Vec::new(),
            content: 0,
            requests: 0,
            last: 0,
            goes_on: true,
            windows_begun: 0,
            used_at: Instant::now(),
            all,
            most,
            window: WINDOW_OF_THREAD.saturating_mul(threads as u64).min(WINDOW),
            counts: false,
        }
    }

    /// Counts or uncounts this file as one with read-ahead.
    fn count(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.counts, counts), counts) {
            (false, true) => _ = self.all.files.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.all.files.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Maximum distance of windows ahead of a reader.
    fn last_reach(&self) -> u64 {
        LAST_REACH.min(WINDOWS_AHEAD * self.window)
    }

    /// Maximum distance that still leaves every file its share of the memory. About as much again is used
    /// by the reader's current window and those kept behind it.
    fn farthest(&self) -> u64 {
        let files = self.all.files().max(1);
        ((self.most / files / 2) as u64).min(self.last_reach()).max(FIRST_REACH)
    }

    /// Records a request for bytes of a file of `size` bytes with this content id.
    pub(crate) fn note(&mut self, bytes: Range<u64>, size: u64, content: u64) -> FoundWindow {
        if self.content != content && holds(Rule::SameContent) {
            self.windows.clear();
            self.streams.iter_mut().for_each(|s| (s.reach, s.edge) = (FIRST_REACH, None));
            self.content = content;
        }
        self.requests += 1;
        let steps = self.recognise(&bytes);
        self.last = bytes.start;
        let chunks = chunks_of(&bytes);
        let holds = |w: &&Arc<Window>| w.chunks.start < chunks.end && chunks.start < w.chunks.end;
        let windows: Vec<_> = self.windows.iter().filter(holds).cloned().collect();
        // Windows behind the reader make room for those ahead.
        if let Some(first) = windows.first() {
            let (stream, number) = (first.stream, first.number);
            self.windows.retain(|w| w.stream != stream || w.number + KEPT_BEHIND >= number);
        }
        self.drop_ended(size);
        let begun = steps.map_or_else(Vec::new, |number| self.plan(number, &bytes, size));
        self.used_at = Instant::now();
        FoundWindow { windows, begun }
    }

    /// Drops all windows and readers if the file is idle. Returns whether it is.
    pub(crate) fn end_if_idle(&mut self) -> bool {
        let idle = self.used_at.elapsed() >= IDLE;
        if idle {
            self.end();
        }
        idle
    }

    /// Drops all windows and readers: there are none any more.
    pub(crate) fn end(&mut self) {
        self.windows.clear();
        self.streams.clear();
        self.count(false);
    }

    /// Drops the windows of readers that ended, so that other readers, of this file or another, can use
    /// the memory.
    fn drop_ended(&mut self, size: u64) {
        let (windows, requests) = (&mut self.windows, self.requests);
        for stream in self.streams.iter_mut().filter(|s| s.edge.is_some() && s.has_ended(size, requests)) {
            (stream.reach, stream.edge) = (FIRST_REACH, None);
            windows.retain(|w| w.stream != stream.id);
        }
    }

    /// Index in `streams` of the reader whose next step this is, if it has a pattern.
    fn recognise(&mut self, bytes: &Range<u64>) -> Option<usize> {
        let steps_to = |s: &ReadStream| {
            bytes.start == s.end || s.step != 0 && s.at.checked_add_signed(s.step) == Some(bytes.start)
        };
        if let Some(number) = self.streams.iter().position(steps_to) {
            let stream = &mut self.streams[number];
            self.goes_on |= stream.at == 0;
            let step = if bytes.start == stream.end {
                (bytes.end - bytes.start) as i64
            } else {
                bytes.start.wrapping_sub(stream.at) as i64
            };
            if step.signum() != stream.step.signum() {
                stream.edge = None;
            }
            (stream.at, stream.end, stream.step) = (bytes.start, bytes.end, step);
            (stream.used, stream.foreseen) = (self.requests, stream.foreseen.saturating_add(1));
            if stream.foreseen < STEADY {
                return None;
            }
            stream.reach = (stream.reach * 2).max((bytes.end - bytes.start) * 2).min(LAST_REACH);
            return Some(number);
        }
        // Requests of one reader overtook one another.
        let near = |s: &&mut ReadStream| {
            s.foreseen >= STEADY && bytes.end > s.end.saturating_sub(s.reach) && bytes.start < s.end + s.reach
        };
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.used = self.requests;
            if bytes.end > stream.end {
                (stream.at, stream.end) = (bytes.start, bytes.end);
            }
            return None;
        }
        self.new_stream(bytes)
    }

    /// Starts tracking a reader. One that starts at offset 0 will most likely continue, unless the last
    /// such reader did not; then a header is probably being read repeatedly.
    fn new_stream(&mut self, bytes: &Range<u64>) -> Option<usize> {
        let returns = |s: &ReadStream| bytes.start == 0 && s.at == 0 && s.foreseen < STEADY;
        let same = self.streams.iter().position(returns);
        let full = self.streams.len() == STREAMS;
        let oldest = || (0..STREAMS).min_by_key(|n| self.streams[*n].used);
        if let Some(place) = same.or_else(|| if full { oldest() } else { None }) {
            let gone = self.streams.swap_remove(place);
            self.goes_on &= gone.at > 0 || gone.foreseen >= STEADY;
            self.windows.retain(|w| w.stream != gone.id);
        }
        self.streams.push(ReadStream {
            id: self.requests,
            at: bytes.start,
            end: bytes.end,
            step: if bytes.start == 0 {
                bytes.end as i64
            } else {
                bytes.start.wrapping_sub(self.last) as i64
            },
            foreseen: if bytes.start == 0 { STEADY - 1 } else { 0 },
            reach: FIRST_REACH,
            edge: None,
            used: self.requests,
        });
        (bytes.start == 0 && self.goes_on).then_some(self.streams.len() - 1)
    }

    /// Begins windows up to the distance of a stream.
    fn plan(&mut self, number: usize, bytes: &Range<u64>, size: u64) -> Vec<Arc<Window>> {
        self.count(true);
        let stream = &self.streams[number];
        let (id, step, len) = (stream.id, stream.step, bytes.end - bytes.start);
        let reach = stream.reach.min(self.farthest());
        let unit = len.next_multiple_of(layout::CHUNK);
        let width = (reach / 2).min(self.window).max(unit) / unit * unit;
        let mut begun = Vec::new();
        let mut edge;
        if step == len as i64 {
            let end = bytes.end.next_multiple_of(layout::CHUNK);
            edge = stream.edge.map_or(end, |edge| edge.max(end));
            while edge < size && edge + width <= bytes.end + reach.max(width) {
                if !self.begin(id, edge..(edge + width).min(size), &mut begun) {
                    break;
                }
                edge += width;
            }
        } else if step == -(len as i64) {
            let start = bytes.start / layout::CHUNK * layout::CHUNK;
            edge = stream.edge.map_or(start, |edge| edge.min(start));
            while edge > 0 && bytes.start - edge + width <= reach.max(width) {
                let from = edge.saturating_sub(width);
                if !self.begin(id, from..edge, &mut begun) {
                    break;
                }
                edge = from;
            }
        } else {
            return self.plan_steps(number, bytes, size);
        }
        self.streams[number].edge = Some(edge);
        begun
    }

    /// Begins a window for each of the next requests of a reader that leaves gaps.
    fn plan_steps(&mut self, number: usize, bytes: &Range<u64>, size: u64) -> Vec<Arc<Window>> {
        let (id, step) = (self.streams[number].id, self.streams[number].step);
        let (mut begun, len) = (Vec::new(), bytes.end - bytes.start);
        if len < GAP_REQUEST || step.unsigned_abs() < len {
            return begun;
        }
        let steps = (self.streams[number].reach / len).clamp(1, STEPS);
        let beyond = bytes.start as i64 + step * (steps as i64 + 1);
        let next = bytes.start as i64 + step;
        let planned = self.streams[number].edge.map(|edge| edge as i64);
        let mut edge = planned.filter(|edge| (edge - next).signum() == step.signum()).unwrap_or(next);
        while edge != beyond && edge >= 0 && (edge as u64) < size {
            if begun.len() as u64 > STEPS
                || !self.begin(id, edge as u64..(edge as u64 + len).min(size), &mut begun)
            {
                break;
            }
            edge += step;
        }
        self.streams[number].edge = u64::try_from(edge).ok();
        begun
    }

    /// Adds a window. Returns false if there is no memory for it.
    fn begin(&mut self, stream: u64, bytes: Range<u64>, begun: &mut Vec<Arc<Window>>) -> bool {
        let chunks = chunks_of(&bytes);
        let numbers = (stream, self.windows_begun + 1);
        let Some(window) = Window::new(&self.all, self.most, chunks, numbers) else { return false };
        self.windows_begun += 1;
        self.windows.push(window.clone());
        begun.push(window);
        true
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.count(false);
    }
}
