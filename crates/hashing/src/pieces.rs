//! Finds files that share pieces: each file is cut, the pieces are hashed, and pieces with equal hashes are
//! equal.

use super::{
    source::{Content, Source},
    walk::{FoundFile, walk},
    worker::Options,
};
use crypto::hash::Function;
use fastcdc::v2020::FastCDC;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Bytes read at a time.
const WINDOW: usize = 1 << 20;
/// A piece shared by more files than this is ignored: it says nothing about any two of them.
const COMMON: usize = 256;

/// The allowed average sizes of pieces. A size must also be a power of two.
pub const PIECE_SIZES: std::ops::RangeInclusive<usize> = 512..=64 << 10;

/// How to cut a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Into pieces of this length. Finds only equal pieces at multiples of it.
    Fixed(usize),
    /// At positions that depend on the content (FastCDC, 2020). Pieces have this length on average; they are
    /// at least a quarter and at most four times as long. Finds equal pieces at any offset.
    Content(usize),
}

/// A file that was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutFile {
    /// Path of the file.
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
}

/// Two files that share pieces, by number with the smaller first, and the bytes of those pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The first file.
    pub a: usize,
    /// The second file.
    pub b: usize,
    /// Bytes of the shared pieces. A piece that occurs several times counts as often as it occurs in both
    /// files.
    pub bytes: u64,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Matches {
    /// The files, in the order of their paths.
    pub files: Vec<CutFile>,
    /// Groups of files with the same content, without empty files. Only the first file of each group is
    /// compared with others.
    pub identical: Vec<Vec<usize>>,
    /// Pairs that share pieces, most bytes first.
    pub overlaps: Vec<Overlap>,
    /// Pieces left out because more than 256 different files have them.
    pub common: u64,
    /// Files and folders that could not be read.
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// A piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FilePiece {
    hash: [u8; 32],
    len: u32,
    /// All its bytes are equal.
    plain: bool,
}

/// A file and its pieces in order.
struct FilePieces {
    file: CutFile,
    pieces: Vec<FilePiece>,
}

/// Cuts every file below `roots` and compares the pieces. Pieces whose bytes are all equal are ignored.
/// Once `options.stop` is set, the result may be incomplete.
pub fn find<S: Source>(source: &S, roots: &[PathBuf], cut: Cut, options: &Options) -> Matches {
    let mut found = Vec::new();
    walk(source, roots, options.stop, &mut |file| found.push(file));
    let found: Vec<Mutex<Option<FoundFile<S::Place>>>> =
        found.into_iter().map(|file| Mutex::new(Some(file))).collect();
    let (next, cut_files) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut buffer = vec![0; WINDOW + 4 * PIECE_SIZES.end()];
                while let Some(file) = found.get(next.fetch_add(1, Ordering::Relaxed))
                    && !options.stop.load(Ordering::Relaxed)
                {
                    let Some(FoundFile { path, place }) = file.lock().take() else { continue };
                    let opened = place.and_then(|place| source.open(&path, &place));
                    let pieces = opened.and_then(|content| pieces(&content, cut, options, &mut buffer));
                    options.progress.files.fetch_add(1, Ordering::Relaxed);
                    cut_files.lock().push((path, pieces));
                }
            });
        }
    });
    let mut matches = Matches::default();
    let mut all = Vec::new();
    let mut cut_files = cut_files.into_inner();
    cut_files.sort_by(|(a, _), (b, _)| a.cmp(b));
    // A path may be given twice, or along with its folder.
    cut_files.dedup_by(|(a, _), (b, _)| a == b);
    for (path, result) in cut_files {
        match result {
            Ok((size, pieces)) => all.push(FilePieces { file: CutFile { path, size }, pieces }),
            Err(e) => matches.failed.push((path, e)),
        }
    }
    compare(&all, &mut matches);
    matches.files = all.into_iter().map(|pieces| pieces.file).collect();
    matches
}

/// Reads a file to its end and hashes its pieces.
fn pieces(
    content: &impl Content,
    cut: Cut,
    options: &Options,
    buffer: &mut [u8],
) -> io::Result<(u64, Vec<FilePiece>)> {
    let mut pieces = Vec::new();
    let (mut offset, mut held) = (0_u64, 0);
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let read = content.read_full(&mut buffer[held..], offset)?;
        offset += read as u64;
        let ended = held + read < buffer.len();
        let data = &buffer[..held + read];
        let (parts, used) = parts(data, cut, ended);
        let hashes = Function::K12.digests(&parts);
        pieces.extend(parts.iter().zip(hashes).map(|(part, digest)| {
            let mut hash = [0; 32];
            hash.copy_from_slice(digest.bytes());
            FilePiece { hash, len: part.len() as u32, plain: part.iter().all(|byte| *byte == part[0]) }
        }));
        options.progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
        if ended {
            return Ok((offset, pieces));
        }
        let len = data.len();
        buffer.copy_within(used..len, 0);
        held = len - used;
    }
}

/// Makes all cuts that do not depend on unread bytes; with `ended`, all cuts.
fn parts(data: &[u8], cut: Cut, ended: bool) -> (Vec<&[u8]>, usize) {
    let mut parts = Vec::new();
    let mut used = 0;
    match cut {
        Cut::Fixed(size) => {
            let whole = if ended { data.len() } else { data.len() - data.len() % size };
            parts.extend(data[..whole].chunks(size));
            used = whole;
        }
        Cut::Content(size) => {
            for chunk in FastCDC::new(data, size / 4, size, size * 4) {
                // A cut near the end may be only the end of the bytes read so far.
                if !ended && data.len() - chunk.offset < size * 4 {
                    break;
                }
                used = chunk.offset + chunk.length;
                parts.push(&data[chunk.offset..used]);
            }
        }
    }
    (parts, used)
}

fn compare(all: &[FilePieces], matches: &mut Matches) {
    // The first file with each content.
    let mut firsts: HashMap<&[FilePiece], usize> = HashMap::new();
    let mut groups: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut entries: Vec<(FilePiece, usize)> = Vec::new();
    for (number, FilePieces { pieces, .. }) in
        all.iter().enumerate().filter(|(_, file)| !file.pieces.is_empty())
    {
        let first = *firsts.entry(pieces).or_insert(number);
        if first != number {
            groups.entry(first).or_insert_with(|| vec![first]).push(number);
            continue;
        }
        entries.extend(pieces.iter().filter(|piece| !piece.plain).map(|piece| (*piece, number)));
    }
    matches.identical = groups.into_values().collect();
    matches.identical.sort_unstable();
    entries.sort_unstable();
    let mut shared: HashMap<(usize, usize), u64> = HashMap::new();
    for equal in entries.chunk_by(|a, b| a.0 == b.0) {
        // Per file: how often it contains the piece.
        let files: Vec<(usize, u64)> =
            equal.chunk_by(|a, b| a.1 == b.1).map(|of_file| (of_file[0].1, of_file.len() as u64)).collect();
        if files.len() > COMMON {
            matches.common += 1;
            continue;
        }
        for (at, (a, often)) in files.iter().enumerate() {
            for (b, as_often) in &files[at + 1..] {
                *shared.entry((*a, *b)).or_default() += u64::from(equal[0].0.len) * often.min(as_often);
            }
        }
    }
    matches.overlaps = shared.into_iter().map(|((a, b), bytes)| Overlap { a, b, bytes }).collect();
    matches.overlaps.sort_unstable_by_key(|overlap| (std::cmp::Reverse(overlap.bytes), overlap.a, overlap.b));
}
