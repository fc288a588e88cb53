//! `cat`: writes files of a vault to standard output.

use super::{open, side::Side};
use crate::cli::{
    args::CatArgs,
    exit::{Code, Failure, Outcome},
    signals::Interrupt,
    unprinted,
};
use content::Segment;
use fuse::Reach;
use rustix::io::Errno;
use std::{
    io::{self, Write},
    path::Path,
};
use vault::Kind;

/// Maximum number of zeros written at once for a hole.
const ZEROS: usize = 1 << 20;

/// Standard output, and the reason why writing ended.
struct CatWriter<'i> {
    interrupt: &'i Interrupt,
    zeros: Vec<u8>,
    /// Bytes of this file written so far.
    at: u64,
    end: Option<End>,
}

enum End {
    Unwritable(io::Error),
    Damaged(u64, String),
}

/// Runs `cat`.
///
/// # Errors
/// If the vault does not open, a file cannot be read or does not verify, or standard output fails.
pub fn run(args: &CatArgs) -> Outcome {
    let vault = open(&args.vault, &args.unlock, &mut Reach::default())?;
    let interrupt = Interrupt::watch()?;
    for path in &args.paths {
        let mut output = CatWriter { interrupt: &interrupt, zeros: vec![0; ZEROS], at: 0, end: None };
        let copied = print(&vault, path, &mut output);
        interrupt.check()?;
        match (output.end, copied) {
            (Some(End::Unwritable(e)), _) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            (Some(End::Unwritable(e)), _) => return Err(unprinted(&e)),
            (Some(End::Damaged(at, reason)), _) => return Err(damaged(path, at, &reason)),
            (None, Err(e)) => return Err(unreadable(path, &e)),
            (None, Ok(())) => {}
        }
    }
    Ok(())
}

fn print<S: Side>(side: &S, path: &Path, output: &mut CatWriter) -> io::Result<()> {
    let node = side.at(path)?.ok_or(Errno::NOENT)?;
    match side.stat(&node)?.kind {
        Kind::File => {}
        Kind::Dir => return Err(Errno::ISDIR.into()),
        _ => return Err(io::Error::other("not a regular file")),
    }
    let stat = side.each_segment(&node, &mut |segment| match segment {
        Segment::Data(at, bytes) => output.zeros_until(at).and_then(|()| output.write(bytes)),
        Segment::Damaged(range, reason) => {
            output.zeros_until(range.start)?;
            output.end = Some(End::Damaged(range.start, reason));
            Err(io::ErrorKind::InvalidData.into())
        }
    })?;
    output.zeros_until(stat.size)
}

impl CatWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.interrupt.check().is_err() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        self.at += bytes.len() as u64;
        written.map_err(|e| {
            let kind = e.kind();
            self.end = Some(End::Unwritable(e));
            kind.into()
        })
    }

    fn zeros_until(&mut self, end: u64) -> io::Result<()> {
        let zeros = std::mem::take(&mut self.zeros);
        while self.at < end {
            let len = (end - self.at).min(ZEROS as u64) as usize;
            self.write(&zeros[..len])?;
        }
        self.zeros = zeros;
        Ok(())
    }
}

fn damaged(path: &Path, at: u64, reason: &str) -> Failure {
    Failure::new(
        Code::Unreadable,
        format!("{path:?} cannot be read from byte {at} on: {reason}"),
        "What comes before it is printed. `warpcrypt export` copies everything that can be read.",
    )
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => Code::Failed,
        _ => Code::Unreadable,
    };
    Failure::plain(code, format!("{path:?}: {error}"))
}
