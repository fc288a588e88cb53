//! Kernel settings that speed up sequential I/O and that only root may change.

use rustix::fs::{major, minor};
use std::{fs, io, path::Path};

/// Maximum pages of one request, for all FUSE mounts on the machine.
pub const MOST_PAGES: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// Whether the kernel offers io_uring to FUSE mounts, for all mounts on the machine.
pub const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
/// Read-ahead settings, one directory for each mount.
pub const READ_AHEADS: &str = "/sys/devices/virtual/bdi";
/// Pages to request: 4 MiB. Larger buffers do not fit into the processor's caches.
pub const PAGES: u32 = 1024;
/// Page size in bytes, the unit in which the kernel counts requests.
const PAGE: u32 = 4096;
/// Maximum request size in bytes if the kernel does not report its limit.
const USUAL: u32 = 1 << 20;
/// Kernel read-ahead for a sequential reader, in KiB.
const READ_AHEAD_KIB: u32 = 4096;

/// Raises the kernel's limit if permitted, and returns the kernel's maximum request size in bytes. Call
/// it before mounting, because a mount keeps the limit it started with.
pub fn raise_largest_request() -> u32 {
    if read(MOST_PAGES).is_some_and(|pages| pages < PAGES) {
        // If this is refused, `raise_read_ahead` tells the administrator.
        let _ = write(MOST_PAGES, PAGES);
    }
    read(MOST_PAGES).map_or(USUAL, |pages| pages.min(PAGES).saturating_mul(PAGE))
}

/// Makes the kernel offer io_uring if permitted, and returns whether it does. Call it before mounting.
pub fn offer_rings() -> bool {
    let offered = || fs::read_to_string(RINGS).is_ok_and(|setting| setting.trim() == "Y");
    // If this is refused, the mount does without rings.
    offered() || fs::write(RINGS, "Y").is_ok() && offered()
}

/// Raises the kernel's read-ahead for the mount on `device` above the default. If that is refused,
/// returns one line of advice for the administrator.
pub fn raise_read_ahead(device: u64) -> Option<String> {
    let read_ahead = format!("{READ_AHEADS}/{}:{}/read_ahead_kb", major(device), minor(device));
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
