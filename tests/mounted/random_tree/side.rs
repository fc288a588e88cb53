//! The effect of a `random_tree` operation on a directory, and its result.

use super::steps::{ATTRIBUTES, HANDLES, Op, Place};
use rustix::{
    fs::{
        self as rfs, AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec,
        Timestamps, XattrFlags,
    },
    io::{self, Errno},
};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs::{self, File},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// One of the two directories, and the handles open in it.
pub struct Side {
    root: PathBuf,
    handles: [Option<OwnedFd>; HANDLES],
    /// Times at or after this one count as "now".
    start: i64,
}

/// Result of an operation as text, or its error.
pub type Answer = Result<String, Errno>;

impl Side {
    /// Creates a new directory.
    pub fn new(root: &Path) -> Side {
        fs::create_dir(root).expect("directory");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("clock");
        Side { root: root.to_path_buf(), handles: Default::default(), start: now.as_secs() as i64 - 5 }
    }

    /// Closes all handles.
    pub fn close_all(&mut self) {
        self.handles = Default::default();
    }

    fn at(&self, place: Place) -> PathBuf {
        self.root.join(place.name())
    }

    fn handle(&self, handle: u8) -> Result<&OwnedFd, Errno> {
        self.handles[handle as usize % HANDLES].as_ref().ok_or(Errno::BADF)
    }

    /// Performs the operation.
    pub fn apply(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Open { .. } => self.open(op),
            Op::Close(handle) => done(Ok(self.handles[handle as usize % HANDLES].take().is_some())),
            Op::Remount => done(Ok(())),
            Op::Write { .. }
            | Op::WriteAt { .. }
            | Op::Read { .. }
            | Op::ReadAt { .. }
            | Op::SeekTo { .. } => self.transfer(op),
            Op::TruncateHandle { .. } | Op::Truncate { .. } | Op::Allocate { .. } | Op::Copy { .. } => {
                self.resize(op)
            }
            Op::Sync { .. } | Op::SyncDir(_) => self.sync(op),
            Op::SetAttribute { .. }
            | Op::GetAttribute { .. }
            | Op::ListAttributes(_)
            | Op::RemoveAttribute { .. } => self.attribute(op),
            Op::StatHandle(handle) => Ok(self.describe(&rfs::fstat(self.handle(handle)?)?)),
            Op::Stat(_) | Op::List(_) | Op::ReadLink(_) | Op::Access { .. } => self.look(op),
            Op::Mode { .. } | Op::ModeOfHandle { .. } | Op::Times { .. } | Op::Group { .. } => {
                self.change(op)
            }
            Op::Umask(mask) => {
                // Both sides are in one process.
                rustix::process::umask(Mode::from_raw_mode(mask.into()));
                done(Ok(()))
            }
            Op::SetAcl { .. } | Op::GetAcl { .. } => self.acl(op),
            _ => self.name(op),
        }
    }

    fn open(&mut self, op: &Op) -> Answer {
        let Op::Open { at, handle, access, create, exclusive, truncate, append, mode } = *op else {
            unreachable!()
        };
        let mut flags = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR][access as usize % 3]
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        flags.set(OFlags::CREATE, create);
        flags.set(OFlags::EXCL, exclusive && create);
        flags.set(OFlags::TRUNC, truncate && access > 0);
        flags.set(OFlags::APPEND, append);
        let path = self.at(at);
        let opened = rfs::open(&path, flags, Mode::from_raw_mode(mode.into()))?;
        let stat = rfs::fstat(&opened)?;
        let answer = self.describe(&stat);
        if truncate {
            // Filesystems differ in whether truncating an empty file counts as a change.
            let _ = rfs::futimens(&opened, &both(7, 7));
        }
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        self.handles[handle as usize % HANDLES] = regular.then_some(opened);
        Ok(answer)
    }

    fn transfer(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Write { handle, len, fill } => done(io::write(self.handle(handle)?, &pattern(len, fill))),
            Op::WriteAt { handle, offset, len, fill } => {
                done(io::pwrite(self.handle(handle)?, &pattern(len, fill), offset.into()))
            }
            Op::Read { handle, len } => {
                let mut got = vec![0; len as usize];
                let n = io::read(self.handle(handle)?, &mut got)?;
                Ok(digest(&got[..n]))
            }
            Op::ReadAt { handle, offset, len } => {
                let mut got = vec![0; len as usize];
                let n = io::pread(self.handle(handle)?, &mut got, offset.into())?;
                Ok(digest(&got[..n]))
            }
            Op::SeekTo { handle, offset, whence } => {
                let offset = i64::from(offset);
                let to = match whence {
                    0 => rfs::SeekFrom::Start(offset.unsigned_abs()),
                    1 => rfs::SeekFrom::Current(offset),
                    _ => rfs::SeekFrom::End(offset),
                };
                done(rfs::seek(self.handle(handle)?, to))
            }
            _ => unreachable!(),
        }
    }

    /// Filesystems differ in whether these operations change the modification time when nothing else
    /// changes, so it is set afterwards.
    fn resize(&mut self, op: &Op) -> Answer {
        match *op {
            Op::TruncateHandle { handle, size } => {
                rfs::ftruncate(self.handle(handle)?, size.into())?;
                done(rfs::futimens(self.handle(handle)?, &both(5, 5)))
            }
            Op::Truncate { at, size } => {
                let path = self.at(at);
                let file =
                    rfs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
                rfs::ftruncate(&file, size.into())?;
                drop(file);
                done(rfs::utimensat(CWD, &path, &both(6, 6), AtFlags::empty()))
            }
            Op::Allocate { handle, mode, offset, len } => {
                use FallocateFlags as F;
                let modes = [
                    F::empty(),
                    F::KEEP_SIZE,
                    F::PUNCH_HOLE | F::KEEP_SIZE,
                    F::PUNCH_HOLE,
                    F::COLLAPSE_RANGE,
                    F::INSERT_RANGE,
                    F::PUNCH_HOLE | F::KEEP_SIZE,
                ];
                let file = self.handle(handle)?;
                rfs::fallocate(file, modes[mode as usize % modes.len()], offset.into(), len.into())?;
                done(rfs::futimens(file, &both(8, 8)))
            }
            Op::Copy { from, to, source, target, len } => {
                let (mut source, mut target) = (source.into(), target.into());
                let [from, to] = [self.handle(from)?, self.handle(to)?];
                done(rfs::copy_file_range(from, Some(&mut source), to, Some(&mut target), len as usize))
            }
            _ => unreachable!(),
        }
    }

    fn sync(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Sync { handle, data: true } => done(rfs::fdatasync(self.handle(handle)?)),
            Op::Sync { handle, data: false } => done(rfs::fsync(self.handle(handle)?)),
            Op::SyncDir(place) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                done(rfs::fsync(rfs::open(self.at(place), flags, Mode::empty())?))
            }
            _ => unreachable!(),
        }
    }

    fn attribute(&mut self, op: &Op) -> Answer {
        let name = |n: u8| ATTRIBUTES[n as usize % ATTRIBUTES.len()];
        match *op {
            Op::SetAttribute { at, name: n, len, flags } => {
                let flags =
                    [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][flags as usize % 3];
                done(rfs::setxattr(self.at(at), name(n), &pattern(len, n), flags))
            }
            Op::GetAttribute { at, name: n, room } => {
                let mut value = vec![0; room as usize];
                let n = rfs::getxattr(self.at(at), name(n), &mut value)?;
                // With an empty buffer, the result is the length.
                Ok(if room == 0 { n.to_string() } else { digest(&value[..n]) })
            }
            Op::ListAttributes(at) => Ok(attributes(&self.at(at))?.join(" ")),
            Op::RemoveAttribute { at, name: n } => done(rfs::removexattr(self.at(at), name(n))),
            _ => unreachable!(),
        }
    }

    /// For files and directories only: other nodes have no ACLs in a vault.
    fn acl(&self, op: &Op) -> Answer {
        let (Op::SetAcl { at, default, .. } | Op::GetAcl { at, default }) = *op else { unreachable!() };
        let path = self.at(at);
        let kind = FileType::from_raw_mode(rfs::stat(&path)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::OPNOTSUPP);
        }
        let name = if default { "system.posix_acl_default" } else { "system.posix_acl_access" };
        match *op {
            Op::SetAcl { which, .. } => done(rfs::setxattr(&path, name, &acl(which), XattrFlags::empty())),
            _ => {
                let mut value = [0; 1024];
                let len = rfs::getxattr(&path, name, &mut value[..])?;
                Ok(format!("{:?}", &value[..len]))
            }
        }
    }

    fn look(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Stat(at) => Ok(self.describe(&rfs::lstat(self.at(at))?)),
            Op::List(at) => list(&self.at(at)),
            Op::ReadLink(at) => done(rfs::readlink(self.at(at), Vec::new())),
            Op::Access { at, how } => {
                done(rfs::access(self.at(at), rfs::Access::from_bits_truncate((how % 8).into())))
            }
            _ => unreachable!(),
        }
    }

    fn change(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Mode { at, mode } => done(rfs::chmod(self.at(at), Mode::from_raw_mode(mode.into()))),
            Op::ModeOfHandle { handle, mode } => {
                done(rfs::fchmod(self.handle(handle)?, Mode::from_raw_mode(mode.into())))
            }
            Op::Group { at, which } => {
                let group = Gid::from_raw(group(which));
                done(rfs::chownat(CWD, self.at(at), None, Some(group), AtFlags::SYMLINK_NOFOLLOW))
            }
            Op::Times { at, seconds, nanoseconds, follow } => {
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                rfs::utimensat(CWD, self.at(at), &both(seconds, nanoseconds), flags)?;
                let stat = rfs::statat(CWD, self.at(at), flags)?;
                Ok(format!("{} atime {}.{}", self.describe(&stat), stat.st_atime, stat.st_atime_nsec))
            }
            _ => unreachable!(),
        }
    }

    fn name(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Rename { from, to, flags } => {
                let flags = match flags {
                    0 => RenameFlags::NOREPLACE,
                    1 => RenameFlags::EXCHANGE,
                    2 => RenameFlags::EXCHANGE | RenameFlags::NOREPLACE,
                    _ => RenameFlags::empty(),
                };
                done(rfs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags))
            }
            Op::Link { from, to } => {
                done(rfs::linkat(CWD, self.at(from), CWD, self.at(to), AtFlags::empty()))
            }
            Op::Unlink(at) => done(rfs::unlink(self.at(at))),
            Op::Symlink { at, target } => done(rfs::symlink(target.name(), self.at(at))),
            Op::MakeDir { at, mode } => done(rfs::mkdir(self.at(at), Mode::from_raw_mode(mode.into()))),
            Op::RemoveDir(at) => done(rfs::rmdir(self.at(at))),
            Op::MakePipe(at) => {
                done(rfs::mknodat(CWD, self.at(at), FileType::Fifo, Mode::from_raw_mode(0o600), 0))
            }
            _ => unreachable!(),
        }
    }

    /// The attributes that both filesystems must agree on.
    fn describe(&self, stat: &rfs::Stat) -> String {
        describe(stat, self.start)
    }
}

fn describe(stat: &rfs::Stat, start: i64) -> String {
    let time = if stat.st_mtime >= start {
        "now".into()
    } else {
        format!("{}.{}", stat.st_mtime, stat.st_mtime_nsec)
    };
    let owner = format!("{:o} {}:{} {time}", stat.st_mode, stat.st_uid, stat.st_gid);
    // A directory's size and link count depend on the store.
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => owner,
        _ => format!("{owner} links {} size {}", stat.st_nlink, stat.st_size),
    }
}

/// A group of the user, or root's.
fn group(which: u8) -> u32 {
    let own = rustix::process::getgroups().unwrap_or_default();
    own.get(which as usize).map_or(0, |group| group.as_raw())
}

/// ACLs in the kernel's format. The mask equals the owning group's permissions: a pipe in a vault has no
/// other.
fn acl(which: u8) -> Vec<u8> {
    const OWNER: u16 = 1;
    const USER: u16 = 2;
    const OWNING: u16 = 4;
    const GROUP: u16 = 8;
    const MASK: u16 = 16;
    const OTHERS: u16 = 32;
    let entries: &[(u16, u16, u32)] = match which {
        0 => &[(OWNER, 7, u32::MAX), (OWNING, 5, u32::MAX), (OTHERS, 4, u32::MAX)],
        1 => &[
            (OWNER, 6, u32::MAX),
            (USER, 4, 1),
            (OWNING, 4, u32::MAX),
            (MASK, 4, u32::MAX),
            (OTHERS, 0, u32::MAX),
        ],
        2 => &[
            (OWNER, 0, u32::MAX),
            (OWNING, 7, u32::MAX),
            (GROUP, 7, 61100),
            (MASK, 7, u32::MAX),
            (OTHERS, 7, u32::MAX),
        ],
        3 => &[
            (OWNER, 4, u32::MAX),
            (USER, 7, 1),
            (OWNING, 0, u32::MAX),
            (MASK, 0, u32::MAX),
            (OTHERS, 0, u32::MAX),
        ],
        // No ACL.
        _ => &[(OWNER, 7, u32::MAX)],
    };
    let entry = |(tag, rights, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// Makes a node that the user owns readable. Returns its previous mode.
fn open_up(path: &Path, stat: &rfs::Stat) -> Option<Mode> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let has_mode = matches!(kind, FileType::RegularFile | FileType::Directory);
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let closed = has_mode && !rustix::process::geteuid().is_root() && !mode.contains(Mode::RWXU);
    closed.then(|| rfs::chmod(path, mode | Mode::RWXU).expect("an owner's chmod"))?;
    Some(mode)
}

/// Removes a tree, whatever the modes in it.
pub fn remove(root: &Path) -> std::io::Result<()> {
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        rfs::chmod(&dir, Mode::RWXU)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(root)
}

fn done<T: Debug>(result: Result<T, Errno>) -> Answer {
    result.map(|value| format!("{value:?}"))
}

fn both(seconds: i64, nanoseconds: u32) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Bytes that depend on their position, so that shifted data is detected.
fn pattern(len: u32, fill: u8) -> Vec<u8> {
    (0..len).map(|i| fill ^ (i as u8) ^ ((i >> 8) as u8).rotate_left(3)).collect()
}

fn digest(bytes: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{} bytes {:016x}", bytes.len(), hasher.finish())
}

fn attributes(path: &Path) -> Result<Vec<String>, Errno> {
    let mut names = vec![0u8; 4096];
    let n = rfs::listxattr(path, &mut names)?;
    let mut names: Vec<String> =
        names[..n].split(|&b| b == 0).map(|s| String::from_utf8_lossy(s).into_owned()).collect();
    names.retain(|name| name.starts_with("user."));
    names.sort();
    Ok(names)
}

/// Names with their types. Marks an inode number that differs from the file's own.
fn list(path: &Path) -> Answer {
    let fd = rfs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut lines = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let stat = rfs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        // ".." of the root leads outside of what is compared.
        let right = stat.st_ino == entry.ino() || name == "..";
        let kind = entry.file_type() == FileType::from_raw_mode(stat.st_mode);
        lines.push(format!("{name} {:?} {right} {kind}", entry.file_type()));
    }
    lines.sort();
    Ok(lines.join("; "))
}

/// A complete tree: every path with its attributes and content, and which names refer to the same file.
pub fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut files: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    let mut closed_dirs = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir)).expect("list").map(|e| e.expect("entry")) {
            let path = dir.join(entry.file_name());
            let whole = root.join(&path);
            let meta = fs::symlink_metadata(&whole).expect("stat");
            let stat = rfs::lstat(&whole).expect("stat");
            let closed = open_up(&whole, &stat);
            let content = match FileType::from_raw_mode(meta.mode()) {
                FileType::RegularFile => {
                    digest(&fs::read(&whole).unwrap_or_else(|e| panic!("read {path:?}: {e}")))
                }
                FileType::Symlink => format!("{:?}", fs::read_link(&whole).expect("link")),
                FileType::Directory => {
                    open.push(path.clone());
                    String::new()
                }
                _ => String::new(),
            };
            if !meta.is_dir() {
                files.entry(meta.ino()).or_default().push(format!("{path:?}"));
            }
            let names = if meta.is_symlink() { Vec::new() } else { attributes(&whole).expect("attributes") };
            // Every time that was not set explicitly is from this test run, see `describe`.
            lines.push(format!("{path:?} {} {content} {names:?}", describe(&stat, 1_600_000_000)));
            match closed {
                Some(mode) if meta.is_dir() => closed_dirs.push((whole, mode)),
                Some(mode) => rfs::chmod(&whole, mode).expect("an owner's chmod"),
                None => {}
            }
        }
    }
    // Innermost directories first.
    for (dir, mode) in closed_dirs.into_iter().rev() {
        rfs::chmod(dir, mode).expect("an owner's chmod");
    }
    let mut links: Vec<String> = files
        .into_values()
        .map(|mut names| {
            names.sort();
            names.join(" = ")
        })
        .collect();
    lines.append(&mut links);
    lines.sort();
    lines
}

/// Whether files in `dir` can have user attributes.
pub fn has_attributes(dir: &Path) -> bool {
    let path = dir.join("probe");
    File::create(&path).is_ok() && rfs::setxattr(&path, "user.probe", b"1", XattrFlags::empty()).is_ok()
}
