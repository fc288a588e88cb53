//! A sequence of operations with failures and crashes, and its text form.

use super::{
    super::super::Durability,
    marks::{PLACES, Place},
};
use std::{fmt, str::FromStr};
use store::Failure;

/// An operation of a program. Numbers are indices of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Write(usize, usize),
    /// Appends this many segments.
    Append(usize),
    Truncate(usize),
    Punch(usize, usize),
    /// Reserves space. Grows the file unless the flag is set.
    Allocate(usize, usize, bool),
    Read(usize, usize),
    Seek(usize, bool),
    Flush,
    Close,
    Sync,
    Rest,
    RestFlush,
    RestSync,
    RestSettle,
    RestFinish,
    Salt,
    /// Drops the open file. The next operation opens it again.
    Drop,
    /// Opens the file, so that failures affect only the opening.
    Open,
    /// Rereads data lost by a failed sync from the disk.
    Evict(u64),
    /// Fills the store; with `true`, overwrites fail, too.
    Fill(bool),
    Free,
    Nothing,
}

/// Failing calls during an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) from: u64,
    /// Number of failing calls. Those left when the operation ends do not fail, unless there are at least
    /// `MANY`.
    pub(super) times: u64,
    pub(super) failure: Failure,
}

/// With this many failing calls, the following operations are affected, too.
pub(super) const MANY: u64 = 1000;

/// A final crash at one of the operation's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crash {
    pub(super) at: u64,
    /// For a power cut, the seed that selects the resulting state; `None` for a kill.
    pub(super) cut: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) fault: Option<Fault>,
    pub(super) crash: Option<Crash>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) durability: Durability,
    pub(super) place: Place,
    pub(super) steps: Vec<Step>,
}

const ERRNOS: [(&str, i32); 3] = [("eio", libc::EIO), ("nospc", libc::ENOSPC), ("quota", libc::EDQUOT)];

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Op::Write(a, b) => write!(f, "write {a} {b}"),
            Op::Append(n) => write!(f, "append {n}"),
            Op::Truncate(a) => write!(f, "truncate {a}"),
            Op::Punch(a, b) => write!(f, "punch {a} {b}"),
            Op::Allocate(a, b, true) => write!(f, "keep {a} {b}"),
            Op::Allocate(a, b, false) => write!(f, "allocate {a} {b}"),
            Op::Read(a, b) => write!(f, "read {a} {b}"),
            Op::Seek(a, true) => write!(f, "data {a}"),
            Op::Seek(a, false) => write!(f, "hole {a}"),
            Op::Flush => f.write_str("flush"),
            Op::Close => f.write_str("close"),
            Op::Sync => f.write_str("sync"),
            Op::Rest => f.write_str("rest"),
            Op::RestFlush => f.write_str("rest-flush"),
            Op::RestSync => f.write_str("rest-sync"),
            Op::RestSettle => f.write_str("rest-settle"),
            Op::RestFinish => f.write_str("rest-finish"),
            Op::Salt => f.write_str("salt"),
            Op::Drop => f.write_str("drop"),
            Op::Open => f.write_str("open"),
            Op::Evict(seed) => write!(f, "evict {seed}"),
            Op::Fill(false) => f.write_str("fill"),
            Op::Fill(true) => f.write_str("fill-all"),
            Op::Free => f.write_str("free"),
            Op::Nothing => f.write_str("nothing"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.op)?;
        if let Some(Fault { from, times, failure }) = self.fault {
            let (errno, how) = match failure {
                Failure::Errno(errno) => (errno, String::new()),
                Failure::Partial(errno) => (errno, ":page".into()),
                Failure::Torn(errno, sectors) => (errno, format!(":sectors{sectors}")),
                Failure::Landed(errno) => (errno, ":landed".into()),
                Failure::Lost(errno) => (errno, ":lost".into()),
            };
            let name = ERRNOS.iter().find(|(_, number)| *number == errno).map_or("?", |(name, _)| name);
            write!(f, " !{from}x{times}:{name}{how}")?;
        }
        match self.crash {
            Some(Crash { at, cut: Some(seed) }) => write!(f, " @{at}:cut{seed}"),
            Some(Crash { at, cut: None }) => write!(f, " @{at}:kill"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let durability = if self.durability == Durability::Strict { "strict" } else { "relaxed" };
        let place = PLACES.iter().find(|(_, place)| *place == self.place).map_or("?", |(name, _)| name);
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        write!(f, "{durability} {place}: {}", steps.join("; "))
    }
}

fn number<T: FromStr>(text: Option<&str>) -> Result<T, String> {
    let text = text.ok_or("a number is missing")?;
    text.parse().map_err(|_| format!("no number: {text}"))
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let op = words.next().unwrap_or_default();
        let mut mark = || number::<usize>(words.next());
        Ok(match op {
            "write" => Op::Write(mark()?, mark()?),
            "append" => Op::Append(mark()?),
            "truncate" => Op::Truncate(mark()?),
            "punch" => Op::Punch(mark()?, mark()?),
            "keep" => Op::Allocate(mark()?, mark()?, true),
            "allocate" => Op::Allocate(mark()?, mark()?, false),
            "read" => Op::Read(mark()?, mark()?),
            "data" => Op::Seek(mark()?, true),
            "hole" => Op::Seek(mark()?, false),
            "flush" => Op::Flush,
            "close" => Op::Close,
            "sync" => Op::Sync,
            "rest" => Op::Rest,
            "rest-flush" => Op::RestFlush,
            "rest-sync" => Op::RestSync,
            "rest-settle" => Op::RestSettle,
            "rest-finish" => Op::RestFinish,
            "salt" => Op::Salt,
            "drop" => Op::Drop,
            "open" => Op::Open,
            "evict" => Op::Evict(mark()? as u64),
            "fill" => Op::Fill(false),
            "fill-all" => Op::Fill(true),
            "free" => Op::Free,
            "nothing" => Op::Nothing,
            other => return Err(format!("no operation: {other}")),
        })
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (from, times) = parts.next().and_then(|calls| calls.split_once('x')).ok_or("no calls")?;
        let errno = parts.next().and_then(|name| ERRNOS.iter().find(|(known, _)| *known == name));
        let (_, errno) = *errno.ok_or("no error")?;
        let failure = match parts.next() {
            None => Failure::Errno(errno),
            Some("page") => Failure::Partial(errno),
            Some("landed") => Failure::Landed(errno),
            Some("lost") => Failure::Lost(errno),
            Some(how) => Failure::Torn(errno, number(how.strip_prefix("sectors"))?),
        };
        Ok(Fault { from: number(Some(from))?, times: number(Some(times))?, failure })
    }
}

impl FromStr for Crash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, how) = text.split_once(':').ok_or("no crash")?;
        let cut = how.strip_prefix("cut").map(|seed| number(Some(seed))).transpose()?;
        Ok(Crash { at: number(Some(at))?, cut })
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = |mark| text.split_whitespace().find_map(move |word| word.strip_prefix(mark));
        let op = text.split(['!', '@']).next().unwrap_or_default();
        let (fault, crash): (Option<&str>, Option<&str>) = (word('!'), word('@'));
        Ok(Step {
            op: op.parse()?,
            fault: fault.map(str::parse).transpose()?,
            crash: crash.map(str::parse).transpose()?,
        })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, steps) = text.split_once(": ").ok_or("no steps")?;
        let (durability, place) = head.split_once(' ').ok_or("no place")?;
        let durability = if durability == "relaxed" { Durability::Relaxed } else { Durability::Strict };
        let place = PLACES.iter().find(|(name, _)| *name == place).ok_or("no place")?.1;
        let steps = steps.split("; ").map(str::parse).collect::<Result<_, _>>()?;
        Ok(Case { durability, place, steps })
    }
}
