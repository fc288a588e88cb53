//! Shared by `hash` and `match`: the number of threads, and the progress bar.

use crate::cli::{
    args::PlaceArgs,
    progress::{Spinner, Totals},
};
use hashing::{Options, Source};
use std::{
    io::IsTerminal,
    num::NonZero,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Refresh interval of the progress bar.
const TICK: Duration = Duration::from_millis(100);

/// The number of threads: as requested, otherwise one per processor.
pub fn threads(args: &PlaceArgs) -> usize {
    args.threads.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}

/// Runs `work` with a progress bar if standard error is a terminal, unless `work` prints to a terminal
/// too. Counts the files first, so that the totals are exact.
pub fn with_progress<S: Source>(
    source: &S,
    roots: &[PathBuf],
    options: &Options,
    prints: bool,
    work: impl FnOnce(&Totals),
) {
    if !std::io::stderr().is_terminal() || prints && std::io::stdout().is_terminal() {
        return work(&Totals::hidden());
    }
    let progress = {
        let _spinner = Spinner::start("counting files");
        Totals::start(hashing::count(source, roots, options.stop))
    };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let done = options.progress;
                progress.show(done.files.load(Ordering::Relaxed), done.bytes.load(Ordering::Relaxed));
                thread::sleep(TICK);
            }
        });
        work(&progress);
        ended.store(true, Ordering::Relaxed);
    });
}
