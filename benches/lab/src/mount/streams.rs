//! Sequential streams: each thread writes, rewrites and reads a separate file.

use super::{
    Context,
    live::Live,
    load::{Block, Limit, together},
};
use rustix::fs::{Advice, fadvise};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};
use warpcrypt::cli::lab::{Failure, Outcome};

/// Duration of a phase, and the bytes that it moved.
type Phase = io::Result<(Duration, u64)>;

/// Bytes per read or write.
const BLOCK: usize = 1 << 20;

/// Writes new files, rewrites them, and reads them, with this many concurrent streams.
///
/// # Errors
/// If a read or write fails or returns wrong bytes.
pub fn run(
    context: &Context,
    live: &mut Live,
    streams: usize,
    put: &mut dyn FnMut(&str, &str, f64),
) -> Outcome {
    // More streams move more bytes in total, so that a phase with many fast streams does not end too soon.
    let each = (context.size / streams.isqrt() as u64).next_multiple_of(BLOCK as u64);
    let times = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
    let dir = live.dir().to_owned();
    live.reset_peak();
    let phases: [(&str, &dyn Fn() -> Phase); 3] = [
        ("write new", &|| write(context, &dir, streams, each, true)),
        ("rewrite", &|| write(context, &dir, streams, each, false)),
        ("read", &|| read(context, &dir, streams)),
    ];
    for (name, phase) in phases {
        let before = live.usage();
        let (time, bytes) = phase().map_err(|e| Failure::io(format!("{name}, {times}"), &e))?;
        context.interrupt.check()?;
        let gigabytes = bytes as f64 / 1e9;
        put(&format!("{name}, {times}"), "GB/s", gigabytes / time.as_secs_f64());
        if let (Some(before), Some(after)) = (before, live.usage()) {
            put(&format!("processor, {name}, {times}"), "s/GB", (after.cpu - before.cpu) / gigabytes);
        }
    }
    if let Some(usage) = live.usage() {
        put(&format!("peak memory, {times}"), "MiB", usage.peak as f64 / f64::from(1 << 20));
    }
    Ok(())
}

fn path(dir: &Path, stream: usize) -> PathBuf {
    dir.join(format!("stream-{stream}"))
}

/// Counts the bytes written to the files, and includes their fsync.
fn write(context: &Context, dir: &Path, streams: usize, each: u64, new: bool) -> Phase {
    let open = |stream: usize| {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(new).open(path(dir, stream))?;
        let end = if new { each } else { file.metadata()?.len() };
        Ok((file, end, Block::new(BLOCK, stream as u64 + 1)))
    };
    together(streams, open, |stream, (file, end, mut block): (File, u64, Block)| {
        let limit = Limit::new(context.limit, &context.interrupt);
        let mut offset = 0;
        while offset < end && !limit.reached() {
            block.stamp(stream, offset);
            file.write_all_at(block.get(), offset)?;
            offset += BLOCK as u64;
        }
        file.sync_all()?;
        Ok(offset)
    })
}

/// Counts the bytes read, after verifying them.
fn read(context: &Context, dir: &Path, streams: usize) -> Phase {
    let open = |stream: usize| {
        let file = File::open(path(dir, stream))?;
        // Do not read from the kernel's cache of the mount.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok((file, Block::new(BLOCK, 0)))
    };
    together(streams, open, |stream, (file, mut block): (File, Block)| {
        let limit = Limit::new(context.limit, &context.interrupt);
        let end = file.metadata()?.len();
        let mut offset = 0;
        while offset < end && !limit.reached() {
            file.read_exact_at(block.get(), offset)?;
            if context.verify {
                block.check(stream, offset)?;
            }
            offset += BLOCK as u64;
        }
        Ok(offset)
    })
}
