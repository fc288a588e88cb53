//! Rates of subjects that take turns, on one thread or on several at once.

use super::subjects::{Group, Subject};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Parameters and progress of the measurements.
pub(super) struct Plan {
    runs: u32,
    slice: Duration,
    progress: ProgressBar,
}

impl Plan {
    /// `runs` runs of every subject, each lasting one `slice`.
    pub(super) fn new(groups: &[Group], runs: u32, slice: Duration, cores: usize) -> Self {
        let measurements: usize =
            groups.iter().map(|g| g.subjects.len() * if g.is_per_core && cores > 0 { 2 } else { 1 }).sum();
        let progress = ProgressBar::new(measurements as u64 * u64::from(runs));
        if let Ok(style) = ProgressStyle::with_template("{msg:32!} [{bar:30}] {percent:>3} % {eta}") {
            progress.set_style(style.progress_chars("=> "));
        }
        Plan { runs, slice, progress }
    }

    /// Gigabytes per second of each subject in each run, on `threads` threads at once.
    pub(super) fn measure(&self, subjects: &[Subject], threads: usize) -> Vec<Vec<f64>> {
        let mut rates = vec![Vec::new(); subjects.len()];
        for _ in 0..self.runs {
            for (subject, rates) in subjects.iter().zip(&mut rates) {
                self.progress.set_message(subject.name.clone());
                rates.push(self.rate(subject, threads));
                self.progress.inc(1);
            }
        }
        rates
    }

    fn rate(&self, subject: &Subject, threads: usize) -> f64 {
        let together = Barrier::new(threads);
        let work = || {
            let mut work = (subject.start)();
            // Warm-up: the first call finds cold caches and unmapped pages.
            work();
            together.wait();
            let (start, mut calls) = (Instant::now(), 0_u64);
            while calls == 0 || start.elapsed() < self.slice {
                work();
                calls += 1;
            }
            calls as f64 * subject.bytes as f64 / start.elapsed().as_secs_f64() / 1e9
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}
