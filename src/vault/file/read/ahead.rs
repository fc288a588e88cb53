//! Read-ahead: which readers of a file go through it in steps, and what is opened before they ask for it.
//!
//! Nothing here touches the store, nor opens a window.

use super::window::{ReadAheadMemory, Window};
use crate::{
    format::layout,
    vault::file::{
        chunk_range::chunks_of,
        rules::{Rule, holds},
    },
};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Readers of one file that are told apart.
const STREAMS: usize = 16;
/// Bytes ahead of a reader to begin with; doubled with every step that was foreseen.
const FIRST_REACH: u64 = 128 << 10;
/// Bytes ahead of a reader at most.
const LAST_REACH: u64 = 8 << 20;
/// Windows that these are made of at most. With fewer threads to open them, windows and reach are shorter: long ones
/// would leave the processor's caches between the store and the reader.
const WINDOWS_AHEAD: u64 = 8;
/// Bytes of a window for each thread, and at most: what one batch opens.
const WINDOW_OF_THREAD: u64 = 256 << 10;
const WINDOW: u64 = 2 << 20;
/// Windows behind a reader's present one that stay: requests overtake one another.
const KEPT_BEHIND: u64 = 1;
/// Steps ahead of a reader that leaves gaps.
const STEPS: u64 = 8;
/// Shortest request with gaps worth a window of its own: below, opening it at once costs less.
const GAP_REQUEST: u64 = 16 << 10;
/// Steps in a row that make a reader one with a pattern: of the places where one of `STREAMS` readers would go on, a
/// reader of random places hits one by chance every now and then, but hardly the next one too.
const STEADY: u32 = 2;
/// Requests of a file's other readers after which one that made none has stopped.
const STOPPED: u64 = 64;
/// A file that nobody read from for so long gives up its windows.
const IDLE: Duration = Duration::from_secs(2);

/// A reader that goes through the file in equal steps.
struct Stream {
    id: u64,
    /// Its last request.
    at: u64,
    end: u64,
    /// From the request before that to it.
    step: i64,
    /// How often it has gone on as expected; to begin at the beginning counts as once.
    foreseen: u32,
    reach: u64,
    /// Where the next window is due: its start, or its end for a reader that goes backward.
    edge: Option<u64>,
    used: u64,
}

impl Stream {
    /// Whether it will hardly make another request of a file of `size` bytes: it came to the end of its way, or has made
    /// none while the others went on. `requests` counts those of all.
    fn has_ended(&self, size: u64, requests: u64) -> bool {
        let at_end = self.end >= size || self.step < 0 && self.at == 0;
        self.used < requests && at_end || self.used + STOPPED < requests
    }
}

/// What a request leads to.
#[derive(Default)]
pub(in crate::vault::file) struct Found {
    /// The windows that hold parts of it.
    pub(in crate::vault::file) windows: Vec<Arc<Window>>,
    /// New windows, to be opened in the background.
    pub(in crate::vault::file) begun: Vec<Arc<Window>>,
}

/// The readers of one file and the windows ahead of them.
pub(in crate::vault::file) struct Ahead {
    streams: Vec<Stream>,
    windows: Vec<Arc<Window>>,
    /// Which content the windows are of.
    content: u64,
    requests: u64,
    last: u64,
    /// Whether who reads the beginning goes on, as far as was seen last.
    goes_on: bool,
    windows_begun: u64,
    used_at: Instant,
    /// The windows of all files, and how many bytes may be in them.
    all: Arc<ReadAheadMemory>,
    most: usize,
    /// Bytes of a window at most.
    window: u64,
    /// Whether this file is one of those.
    counts: bool,
}

impl Ahead {
    /// No readers yet. In the windows of all files there may be `most` bytes; `threads` open one together.
    pub(in crate::vault::file) fn new(all: Arc<ReadAheadMemory>, most: usize, threads: usize) -> Self {
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

    /// Notes whether this is one of the files that are read so.
    fn count(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.counts, counts), counts) {
            (false, true) => _ = self.all.files.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.all.files.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// How far ahead of a reader windows may be.
    fn last_reach(&self) -> u64 {
        LAST_REACH.min(WINDOWS_AHEAD * self.window)
    }

    /// How far they may be so that every file gets its share: about as much again is in the
    /// window that the reader is in and in those that are kept behind it.
    fn farthest(&self) -> u64 {
        let files = self.all.files().max(1);
        ((self.most / files / 2) as u64).min(self.last_reach()).max(FIRST_REACH)
    }

    /// Notes a request for bytes of a file of `size` bytes and this content.
    pub(in crate::vault::file) fn note(&mut self, bytes: Range<u64>, size: u64, content: u64) -> Found {
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
        // What is behind makes room for what is ahead.
        if let Some(first) = windows.first() {
            let (stream, number) = (first.stream, first.number);
            self.windows.retain(|w| w.stream != stream || w.number + KEPT_BEHIND >= number);
        }
        self.drop_ended(size);
        let begun = steps.map_or_else(Vec::new, |number| self.plan(number, &bytes, size));
        self.used_at = Instant::now();
        Found { windows, begun }
    }

    /// Gives up what was opened for readers if all of them stopped reading. Returns whether they did.
    pub(in crate::vault::file) fn end_if_idle(&mut self) -> bool {
        let idle = self.used_at.elapsed() >= IDLE;
        if idle {
            self.end();
        }
        idle
    }

    /// Gives up what was opened for readers: there are none any more.
    pub(in crate::vault::file) fn end(&mut self) {
        self.windows.clear();
        self.streams.clear();
        self.count(false);
    }

    /// The same for those readers that ended, so that the others, of this file or another, have the memory.
    fn drop_ended(&mut self, size: u64) {
        let (windows, requests) = (&mut self.windows, self.requests);
        for stream in self.streams.iter_mut().filter(|s| s.edge.is_some() && s.has_ended(size, requests)) {
            (stream.reach, stream.edge) = (FIRST_REACH, None);
            windows.retain(|w| w.stream != stream.id);
        }
    }

    /// The place in `streams` of the reader whose next step this is, if it has a pattern.
    fn recognise(&mut self, bytes: &Range<u64>) -> Option<usize> {
        let steps_to = |s: &Stream| {
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
        // Requests of one reader that overtook one another.
        let near = |s: &&mut Stream| {
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

    /// Remembers a reader. One that starts at the beginning will most likely go on, unless the last one that
    /// did has not: it is a header that is read there, time and again.
    fn new_stream(&mut self, bytes: &Range<u64>) -> Option<usize> {
        let returns = |s: &Stream| bytes.start == 0 && s.at == 0 && s.foreseen < STEADY;
        let same = self.streams.iter().position(returns);
        let full = self.streams.len() == STREAMS;
        let oldest = || (0..STREAMS).min_by_key(|n| self.streams[*n].used);
        if let Some(place) = same.or_else(|| if full { oldest() } else { None }) {
            let gone = self.streams.swap_remove(place);
            self.goes_on &= gone.at > 0 || gone.foreseen >= STEADY;
            self.windows.retain(|w| w.stream != gone.id);
        }
        self.streams.push(Stream {
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

    /// Windows up to the reach of a stream.
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

    /// A window for each of the next requests of a reader that leaves gaps.
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

    /// Adds a window, unless that would be more memory than there is.
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
