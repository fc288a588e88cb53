//! Settings of the kernel that make streams faster and that only root may change.

use rustix::fs::{major, minor};
use std::{fs, io, path::Path};

/// Most pages of one request, for every FUSE mount of the machine.
const MOST_PAGES: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// Pages worth having: 4 MiB. Beyond, buffers leave the caches.
const PAGES: u32 = 1024;
/// Page size that the kernel counts requests in.
const PAGE: u32 = 4096;
/// Largest request where the kernel does not say what it allows.
const USUAL: u32 = 1 << 20;
/// What the kernel reads ahead of a sequential reader, in KiB.
const READ_AHEAD_KIB: u32 = 4096;

/// The largest request that the kernel will make, in bytes. Asks for more than it allows by itself; to be
/// called before mounting, as a mount keeps the limit that it began with.
pub fn raise_largest_request() -> u32 {
    if read(MOST_PAGES).is_some_and(|pages| pages < PAGES) {
        // What cannot be changed is told by `advice`.
        let _ = write(MOST_PAGES, PAGES);
    }
    read(MOST_PAGES).map_or(USUAL, |pages| pages.min(PAGES).saturating_mul(PAGE))
}

/// Lets the kernel read further ahead in the mount on `device` than it does by itself. Returns what an
/// administrator could do where that is refused, on one line.
pub fn raise_read_ahead(device: u64) -> Option<String> {
    let read_ahead = format!("/sys/class/bdi/{}:{}/read_ahead_kb", major(device), minor(device));
    let mut advice = Vec::new();
    for (setting, value) in [(MOST_PAGES, PAGES), (&read_ahead, READ_AHEAD_KIB)] {
        if read(setting).is_some_and(|now| now < value) && write(setting, value).is_err() {
            advice.push(format!("{value} in {setting}"));
        }
    }
    (!advice.is_empty()).then(|| format!("root could make streams faster: {}", advice.join(", ")))
}

fn read(setting: &str) -> Option<u32> {
    fs::read_to_string(setting).ok()?.trim().parse().ok()
}

fn write(setting: &str, value: u32) -> io::Result<()> {
    fs::write(Path::new(setting), value.to_string())
}
