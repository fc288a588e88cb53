//! Progress on a terminal; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar over `total` steps of different kinds. Its message names the current one.
pub fn steps_bar(total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed}, {eta} to go: {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
