//! Generates cases: random ones, and all short ones.

use super::{
    super::super::{Context, Durability},
    super::Rng,
    case::{Case, Crash, Fault, MANY, Op, Step},
    life::{self, Care},
    marks::Place,
};
use format::layout;
use std::sync::Arc;
use store::{Call, Failure};

pub(super) fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

pub(super) fn plain(op: Op) -> Step {
    Step { op, fault: None, crash: None }
}

/// A random case.
pub(super) fn random(seed: u64) -> Case {
    let rng = &mut Rng(seed);
    let durability = if rng.below(8) == 0 { Durability::Relaxed } else { Durability::Strict };
    let places = [
        Place::Small,
        Place::Small,
        Place::Small,
        Place::Odd,
        Place::Odd,
        Place::Inline,
        Place::Inline,
        Place::Page,
        Place::Page,
    ];
    let place = match rng.below(60) {
        0 => Place::Stream,
        1 => Place::Streams,
        _ => one_of(rng, &places),
    };
    let mut case = random_at(rng, durability, place);
    if !is_long(place) && rng.below(3) == 0 {
        let at = rng.below(case.steps.len() as u64 + 1) as usize;
        case.steps.splice(at..at, with_a_failed_cut(rng, place));
    }
    case
}

/// A random case for this place.
pub(super) fn random_at(rng: &mut Rng, durability: Durability, place: Place) -> Case {
    let marks = place.marks().len() - 1;
    let mut steps = Vec::new();
    if place == Place::Groups {
        steps.extend((0..marks).step_by(2).map(|at| plain(Op::Write(at, at + 1))));
        steps.push(plain(one_of(rng, &[Op::Flush, Op::Rest, Op::Rest])));
    } else if place == Place::Streams && rng.below(2) == 0 {
        steps.extend(stream_past_an_end(rng));
    } else if rng.below(4) > 0 {
        let first = one_of(rng, &[1, 2, marks / 2, marks]);
        steps.push(plain(if place == Place::Inline || place == Place::Page {
            one_of(
                rng,
                &[Op::Write(marks - 3, marks), Op::Write(4, 5), Op::Append(2), Op::Write(4, marks - 1)],
            )
        } else {
            Op::Append(first)
        }));
        steps.push(plain(one_of(rng, &[Op::Flush, Op::Sync, Op::Sync, Op::Rest, Op::Rest])));
    }
    let more = if is_long(place) { 2 + rng.below(4) } else { 3 + rng.below(9) };
    for _ in 0..more {
        let op = random_op(rng, marks, place);
        let fault = (rng.below(3) == 0 && fails(op)).then(|| random_fault(rng));
        let cut = [None, Some(rng.below(1 << 20))][rng.below(2) as usize];
        let crash = (rng.below(14) == 0).then(|| Crash { at: rng.below(24), cut });
        steps.push(Step { op, fault, crash });
    }
    Case { durability, place, steps }
}

/// A version that ends within a chunk, an operation on that chunk, and a stream that continues past it.
fn stream_past_an_end(rng: &mut Rng) -> [Step; 4] {
    let marks = Place::Streams.marks();
    let within: Vec<usize> =
        (0..marks.len()).filter(|at| !marks[*at].is_multiple_of(layout::CHUNK)).collect();
    let end = one_of(rng, &within);
    let stored = one_of(rng, &[Op::Flush, Op::Sync, Op::Rest]);
    let changed = one_of(rng, &[Op::Punch(end - 1, end), Op::Write(end - 1, end), Op::Nothing]);
    let behind = end + 1 + rng.below(70) as usize;
    let stream = Op::Write(behind.min(marks.len() - 2), marks.len() - 1);
    [Op::Append(end), stored, changed, stream].map(plain)
}

/// The steps towards a clean file, or a close. A truncation before one of the later steps usually fails,
/// perhaps after partial effects.
fn with_a_failed_cut(rng: &mut Rng, place: Place) -> Vec<Step> {
    let marks = place.marks().len() as u64 - 1;
    let (low, high) = (rng.below(marks / 2) as usize, (marks - 1 - rng.below(2)) as usize);
    // Data to truncate, and older slots to erase.
    let mut steps = vec![plain(Op::Write(high, high + 1)), plain(one_of(rng, &[Op::Rest, Op::Nothing]))];
    steps.extend([Op::Write(low, low + 1), Op::Write(high, high + 1)].map(plain));
    let ways: [&[Op]; 3] = [
        &[Op::RestFlush, Op::RestSettle, Op::RestFinish],
        &[Op::RestFlush, Op::RestSettle, Op::RestFinish, Op::Drop],
        &[Op::Nothing, Op::Close],
    ];
    let ways = one_of(rng, &ways);
    let failing = 1 + rng.below(ways.len() as u64 - 1) as usize;
    for (number, next) in ways.iter().enumerate() {
        if number == failing {
            let op = Op::Truncate(one_of(rng, &[low, low + 1, high]));
            let failure = one_of(rng, &[Failure::Landed(libc::EIO), Failure::Errno(libc::EIO)]);
            steps.push(Step { fault: Some(Fault { from: rng.below(8), times: 1, failure }), ..plain(op) });
        }
        steps.push(plain(*next));
    }
    steps
}

fn is_long(place: Place) -> bool {
    matches!(place, Place::Stream | Place::Streams)
}

fn fails(op: Op) -> bool {
    !matches!(op, Op::Drop | Op::Evict(_) | Op::Fill(_) | Op::Free | Op::Nothing)
}

fn random_op(rng: &mut Rng, marks: usize, place: Place) -> Op {
    let a = rng.below(marks as u64) as usize;
    let long = match place {
        Place::Stream | Place::Streams => 70,
        Place::Groups => 1,
        Place::Small | Place::Odd | Place::Inline | Place::Page => 4,
    };
    let b = (a + 1 + rng.below(long) as usize).min(marks);
    match rng.below(40) {
        0..=6 => Op::Write(a, b),
        7..=10 => Op::Append(1 + rng.below(long) as usize),
        11..=15 => Op::Truncate(one_of(rng, &[a, a, b, 0])),
        16..=18 => Op::Punch(a, b),
        19 => Op::Allocate(a, b, rng.below(2) == 0),
        20..=22 => Op::Flush,
        23 => Op::Close,
        24..=28 => Op::Sync,
        29..=30 => Op::Rest,
        31 => Op::RestFlush,
        32 => one_of(rng, &[Op::RestSync, Op::RestSettle, Op::RestSettle]),
        33 => Op::RestFinish,
        34 => Op::Read(a, b),
        35 => one_of(rng, &[Op::Seek(a, true), Op::Seek(a, false), Op::Salt]),
        36 => Op::Drop,
        37 => Op::Open,
        38 => one_of(rng, &[Op::Evict(a as u64), Op::Free]),
        _ => one_of(rng, &[Op::Fill(false), Op::Fill(true), Op::Free]),
    }
}

fn random_fault(rng: &mut Rng) -> Fault {
    let errno = one_of(rng, &[libc::EIO, libc::EIO, libc::ENOSPC, libc::EDQUOT]);
    let failure = match rng.below(10) {
        0..=3 => Failure::Errno(errno),
        4 => Failure::Partial(errno),
        5 => Failure::Torn(errno, 1 + rng.below(12) as usize),
        6..=7 => Failure::Landed(errno),
        _ => Failure::Lost(errno),
    };
    let most = one_of(rng, &[2, 4, 8, 16]);
    let from = rng.below(most);
    Fault { from, times: one_of(rng, &[1, 1, 1, 1, 1, 2, 3, MANY]), failure }
}

/// The parts of short cases: initial content, a failing operation, and what follows.
struct Alphabet {
    place: Place,
    bases: &'static [&'static str],
    failing: &'static [&'static str],
    next: &'static [&'static str],
    last: &'static [&'static str],
}

const SMALL: Alphabet = Alphabet {
    place: Place::Small,
    bases: &[
        "nothing",
        "append 1; rest",
        "append 6; rest",
        "append 6; sync",
        "append 4; sync; append 3; flush",
        "append 5; sync; truncate 2",
    ],
    failing: &[
        "append 2; sync",
        "append 3; flush",
        "write 0 1; sync",
        "write 1 4; flush",
        "write 0 1; append 1; close",
        "truncate 2",
        "truncate 3",
        "truncate 0",
        "truncate 9; sync",
        "punch 0 3; sync",
        "write 7 9; sync",
        "allocate 0 9",
        "rest",
        "write 2 3; rest",
        "append 1; write 0 1; data 0",
    ],
    next: &[
        "append 2",
        "write 0 1",
        "write 3 5",
        "write 8 9",
        "truncate 2",
        "truncate 4",
        "truncate 0",
        "truncate 9",
        "punch 0 3",
        "allocate 0 9",
        "flush",
        "close",
        "rest",
        "salt",
        "drop",
        "read 0 9",
    ],
    last: &["sync", "write 2 3; sync", "append 1; flush"],
};

const INLINE: Alphabet = Alphabet {
    place: Place::Inline,
    bases: &[
        "write 4 6; rest",
        "write 3 7; sync",
        "append 2; write 6 8; rest",
        "append 2; flush; truncate 0",
    ],
    failing: &[
        "write 5 7; sync",
        "truncate 5",
        "truncate 6; sync",
        "write 6 9; sync",
        "punch 3 7; sync",
        "rest",
    ],
    next: &[
        "append 1",
        "write 4 5",
        "write 7 8",
        "truncate 4",
        "truncate 9",
        "truncate 1",
        "punch 4 8",
        "flush",
        "drop",
    ],
    last: &["sync", "rest"],
};

const PAGE: Alphabet = Alphabet {
    place: Place::Page,
    bases: &[
        "write 5 7; rest",
        "write 4 8; sync",
        "append 1; write 2 3; write 7 9; rest",
        "write 4 9; sync; truncate 6",
    ],
    failing: INLINE.failing,
    next: INLINE.next,
    last: INLINE.last,
};

fn steps(text: &str) -> Vec<Step> {
    text.split("; ").map(|step| step.parse().unwrap_or_else(|e| panic!("{step}: {e}"))).collect()
}

/// All short cases: some content, an operation of which one call fails, another operation, and a last
/// one. Passes each to `take` with the first operation to check.
pub(super) fn short(contexts: &[Arc<Context>; 2], mut take: impl FnMut(Case, usize)) {
    for alphabet in [SMALL, INLINE, PAGE] {
        for (base, failing) in product(alphabet.bases, alphabet.failing) {
            let mut before = steps(base);
            before.extend(steps(failing));
            let case = Case { durability: Durability::Strict, place: alphabet.place, steps: before.clone() };
            let none = Care { instants: 0, cuts: 0, from: usize::MAX, depth: 0 };
            let asked = life::run(&case, contexts, 0, none).asked;
            for (from, call) in asked.into_iter().enumerate() {
                for failure in failures(call, from) {
                    let Some(step) = before.last_mut() else { continue };
                    step.fault = Some(Fault { from: from as u64, times: 1, failure });
                    for (next, last) in product(alphabet.next, alphabet.last) {
                        let mut all = before.clone();
                        all.extend(steps(next).into_iter().chain(steps(last)));
                        take(Case { steps: all, ..case.clone() }, before.len());
                    }
                }
            }
        }
    }
}

fn product<'a>(a: &'a [&'a str], b: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    a.iter().flat_map(|a| b.iter().map(|b| (*a, *b)))
}

/// The ways in which a call can fail.
fn failures(call: Call, at: usize) -> Vec<Failure> {
    let full = [libc::ENOSPC, libc::EDQUOT][at % 2];
    match call {
        Call::Read | Call::Len | Call::Time => vec![Failure::Errno(libc::EIO)],
        Call::Reserve => vec![Failure::Errno(full)],
        Call::Write => vec![
            Failure::Errno(full),
            Failure::Partial(full),
            Failure::Torn(libc::EIO, 1 + at % 3),
            Failure::Landed(libc::EIO),
        ],
        Call::SetLen | Call::Punch | Call::Attribute => {
            vec![Failure::Errno(libc::EIO), Failure::Landed(libc::EIO)]
        }
        Call::Sync => {
            vec![Failure::Errno(libc::EIO), Failure::Lost(libc::EIO), Failure::Landed(libc::EIO)]
        }
    }
}
