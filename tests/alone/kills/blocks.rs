//! A disk that records everything written to it, in order, and generates what it may contain after a
//! power cut.
//!
//! The image is a FUSE mount of a single file, with a loop device on top. Every write, discard and flush
//! is logged before it is answered, so the length of the log serves as the clock.

use super::disk;
use crate::support::random::Random;
use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use parking_lot::Mutex;
use std::{
    fs::{self, File},
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

const WRITE: u64 = 0;
const ZERO: u64 = 1;
const FLUSH: u64 = 2;
const HEAD: usize = 24;

struct Server {
    image: File,
    log: Mutex<File>,
}

impl Server {
    fn log(&self, what: u64, offset: u64, len: u64, data: &[u8]) -> io::Result<()> {
        let head = [what, offset, len].map(u64::to_le_bytes).concat();
        self.log.lock().write_all(&[&head, data].concat())
    }
}

/// Serves `image` as the file `at`, logging to `log`, until unmounted.
pub fn serve(image: &Path, log: &Path, at: &Path) -> io::Result<()> {
    let image = File::options().read(true).write(true).open(image)?;
    let log = Mutex::new(File::options().create(true).append(true).open(log)?);
    fuser::mount(Server { image, log }, at, &Config::default())
}

fn answer(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_BIG_WRITES;
        // If the kernel refuses a setting, its default remains.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let size = match self.image.metadata() {
            Ok(found) => found.len(),
            Err(e) => return reply.error(e.into()),
        };
        let attr = FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&Duration::from_secs(3600), &attr);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.image.read_at(&mut bytes, offset) {
            Ok(n) => reply.data(&bytes[..n]),
            Err(e) => reply.error(e.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let logged = self.log(WRITE, offset, data.len() as u64, data);
        match logged.and_then(|()| self.image.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.log(FLUSH, 0, 0, &[]));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        let logged = self.log(ZERO, offset, len, &[]);
        answer(reply, logged.and_then(|()| zero(&self.image, offset..offset + len)));
    }
}

fn zero(file: &File, range: Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, how, range.start, range.end - range.start)?)
}

/// One entry of a log.
struct Record {
    what: u64,
    /// Affected range of the disk, and where the data is in the log.
    range: Range<u64>,
    data: Range<usize>,
    /// Length of the log including this record.
    end: u64,
}

/// Granularity at which a power cut keeps or loses parts of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Write,
    Page,
    Sector,
}

/// A log, from which images of successive moments are generated.
pub struct Log {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Image with the writes that are certainly durable after `applied` records.
    durable: PathBuf,
    applied: usize,
}

impl Log {
    /// Reads the log at `path`. `image` is the disk's content when the log began; it is consumed.
    pub fn read(path: &Path, image: &Path) -> Log {
        let bytes = fs::read(path).expect("the block log");
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let number =
                |i: usize| u64::from_le_bytes(bytes[at + i..at + i + 8].try_into().expect("8 bytes"));
            let (what, offset, len) = (number(0), number(8), number(16));
            let data = at + HEAD..at + HEAD + if what == WRITE { len as usize } else { 0 };
            at = data.end;
            records.push(Record { what, range: offset..offset + len, data, end: at as u64 });
        }
        Log { bytes, records, durable: image.to_path_buf(), applied: 0 }
    }

    /// Random moments at or after `from`, in ascending order, as record counts.
    pub fn moments(&self, from: u64, count: usize, random: &mut Random) -> Vec<usize> {
        let first = self.records.partition_point(|r| r.end <= from);
        let among = (self.records.len() - first + 1) as u64;
        let mut all: Vec<usize> = (0..count).map(|_| first + random.below(among) as usize).collect();
        all.sort_unstable();
        all
    }

    /// The log length at a moment.
    pub fn time(&self, moment: usize) -> u64 {
        moment.checked_sub(1).map_or(0, |last| self.records[last].end)
    }

    /// Writes to `out` what the disk may contain if power fails at `moment`: everything up to the last
    /// flush, and a random part of what followed.
    pub fn image(&mut self, moment: usize, unit: Unit, random: &mut Random, out: &Path) -> io::Result<()> {
        let flush = self.records[..moment].iter().rposition(|r| r.what == FLUSH).unwrap_or(0);
        let durable = File::options().write(true).open(&self.durable)?;
        for record in &self.records[self.applied.min(flush)..flush] {
            self.apply(&durable, record, record.range.clone())?;
        }
        self.applied = self.applied.max(flush);
        disk::copy(&self.durable, out);
        let image = File::options().write(true).open(out)?;
        // Out of ten writes, keep this many.
        let kept = *random.one_of(&[0, 2, 5, 8, 9, 10]);
        for record in self.records[flush..moment].iter().filter(|r| r.what != FLUSH) {
            let len = record.range.end - record.range.start;
            let step = match unit {
                Unit::Write => len,
                Unit::Page => 4096,
                Unit::Sector => 512,
            };
            // Most writes are whole even in an image where some are torn.
            let step = if random.once_in(4) { step } else { len };
            let mut start = record.range.start;
            while start < record.range.end {
                let end = (start + step).min(record.range.end);
                if random.below(10) < kept {
                    self.apply(&image, record, start..end)?;
                }
                start = end;
            }
        }
        Ok(())
    }

    fn apply(&self, image: &File, record: &Record, part: Range<u64>) -> io::Result<()> {
        match record.what {
            WRITE => {
                let start = record.data.start + (part.start - record.range.start) as usize;
                let end = start + (part.end - part.start) as usize;
                image.write_all_at(&self.bytes[start..end], part.start)
            }
            ZERO => zero(image, part),
            _ => Ok(()),
        }
    }
}
