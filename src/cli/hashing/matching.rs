//! `match`: finds files that share content.

use super::{names::Naming, place};
use crate::cli::{
    args::{MatchArgs, PiecesArg},
    exit::{Code, Failure, Outcome},
    json, log, print, print_bytes,
    signals::Interrupt,
    unlocking,
};
use fuse::Reach;
use hashing::{
    Plain, Source, Vaulted,
    pieces::{self, Cut, CutFile, Matches},
};
use serde_json::{Value, json};
use std::{io, os::unix::ffi::OsStrExt, path::PathBuf};

/// Runs `match`.
///
/// # Errors
/// If files cannot be read.
pub fn run(args: &MatchArgs) -> Outcome {
    let interrupt = Interrupt::watch()?;
    log::to_standard_error();
    let naming = Naming::new(args.bare, args.relative)?;
    match &args.place.vault {
        None => find(&Plain::default(), &naming.roots(&args.place.paths), naming, args, &interrupt),
        Some(vault) => {
            let source = Vaulted(unlocking::open(vault, &args.place.unlock, Some(&mut Reach::default()))?);
            find(&source, &naming.vault_roots(&args.place.paths), naming, args, &interrupt)
        }
    }
}

fn find<S: Source>(
    source: &S,
    roots: &[PathBuf],
    naming: Naming,
    args: &MatchArgs,
    interrupt: &Interrupt,
) -> Outcome {
    let cut = match args.pieces {
        PiecesArg::Content => Cut::Content(args.size),
        PiecesArg::Fixed => Cut::Fixed(args.size),
    };
    let progress = hashing::Progress::default();
    let threads = place::threads(&args.place);
    let options = hashing::Options { threads, stop: interrupt.flag(), progress: &progress, gpu: None };
    let mut matches = Matches::default();
    place::with_progress(source, roots, &options, false, |_| {
        matches = pieces::find(source, roots, cut, &options);
    });
    interrupt.check()?;
    matches.overlaps.retain(|overlap| overlap.bytes >= args.least);
    if args.json {
        print(&json::document("match", as_json(&matches, naming)))?;
    } else {
        print_bytes(&as_lines(&matches, naming))?;
    }
    if !args.silent {
        for (path, e) in &matches.failed {
            eprintln!("warpcrypt: {}: {e}", path.display());
        }
    }
    match matches.failed.len() + source.left_out() {
        0 => Ok(()),
        n => Err(Failure::plain(Code::Unreadable, format!("{n} could not be read; the rest is done"))),
    }
}

/// A file's share of `bytes`, in percent of its size.
fn percent(bytes: u64, file: &CutFile) -> f64 {
    100.0 * bytes as f64 / file.size.max(1) as f64
}

fn as_lines(matches: &Matches, naming: Naming) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut put = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| lines.extend_from_slice(part));
        lines.push(b'\n');
    };
    let name = |number: usize| naming.shown(&matches.files[number].path).as_os_str().as_bytes();
    for group in &matches.identical {
        put(&[b"identical:"]);
        group.iter().for_each(|number| put(&[b"  ", name(*number)]));
    }
    for overlap in &matches.overlaps {
        let share = |number: usize| percent(overlap.bytes, &matches.files[number]);
        let numbers = format!("{}\t{:.1}\t{:.1}\t", overlap.bytes, share(overlap.a), share(overlap.b));
        put(&[numbers.as_bytes(), name(overlap.a), b"\t", name(overlap.b)]);
    }
    if matches.common > 0 {
        let common = format!("{} pieces are in more than 256 files and left out", matches.common);
        put(&[common.as_bytes()]);
    }
    lines
}

fn as_json(matches: &Matches, naming: Naming) -> Value {
    let file = |number: usize| {
        let file = &matches.files[number];
        let mut object = json::path(naming.shown(&file.path));
        object.insert("size".into(), json!(file.size));
        Value::from(object)
    };
    let failed = |(path, e): &(PathBuf, io::Error)| {
        let mut object = json::path(naming.shown(path));
        object.insert("error".into(), json!(e.to_string()));
        Value::from(object)
    };
    let groups = matches.identical.iter().map(|group| group.iter().copied().map(file).collect::<Vec<_>>());
    let overlaps = matches.overlaps.iter().map(|overlap| {
        let share = |number: usize| percent(overlap.bytes, &matches.files[number]) / 100.0;
        json!({
            "bytes": overlap.bytes,
            "a": file(overlap.a), "share_of_a": share(overlap.a),
            "b": file(overlap.b), "share_of_b": share(overlap.b),
        })
    });
    json!({
        "files": matches.files.len(),
        "identical": groups.collect::<Vec<_>>(),
        "overlaps": overlaps.collect::<Vec<_>>(),
        "common_pieces_left_out": matches.common,
        "failed": matches.failed.iter().map(failed).collect::<Vec<_>>(),
    })
}
