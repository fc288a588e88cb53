//! The cost of a file by its size, and of a directory by the number of its files.

use super::{
    Context,
    live::Live,
    load::{Block, Limit},
};
use std::{
    fs::{self, File},
    io, iter,
    os::unix::fs::FileExt,
    path::Path,
    time::Instant,
};
use warpcrypt::cli::lab::{Failure, Outcome};

/// Bytes per read or write of a large file.
const BLOCK: usize = 1 << 20;
/// The number of small files is chosen so that they total this many bytes, …
const TOGETHER: u64 = 64 << 20;
/// … but there are no more than this many.
const MOST_FILES: u64 = 256;
/// Bytes of a file in a large directory.
const LITTLE: usize = 100;

/// Writes files of 1 KiB, 4 KiB, … up to the context's largest, then reads them all. Reports gigabytes per
/// second.
///
/// # Errors
/// If a read or write fails.
pub fn sizes(context: &Context, live: &mut Live, put: &mut dyn FnMut(&str, &str, f64, f64)) -> Outcome {
    let failed = |size: u64| move |e: io::Error| Failure::io(format!("files of {size} bytes"), &e);
    let mut rate = |name: &str, size: u64, bytes: u64, start: Instant| {
        put(name, "GB/s", size as f64, bytes as f64 / 1e9 / start.elapsed().as_secs_f64());
    };
    let mut written = Vec::new();
    for (size, files) in sizes_up_to(context.largest) {
        let folder = live.dir().join(size.to_string());
        let start = Instant::now();
        let bytes = write_files(context, &folder, files, size).map_err(failed(size))?;
        rate("write, by size of the file", size, bytes, start);
        written.push((size, files, folder));
        context.interrupt.check()?;
        if bytes < files * size {
            break; // The time was up; larger files would give the same rate.
        }
    }
    // Once for all sizes: mounting takes longer than most of the measurements here.
    live.remount()?;
    for (size, files, folder) in &written {
        let start = Instant::now();
        let bytes = read_files(context, folder, *files).map_err(failed(*size))?;
        rate("read, by size of the file", *size, bytes, start);
        context.interrupt.check()?;
    }
    written.iter().try_for_each(|(size, _, folder)| fs::remove_dir_all(folder).map_err(failed(*size)))
}

/// File sizes in bytes, with the number of files of each size.
pub fn sizes_up_to(largest: u64) -> impl Iterator<Item = (u64, u64)> {
    iter::successors(Some(1 << 10), |size| Some(size * 4))
        .take_while(move |size| *size <= largest)
        .map(|size| (size, (TOGETHER / size).clamp(1, MOST_FILES)))
}

fn write_files(context: &Context, folder: &Path, files: u64, size: u64) -> io::Result<u64> {
    fs::create_dir(folder)?;
    let limit = Limit::new(context.limit, &context.interrupt);
    let mut block = Block::new(BLOCK, 5);
    let mut written = 0;
    for number in 0..files {
        let file = File::create(folder.join(number.to_string()))?;
        let mut offset = 0;
        while offset < size && !limit.reached() {
            let step = (size - offset).min(BLOCK as u64);
            block.stamp(number as usize, offset);
            file.write_all_at(&block.get()[..step as usize], offset)?;
            offset += step;
        }
        written += offset;
        if files == 1 {
            file.sync_all()?;
        }
    }
    Ok(written)
}

fn read_files(context: &Context, folder: &Path, files: u64) -> io::Result<u64> {
    let mut block = Block::new(BLOCK, 5);
    let mut total = 0;
    for number in 0..files {
        let file = File::open(folder.join(number.to_string()))?;
        let mut offset = 0;
        loop {
            let read = file.read_at(block.get(), offset)?;
            if read == 0 || context.interrupt.check().is_err() {
                break;
            }
            if context.verify && offset % BLOCK as u64 == 0 && read >= 16 {
                block.check(number as usize, offset)?;
            }
            offset += read as u64;
        }
        total += offset;
    }
    Ok(total)
}

/// Creates, lists and removes 1, 10, 100, … files in one directory, up to the context's maximum. Reports
/// microseconds per file.
///
/// # Errors
/// If an operation fails.
pub fn counts(context: &Context, live: &mut Live, put: &mut dyn FnMut(&str, &str, f64, f64)) -> Outcome {
    let mut files = 1;
    while files <= context.most {
        let folder = live.dir().join("counts");
        let failed = |e: io::Error| Failure::io(format!("{files} files in a directory"), &e);
        let mut lap = |name: &str, start: Instant, done: u64| {
            put(name, "µs", files as f64, start.elapsed().as_secs_f64() * 1e6 / done.max(1) as f64);
        };
        let start = Instant::now();
        let made = make_files(context, &folder, files).map_err(failed)?;
        lap("make a file, by files in the directory", start, made);
        live.remount()?;
        let start = Instant::now();
        let listed = list_files(&folder).map_err(failed)?;
        lap("list and stat a file, by files in the directory", start, listed);
        live.remount()?;
        let start = Instant::now();
        fs::remove_dir_all(&folder).map_err(failed)?;
        lap("remove a file, by files in the directory", start, listed);
        context.interrupt.check()?;
        if made < files {
            break; // The time was up.
        }
        files *= 10;
    }
    Ok(())
}

fn make_files(context: &Context, folder: &Path, files: u64) -> io::Result<u64> {
    fs::create_dir(folder)?;
    let limit = Limit::new(context.limit * 12, &context.interrupt);
    let mut block = Block::new(LITTLE, 6);
    for number in 0..files {
        fs::write(folder.join(format!("file-{number:07}")), block.get())?;
        if number % 64 == 0 && limit.reached() {
            return Ok(number + 1);
        }
    }
    Ok(files)
}

fn list_files(folder: &Path) -> io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        entry?.metadata()?;
        count += 1;
    }
    Ok(count)
}
