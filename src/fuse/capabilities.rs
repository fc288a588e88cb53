//! What is agreed with the kernel when a mount begins.

use super::permissions::Judge;
use fuser::{InitFlags, KernelConfig};
use std::time::Duration;

/// Requests in the background at once: read-ahead and direct I/O in pieces.
const BACKGROUND: u16 = 128;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Asked for where the kernel has it.
///
/// Asked for with `--cache write-back` alone: the write-back cache, with which sizes and times are not ours any more. Not
/// asked for: automatic invalidation (where nobody else writes), locks (the kernel's own are right for one
/// machine), opening without a request (each
/// opening says how the kernel is to cache, and its handle keeps a nameless file and a listing's place), truncation
/// by opening (the kernel would send it before it refuses to have a program truncated that runs).
///
/// The umask is applied here, because a default ACL takes its place.
///
/// Attributes in listings are asked for only while somebody uses them (readdirplus by the kernel's judgement):
/// they cost a call of the store for each entry. Writing takes set-user-id away here (killpriv, version 2):
/// without it the kernel asks for an extended attribute before every single write.
const WANTED: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
    .union(InitFlags::FUSE_DONT_MASK)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_EXPORT_SUPPORT)
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO);

/// Beside a read-only or a shared mount another process may write: what changed is noticed by its size and time, and then no
/// page of it stays.
const OTHERS_WRITE_INSTEAD: (InitFlags, InitFlags) = (
    InitFlags::FUSE_EXPLICIT_INVAL_DATA.union(InitFlags::FUSE_CACHE_SYMLINKS),
    InitFlags::FUSE_AUTO_INVAL_DATA,
);

/// Bytes of the largest requests.
#[derive(Debug, Clone, Copy)]
pub struct Largest {
    /// Of reading.
    pub read: u32,
    /// Of writing; each event loop has a buffer of this size.
    pub write: u32,
}

impl Largest {
    /// Of both, in whole pages.
    pub fn of_both(&self) -> usize {
        (self.read.max(self.write) as usize).next_multiple_of(PAGE)
    }
}

/// What a mount may want and the kernel may not have.
#[derive(Clone, Copy)]
pub struct Extras {
    /// Requests over io_uring.
    pub rings: bool,
    /// Writes gathered by the kernel.
    pub gathering: bool,
}

/// Negotiates for a mount that is perhaps read-only, and perhaps `alone`: nobody else changes the vault. Returns which of the `extras` the kernel will use.
pub fn agree(
    config: &mut KernelConfig,
    (read_only, alone): (bool, bool),
    judge: Judge,
    largest: Largest,
    extras: Extras,
) -> Extras {
    let mut wanted = WANTED;
    if extras.rings {
        wanted |= InitFlags::FUSE_OVER_IO_URING;
    }
    if extras.gathering && !read_only {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    if judge == Judge::Kernel {
        // It turns the check of permission bits on, too.
        wanted |= InitFlags::FUSE_POSIX_ACL;
    }
    if !alone {
        wanted = (wanted - OTHERS_WRITE_INSTEAD.0) | OTHERS_WRITE_INSTEAD.1;
    }
    // Each of these keeps the kernel's own value where it refuses.
    let agreed = wanted & config.capabilities();
    let _ = config.add_capabilities(agreed);
    let _ = config.set_max_write(largest.write);
    let _ = config.set_max_readahead(largest.read).or_else(|most| config.set_max_readahead(most));
    let _ = config.set_max_background(BACKGROUND);
    let _ = config.set_time_granularity(Duration::from_nanos(1));
    Extras {
        rings: agreed.contains(InitFlags::FUSE_OVER_IO_URING),
        gathering: agreed.contains(InitFlags::FUSE_WRITEBACK_CACHE),
    }
}
