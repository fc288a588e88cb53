//! Progress display on a terminal. Draws nothing elsewhere.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A spinner with a text, cleared on drop. Draws nothing if standard error is not a terminal.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Starts the spinner.
    pub fn start(text: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(text);
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A progress bar over `total` bytes.
pub fn bytes_bar(text: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(text);
    if let Ok(style) =
        ProgressStyle::with_template("{msg:10} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// The fixed cost of a file, in bytes of content. Without it, the estimate for many small files would be
/// far too long at first, and the estimate for a large file after them too short.
const FILE_COST: u64 = 64 << 10;

/// A progress bar over a number of files and their bytes.
pub struct Totals {
    bar: ProgressBar,
    files: AtomicU64,
    bytes: AtomicU64,
    all: Option<(u64, u64)>,
}

impl Totals {
    /// A bar with these totals of files and bytes.
    pub fn start((files, bytes): (u64, u64)) -> Self {
        let bar = ProgressBar::new(work(files, bytes));
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg} {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        Totals::over(bar, Some((files, bytes)))
    }

    /// Counts without drawing anything.
    pub fn hidden() -> Self {
        Totals::over(ProgressBar::hidden(), None)
    }

    /// A spinner, for work of unknown size.
    pub fn unknown() -> Self {
        Totals::over(ProgressBar::new_spinner(), None)
    }

    fn over(bar: ProgressBar, all: Option<(u64, u64)>) -> Self {
        Totals { bar, files: AtomicU64::new(0), bytes: AtomicU64::new(0), all }
    }

    /// Adds completed work.
    pub fn add(&self, files: u64, bytes: u64) {
        let files = self.files.fetch_add(files, Ordering::Relaxed) + files;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.show(files, bytes);
    }

    /// Shows counts that are kept elsewhere.
    pub fn show(&self, files: u64, bytes: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(work(files, bytes));
        self.bar.set_message(match self.all {
            Some(all) => format!("{}/{}, {files}/{} files,", HumanBytes(bytes), HumanBytes(all.1), all.0),
            None => format!("{}, {}", counted(files, "file"), HumanBytes(bytes)),
        });
    }

    /// Shows activity without changing the counts.
    pub fn tick(&self) {
        self.bar.tick();
    }

    /// Removes the bar from the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints a line to standard error, above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Totals {
    fn drop(&mut self) {
        self.clear();
    }
}

fn work(files: u64, bytes: u64) -> u64 {
    files.saturating_mul(FILE_COST).saturating_add(bytes)
}

/// A number with its noun: "1 file", "2 files".
pub fn counted(number: u64, one: &str) -> String {
    match (number, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{} {stem}ies", HumanCount(number)),
        (_, None) => format!("{} {one}s", HumanCount(number)),
    }
}

/// Work shorter than this shows no progress.
const LATE: Duration = Duration::from_secs(2);

/// Counts of bytes and files, shown once the work takes longer than `LATE`. Cleared on drop.
pub struct Late {
    bar: ProgressBar,
    start: Instant,
    files: u64,
}

impl Late {
    /// Starts counting.
    pub fn start() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {msg}") {
            bar.set_style(style);
        }
        Late { bar, start: Instant::now(), files: 0 }
    }

    /// Counts bytes.
    pub fn bytes(&self, bytes: u64) {
        if self.bar.is_hidden() && self.start.elapsed() >= LATE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }

    /// Counts a file.
    pub fn file(&mut self) {
        self.files += 1;
        self.bar.set_message(counted(self.files, "file"));
        self.bytes(0);
    }

    /// Prints a line to standard error, above the counts.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(counted(12_345, "directory"), "12,345 directories");
    }
}
