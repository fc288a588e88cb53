//! Progress on a terminal; nothing is drawn elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// A spinner with a text, cleared on drop. Draws nothing if standard error is not a terminal.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Starts to spin.
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

/// A bar over `total` bytes.
pub fn bytes_bar(text: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(text);
    if let Ok(style) =
        ProgressStyle::with_template("{msg:10} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A bar over `total` bytes with a message that changes.
pub fn totals_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template = "[{bar:30}] {bytes}/{total_bytes} {msg} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Work shorter than this shows no progress.
const LATE: Duration = Duration::from_secs(2);

/// Counts of bytes and files, shown once the work takes longer than two seconds. They are cleared on drop.
pub struct Late {
    bar: ProgressBar,
    start: Instant,
    files: u64,
}

impl Late {
    /// Starts to count.
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
        self.bar.set_message(format!("{} files", self.files));
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
