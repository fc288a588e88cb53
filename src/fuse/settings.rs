//! Settings of the kernel that make streams faster and that only root may change.

use rustix::fs::{major, minor};
use std::{fs, io, path::Path};

/// Most pages of one request, for every FUSE mount of the machine.
pub const MOST_PAGES: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// Whether the kernel offers FUSE mounts io_uring, for every mount of the machine.
pub const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
/// What the kernel reads ahead, in a directory for each mount.
pub const READ_AHEADS: &str = "/sys/devices/virtual/bdi";
/// Pages worth asking for: 4 MiB. Larger buffers leave the processor's caches.
pub const PAGES: u32 = 1024;
/// Bytes of the pages in which the kernel counts requests.
const PAGE: u32 = 4096;
/// Largest request if the kernel does not say what it allows.
const USUAL: u32 = 1 << 20;
/// What the kernel reads ahead of a sequential reader, in KiB.
const READ_AHEAD_KIB: u32 = 4096;

/// Raises the kernel's limit if that is allowed, and returns the largest request that the kernel will make, in
/// bytes. To be called before mounting, as a mount keeps the limit that it began with.
pub fn raise_largest_request() -> u32 {
    if read(MOST_PAGES).is_some_and(|pages| pages < PAGES) {
        // If this is refused, `raise_read_ahead` tells the administrator.
        let _ = write(MOST_PAGES, PAGES);
    }
    read(MOST_PAGES).map_or(USUAL, |pages| pages.min(PAGES).saturating_mul(PAGE))
}

/// Has the kernel offer io_uring if that is allowed, and returns whether it does. To be called before mounting.
pub fn offer_rings() -> bool {
    let offered = || fs::read_to_string(RINGS).is_ok_and(|setting| setting.trim() == "Y");
    // If this is refused, the mount goes without.
    offered() || fs::write(RINGS, "Y").is_ok() && offered()
}

/// Has the kernel read further ahead in the mount on `device` than by default. If that is refused, returns one line
/// that says what an administrator could do.
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
