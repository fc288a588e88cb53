//! Reads and writes of 4 KiB at random offsets of one file, each offset at most once.

use super::{
    Context,
    live::Live,
    load::{Block, Limit, together},
};
use rustix::fs::{Advice, fadvise};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};
use warpcrypt::cli::lab::{Failure, Outcome};

/// Bytes per read or write.
const PIECE: usize = 4096;
/// Bytes per write while the file is created.
const BLOCK: usize = 1 << 20;
/// Odd, so that its multiples visit every index modulo a power of two.
const STRIDE: u64 = 0x9E37_79B1;

/// Measures each combination of reading and writing, buffered and O_DIRECT, with 1 and 16 threads.
///
/// # Errors
/// If a read or write fails or returns wrong bytes.
pub fn run(context: &Context, live: &mut Live, put: &mut dyn FnMut(&str, &str, f64)) -> Outcome {
    let path = live.dir().join("random");
    let pieces = context.random_size / PIECE as u64;
    make(&path, context).map_err(|e| Failure::io("the file for random access", &e))?;
    for write in [false, true] {
        for direct in [false, true] {
            for threads in [1, 16] {
                let name = format!(
                    "random {} 4 KiB, {}, {threads} thread{}",
                    if write { "write" } else { "read" },
                    if direct { "O_DIRECT" } else { "buffered" },
                    if threads == 1 { "" } else { "s" },
                );
                let before = live.usage();
                let done = phase(context, &path, pieces, write, direct, threads);
                context.interrupt.check()?;
                match done {
                    Ok((time, count)) => {
                        put(&name, "kIOPS", count as f64 / time.as_secs_f64() / 1e3);
                        if let (Some(before), Some(after)) = (before, live.usage()) {
                            let each = (after.cpu - before.cpu) / count as f64 * 1e6;
                            put(&format!("processor, {name}"), "µs each", each);
                        }
                    }
                    // Some filesystems do not support O_DIRECT.
                    Err(e) if direct && e.kind() == io::ErrorKind::InvalidInput => {}
                    Err(e) => return Err(Failure::io(name, &e)),
                }
            }
        }
    }
    Ok(())
}

fn make(path: &Path, context: &Context) -> io::Result<()> {
    let file = File::create(path)?;
    let mut block = Block::new(BLOCK, 99);
    for start in (0..context.random_size).step_by(BLOCK) {
        for (piece, offset) in block.get().chunks_mut(PIECE).zip((start..).step_by(PIECE)) {
            let mut stamped = Block::new(16, 0);
            stamped.stamp(0, offset);
            piece[..16].copy_from_slice(stamped.get());
        }
        file.write_all_at(block.get(), start)?;
        if context.interrupt.check().is_err() {
            return Ok(());
        }
    }
    file.sync_all()
}

/// Reads or writes until the time is up or every offset has been visited. The time includes a final fsync.
fn phase(
    context: &Context,
    path: &Path,
    pieces: u64,
    write: bool,
    direct: bool,
    threads: usize,
) -> io::Result<(Duration, u64)> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let open = |thread: usize| {
        let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok((file, Block::new(PIECE, thread as u64)))
    };
    let work = |thread: usize, (file, mut block): (File, Block)| {
        let limit = Limit::new(context.random_limit, &context.interrupt);
        let mut count = 0;
        for number in (thread as u64..pieces).step_by(threads) {
            let offset = (number * STRIDE % pieces) * PIECE as u64;
            if write {
                block.stamp(0, offset);
                file.write_all_at(block.get(), offset)?;
            } else {
                file.read_exact_at(block.get(), offset)?;
                if context.verify {
                    block.check(0, offset)?;
                }
            }
            count += 1;
            if count % 16 == 0 && limit.reached() {
                break;
            }
        }
        Ok(count)
    };
    let (time, count) = together(threads, open, work)?;
    if !write {
        return Ok((time, count));
    }
    let start = Instant::now();
    File::open(path)?.sync_all()?;
    Ok((time + start.elapsed(), count))
}
