//! `hash`: computes digests of files and folders and compares them with lists of known hashes.

mod append;
pub mod matching;
mod modes;
mod names;
mod output;
pub mod place;

use super::{
    args::{EngineArg, HashArgs},
    exit::{Code, Failure, Outcome},
    log, rights,
    signals::Interrupt,
    unlocking, vaults,
};
use append::Append;
use crypto::hash::Function;
use fuse::Reach;
use hashing::{Known, Plain, Source, Vaulted, gpu::HashGpu, list};
use modes::Mode;
use names::Naming;
use output::Output;
use std::{fs, io, path::PathBuf};

/// Runs `hash`.
///
/// # Errors
/// If an audit fails, files cannot be read, or the arguments are incompatible.
pub fn run(args: &HashArgs) -> Outcome {
    let interrupt = Interrupt::watch()?;
    let lists = read_lists(&args.known, args.append)?;
    let functions = functions(args, &lists)?;
    if args.sum && functions.len() > 1 {
        let advice = "Name one with -c, or leave out --sum.";
        return Err(Failure::new(Code::Usage, "a line in the format of sha3sum has only one digest", advice));
    }
    log::to_standard_error();
    let gpu = gpu(args.engine, &functions, place::threads(&args.place))?;
    let mut known = Known::default();
    for (path, content) in args.known.iter().zip(&lists).filter(|(_, content)| !content.is_empty()) {
        let files = list::parse(content, &functions);
        known.add(files.map_err(|e| Failure::plain(Code::Usage, format!("{}: {e}", path.display())))?);
    }
    let naming = Naming::new(args.bare, args.relative)?;
    let output = Output::new(args, functions.clone(), naming);
    let append = match (&args.known[..], &lists[..]) {
        ([path, ..], [content, ..]) if args.append => Some(Append::new(path, content, &functions)?),
        _ => None,
    };
    let mode = Mode::new(args, known, output, append);
    match &args.place.vault {
        None => {
            let roots = naming.roots(&args.place.paths);
            all(&Plain::default(), &roots, args, &functions, gpu.as_ref(), mode, &interrupt)
        }
        Some(vault) => {
            let mut reach = Reach::default();
            for list in args.known.iter().filter(|_| args.append) {
                match rights::opened(list) {
                    Some(list) => reach.files.push(list),
                    None => rights::add_place(&mut reach, list),
                }
            }
            // Do not confine this process if it may use a GPU: the driver needs more rights.
            let reach = gpu.is_none().then_some(&mut reach);
            let source = Vaulted(unlocking::open(vault, &args.place.unlock, reach)?);
            let roots = naming.vault_roots(&args.place.paths);
            all(&source, &roots, args, &functions, gpu.as_ref(), mode, &interrupt)
        }
    }
}

/// The GPU to use in addition to the CPU, or instead of it.
fn gpu(engine: EngineArg, functions: &[Function], threads: usize) -> Outcome<Option<HashGpu>> {
    let takes = functions.iter().any(HashGpu::takes);
    match engine {
        EngineArg::Cpu => Ok(None),
        EngineArg::Auto => Ok(takes.then(|| HashGpu::later(threads))),
        EngineArg::Gpu if takes => HashGpu::open(threads).map(Some).map_err(vaults::no_gpu),
        EngineArg::Gpu => Err(Failure::new(
            Code::Usage,
            "a GPU cannot hash any of these functions",
            "It can hash md6-N: -c md6-256.",
        )),
    }
}

/// The functions to compute: those of `-c`, otherwise those of the lists, otherwise the default.
fn functions(args: &HashArgs, lists: &[Vec<u8>]) -> Outcome<Vec<Function>> {
    let mut functions = args.compute.clone();
    if functions.is_empty() {
        functions = lists.iter().find_map(|list| list::functions_of(list)).unwrap_or_default();
    }
    let mut seen = Vec::new();
    for function in functions {
        if !seen.contains(&function) {
            seen.push(function);
        }
    }
    if seen.is_empty() {
        seen.push(Function::Sha3(256));
    }
    Ok(seen)
}

/// Reads the lists. With `append`, a missing list reads as empty.
fn read_lists(paths: &[PathBuf], append: bool) -> Outcome<Vec<Vec<u8>>> {
    let read = |path: &PathBuf| match fs::read(path) {
        Err(e) if append && e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|e| Failure::io(format!("list of known hashes {}", path.display()), &e)),
    };
    paths.iter().map(read).collect()
}

/// Hashes all files and passes the results to `mode`.
fn all<S: Source>(
    source: &S,
    roots: &[PathBuf],
    args: &HashArgs,
    functions: &[Function],
    gpu: Option<&HashGpu>,
    mut mode: Mode,
    interrupt: &Interrupt,
) -> Outcome {
    let progress = hashing::Progress::default();
    let options = hashing::Options {
        threads: place::threads(&args.place),
        stop: interrupt.flag(),
        progress: &progress,
        gpu,
    };
    mode.begin();
    place::with_progress(source, roots, &options, mode.prints_as_it_goes(), |progress| {
        hashing::run(source, roots, functions, &options, |record| {
            mode.take(record, progress);
            if mode.is_closed() {
                interrupt.raise();
            }
        });
    });
    if mode.is_closed() {
        return mode.check_output();
    }
    interrupt.check()?;
    mode.finish(source.left_out())
}
