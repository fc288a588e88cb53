//! Capability negotiation with the kernel when a mount begins.

use super::permission_policy::PermissionPolicy;
use fuser::{InitFlags, KernelConfig};
use std::time::Duration;

/// Maximum number of background requests: read-ahead, and direct I/O in pieces.
const BACKGROUND: u16 = 128;
/// Page size in bytes.
const PAGE: usize = 4096;

/// Capabilities requested where the kernel offers them.
///
/// The write-back cache is requested only with `--cache write-back`, because the kernel then keeps its
/// own sizes and times. These are not requested:
///
/// - automatic invalidation, unless others write to the vault;
/// - locks: the kernel's own are correct on a single machine;
/// - opening without a request: each open tells the kernel how to cache, and its handle keeps a nameless
///   file and the position in a listing;
/// - truncation on open: the kernel would send it before it refuses to truncate a running program.
///
/// The umask is applied here, because a default ACL replaces it.
///
/// Attributes in listings cost a store call for each entry, so they are sent only while a program uses
/// them (the kernel decides, readdirplus auto). Writes clear set-user-id here (killpriv, version 2).
/// Without that the kernel requests an extended attribute before every single write.
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

/// Another process may write beside a read-only or a shared mount. The kernel then detects a changed file
/// by its size and time, and drops all of its pages.
const OTHERS_WRITE_INSTEAD: (InitFlags, InitFlags) = (
    InitFlags::FUSE_EXPLICIT_INVAL_DATA.union(InitFlags::FUSE_CACHE_SYMLINKS),
    InitFlags::FUSE_AUTO_INVAL_DATA,
);

/// Maximum request sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Largest {
    /// Maximum size of a read.
    pub read: u32,
    /// Maximum size of a write; each event loop has a buffer of this size.
    pub write: u32,
}

impl Largest {
    /// The larger of the two, rounded up to whole pages.
    pub fn of_both(&self) -> usize {
        (self.read.max(self.write) as usize).next_multiple_of(PAGE)
    }
}

/// Optional features that a mount may ask for and the kernel may lack.
#[derive(Clone, Copy)]
pub struct Extras {
    /// Requests over io_uring.
    pub rings: bool,
    /// The kernel's write-back cache.
    pub gathering: bool,
}

/// Negotiates for a mount that may be read-only, and may be `alone`: no other process changes the vault.
/// Returns the `extras` that the kernel will use.
pub fn agree(
    config: &mut KernelConfig,
    (read_only, alone): (bool, bool),
    judge: PermissionPolicy,
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
    if judge == PermissionPolicy::Kernel {
        // This also turns on the check of permission bits.
        wanted |= InitFlags::FUSE_POSIX_ACL;
    }
    if !alone {
        wanted = (wanted - OTHERS_WRITE_INSTEAD.0) | OTHERS_WRITE_INSTEAD.1;
    }
    // The kernel keeps its own value for each setting that it refuses.
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
