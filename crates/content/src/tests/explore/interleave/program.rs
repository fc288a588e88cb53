//! Random programs of several threads on one file.

use super::super::{
    super::super::Durability,
    super::Rng,
    case::{Fault, Op},
    draw::one_of,
    marks::Place,
};
use std::fmt;
use store::Failure;

/// An action of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Op(Op),
    /// Reads segments one after the other, as a program with read-ahead does.
    Through(usize, usize),
    /// Reads segments in one call.
    Long(usize, usize),
    /// Writes single segments: the first one, the distance between them, and their number.
    Scattered(usize, usize, usize),
    /// Small reads together.
    Several(usize, usize),
    /// Cleans the file as one of many, with the other threads' actions between the steps.
    Clean,
    /// The flusher's action for readers that stopped.
    RestReaders,
}

pub(super) struct Program {
    pub(super) durability: Durability,
    pub(super) place: Place,
    /// Performed first, by a single thread.
    pub(super) before: Vec<Op>,
    pub(super) threads: Vec<Vec<Act>>,
    pub(super) fault: Option<Fault>,
    /// The fault affects a sync, rather than any call.
    pub(super) of_sync: bool,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let of = if self.of_sync { "syncs" } else { "calls" };
        writeln!(f, "{:?} {:?}: {:?}", self.durability, self.place, self.before)?;
        writeln!(f, "  failing {of}: {:?}", self.fault)?;
        self.threads.iter().try_for_each(|acts| writeln!(f, "  {acts:?}"))
    }
}

impl Program {
    pub(super) fn random(seed: u64) -> Program {
        let rng = &mut Rng(seed);
        if seed % 12 == 11 {
            return cleaned_in_flight(rng);
        }
        let durability = one_of(rng, &[Durability::Strict, Durability::Strict, Durability::Relaxed]);
        let place = one_of(
            rng,
            &[Place::Small, Place::Small, Place::Inline, Place::Page, Place::Streams, Place::Streams],
        );
        let last = place.marks().len() - 1;
        let content = match place {
            Place::Streams => Op::Write(0, one_of(rng, &[20, 64, last])),
            Place::Inline | Place::Page => one_of(rng, &[Op::Write(last - 3, last), Op::Write(4, last - 1)]),
            _ => Op::Write(0, 1 + rng.below(last as u64) as usize),
        };
        let mut before = Vec::new();
        if rng.below(6) > 0 {
            before.push(content);
            before.push(one_of(rng, &[Op::Flush, Op::Sync, Op::Rest, Op::Rest, Op::Drop]));
        }
        let threads = 2 + rng.below(3);
        let acts = |number| match place {
            Place::Streams if number == 0 => stream(rng, last),
            Place::Streams => beside_a_stream(rng, last),
            _ => acts(rng, last),
        };
        let threads = (0..threads).map(acts).collect();
        let fault = (rng.below(3) == 0).then(|| {
            let errno = one_of(rng, &[libc::EIO, libc::ENOSPC]);
            let failure = one_of(rng, &[Failure::Errno(errno), Failure::Landed(errno)]);
            let from = rng.below(40);
            Fault { from: rng.below(from + 1), times: 1 + rng.below(3), failure }
        });
        let of_sync = seed % 4 == 3;
        let fault = if of_sync { Some(failing_sync(rng, 6)) } else { fault };
        Program { durability, place, before, threads, fault, of_sync }
    }
}

/// One of the first syncs fails while other threads are working.
fn failing_sync(rng: &mut Rng, first: u64) -> Fault {
    let lost = Failure::Lost(libc::EIO);
    let failure = one_of(rng, &[lost, lost, Failure::Errno(libc::EIO), Failure::Landed(libc::EIO)]);
    Fault { from: rng.below(first), times: 1, failure }
}

/// Durable data is overwritten, in flight, while the file is cleaned and a sync of that fails.
fn cleaned_in_flight(rng: &mut Rng) -> Program {
    let place = Place::Streams;
    let last = place.marks().len() - 1;
    let (through, scattered) = (Act::Op(Op::Write(0, 64 + rng.below(20) as usize)), scattered(rng, 0));
    let writer = one_of(rng, &[through, through, scattered]);
    Program {
        durability: Durability::Strict,
        place,
        before: vec![Op::Write(0, last), one_of(rng, &[Op::Sync, Op::Sync, Op::Rest])],
        threads: vec![vec![writer], vec![Act::Clean; 1 + rng.below(2) as usize]],
        fault: Some(failing_sync(rng, 3)),
        of_sync: true,
    }
}

fn scattered(rng: &mut Rng, from: usize) -> Act {
    Act::Scattered(from, 2 + rng.below(3) as usize, 10 + rng.below(20) as usize)
}

/// The actions of one thread, which reads, writes, or cleans the file.
fn acts(rng: &mut Rng, last: usize) -> Vec<Act> {
    let (role, many) = (rng.below(6), 1 + rng.below(4));
    let mut at = rng.below(last as u64) as usize;
    let mut act = || {
        let a = if rng.below(3) == 0 { rng.below(last as u64) as usize } else { at };
        let b = (a + 1 + rng.below(4) as usize).min(last);
        at = b % last;
        match role {
            0 | 1 => read(rng, a, b, last),
            2 => keep(rng),
            _ => one_of(
                rng,
                &[
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Truncate(a)),
                    Act::Op(Op::Truncate(b)),
                    Act::Op(Op::Punch(a, b)),
                    Act::Op(Op::Allocate(a, b, false)),
                    Act::Op(Op::Sync),
                    Act::Op(Op::Flush),
                    Act::Op(Op::Seek(a, true)),
                    Act::Through(a, b),
                ],
            ),
        }
    };
    (0..many).map(|_| act()).collect()
}

fn read(rng: &mut Rng, a: usize, b: usize, last: usize) -> Act {
    one_of(rng, &[Act::Op(Op::Read(a, b)), Act::Through(a, b), Act::Several(a, b), Act::Through(0, last)])
}

fn keep(rng: &mut Rng) -> Act {
    let ops = [Op::Sync, Op::Rest, Op::Rest, Op::Close, Op::Flush].map(Act::Op);
    if rng.below(6) == 0 { Act::RestReaders } else { one_of(rng, &ops) }
}

/// A thread that writes many consecutive chunks, from the beginning or near an extent border.
fn stream(rng: &mut Rng, last: usize) -> Vec<Act> {
    let mut at = one_of(rng, &[0, 0, 0, 62, 66]);
    let mut acts = Vec::new();
    for _ in 0..2 + rng.below(3) {
        let end = (at + 20 + rng.below(50) as usize).min(last);
        acts.push(Act::Op(Op::Write(at, end)));
        at = if end == last { 0 } else { end };
    }
    acts
}

/// A thread that uses the same chunks in scattered places.
fn beside_a_stream(rng: &mut Rng, last: usize) -> Vec<Act> {
    let role = rng.below(5);
    let many = 1 + rng.below(5);
    let mut act = || {
        // Most are in the first extent, or near its end.
        let near = one_of(rng, &[0, 3, 4, 60, 61, 62, 66, 67, 68]);
        let a = if rng.below(3) == 0 { rng.below(last as u64) as usize } else { near };
        let b = (a + 1 + rng.below(2) as usize).min(last);
        let long = (a + 10 + rng.below(40) as usize).min(last);
        let far = rng.below(2) == 0;
        match role {
            0 => one_of(
                rng,
                &[Act::Op(Op::Read(a, b)), Act::Through(0, last), Act::Long(a, long), Act::Long(a, long)],
            ),
            1 => keep(rng),
            2 => scattered(rng, a % 20),
            _ => one_of(
                rng,
                &[
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Write(a, b)),
                    Act::Op(Op::Read(a, b)),
                    Act::Op(Op::Punch(a, b)),
                    Act::Op(Op::Truncate(if far { a } else { last })),
                    Act::Op(Op::Sync),
                ],
            ),
        }
    };
    (0..many).map(|_| act()).collect()
}
