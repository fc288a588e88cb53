//! Progress on a terminal; nothing is drawn elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

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
