//! Copies everything but directories: files, links and special files. None gets its final name before it
//! is complete.

use super::{
    copy::{Copy, CopyJob, Due, Metadata, Whole, inode},
    names::{damaged_name, temporary},
    report::Problem,
    side::{CopyTarget, New, Side},
};
use content::Segment;
use rustix::io::Errno;
use std::{ffi::OsStr, io, ops::Range};
use vault::{Kind, Stat, WalkPath};

/// Missing byte ranges and the reasons. No range if an attribute is missing.
type MissingRanges = Vec<(Option<Range<u64>>, String)>;

/// The set-user-id and set-group-id bits.
const SET_ID: u32 = 0o6000;
/// The attribute that grants a program capabilities.
const CAPABILITIES: &str = "security.capability";
/// Why an export drops some metadata.
const UNTRUSTED: &str = "metadata in the store is not authenticated; --trust-metadata keeps it";

impl<S: Side, T: CopyTarget> Copy<'_, S, T> {
    /// Copies a node other than a directory. `taken` tells whether a name for a damaged file is in use.
    pub(super) fn leaf(
        &mut self,
        job: CopyJob<S, T>,
        taken: &mut dyn FnMut(&OsStr) -> bool,
    ) -> io::Result<()> {
        if let Some((first, stat)) = self.links.get(&inode(&job.stat)).cloned()
            // The inode number may have been reused.
            && job.stat.nlink > 1
            && same(&job.stat, &stat)
        {
            return self.link(&job, &first);
        }
        let there = self.there(&job)?;
        let whole = match job.stat.kind {
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice
                if self.metadata == Metadata::Untrusted =>
            {
                self.progress.say(&format!("{:?}: a special file, left out", job.path.path()));
                self.report.special_left_out += 1;
                return Ok(());
            }
            _ if there.is_some_and(|there| same(&job.stat, &there)) => {
                self.report.present += 1;
                true
            }
            Kind::File => self.file(&job, there.is_some(), taken)?,
            _ => self.special(&job, there.is_some()).map(|()| true)?,
        };
        if whole && job.stat.nlink > 1 {
            self.links.insert(inode(&job.stat), (job.path.clone(), job.stat));
        }
        Ok(())
    }

    /// The attributes of the target's node of that name, if there is one.
    pub(super) fn there(&self, job: &CopyJob<S, T>) -> io::Result<Option<Stat>> {
        let there = self.target.node(job.dir, job.name)?;
        let there = there.map(|node| self.target.stat(&node)).transpose()?;
        match there {
            Some(there) if there.kind == Kind::Dir && job.stat.kind != Kind::Dir => {
                Err(io::Error::other("a directory has this name in the target"))
            }
            there => Ok(there),
        }
    }

    /// Creates another hard link to the copy of a file.
    fn link(&mut self, job: &CopyJob<S, T>, first: &WalkPath) -> io::Result<()> {
        let mut node = self.target.node_of_dir(&self.top)?;
        for name in &first.path() {
            node = self.target.node(&self.target.enter(&node)?, name)?.ok_or(Errno::NOENT)?;
        }
        let stat = self.target.stat(&node)?;
        let there = self.there(job)?;
        if there.is_some_and(|there| inode(&there) == inode(&stat)) {
            self.report.present += 1;
            return Ok(());
        }
        let temporary = temporary()?;
        let linked = self.target.link(&node, job.dir, &temporary);
        self.named(job, &temporary, there.is_some(), linked)
    }

    /// Copies a symbolic link, a FIFO, a socket or a device.
    fn special(&mut self, job: &CopyJob<S, T>, replaces: bool) -> io::Result<()> {
        let temporary = temporary()?;
        let text;
        let new = match job.stat.kind {
            Kind::Symlink => {
                text = self.source.link_target(&job.node)?;
                New::Symlink(&text)
            }
            kind => New::Special(kind, job.stat.rdev),
        };
        let made = self.target.make(job.dir, &temporary, new).and_then(|()| {
            let made = self.target.node(job.dir, &temporary)?.ok_or(Errno::NOENT)?;
            self.dress(&job.node, &job.stat, &made)
        });
        self.named(job, &temporary, replaces, made.map(drop))
    }

    /// Gives a new node its final name, or removes it if creating or renaming it failed.
    fn named(
        &mut self,
        job: &CopyJob<S, T>,
        temporary: &OsStr,
        replaces: bool,
        made: io::Result<()>,
    ) -> io::Result<()> {
        let named = made.and_then(|()| self.give_name(job.dir, temporary, job.name, replaces));
        match &named {
            Ok(()) => self.report.others += 1,
            // Keep the first error.
            Err(_) => drop(self.target.remove(job.dir, temporary)),
        }
        named
    }

    /// Copies a regular file. Returns false if it is damaged.
    fn file(
        &mut self,
        job: &CopyJob<S, T>,
        replaces: bool,
        taken: &mut dyn FnMut(&OsStr) -> bool,
    ) -> io::Result<bool> {
        let temporary = temporary()?;
        let file = self.target.create(job.dir, &temporary)?;
        let (damage, bytes) = match self.fill(job, &file) {
            Ok(filled) => filled,
            Err(e) => {
                let _ = self.target.remove(job.dir, &temporary); // Keep the first error.
                return Err(e);
            }
        };
        let whole = damage.is_empty();
        let (path, replaces) = match whole {
            true => (job.path.clone(), replaces),
            false => {
                let name = damaged_name(job.name, taken);
                let replaces = job.before.is_none_or(|before| before.contains(&name));
                (job.path.beside(&name), replaces)
            }
        };
        for (bytes, reason) in damage {
            let saved_as = Some(path.path());
            self.problem(Problem { path: job.path.path(), bytes, saved_as, reason });
        }
        self.progress.file();
        self.due_bytes += bytes;
        self.due.push(Due::File(Whole { file, dir: job.dir.clone(), temporary, path, bytes, replaces }));
        Ok(whole)
    }

    /// Writes everything that can be read of a file. Returns what is missing, and the number of bytes
    /// written.
    fn fill(&mut self, job: &CopyJob<S, T>, file: &T::File) -> io::Result<(MissingRanges, u64)> {
        let (mut damage, mut written) = (MissingRanges::new(), 0);
        let stat = self.source.each_segment(&job.node, &mut |segment| {
            if self.interrupt.check().is_err() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match segment {
                Segment::Data(at, bytes) => {
                    self.target.write(file, at, bytes)?;
                    self.progress.bytes(bytes.len() as u64);
                    written += bytes.len() as u64;
                }
                Segment::Damaged(range, reason) => add(&mut damage, range, reason),
            }
            Ok(())
        })?;
        self.target.set_len(file, stat.size)?;
        let lost = self.dress(&job.node, &stat, &self.target.node_of_file(file))?;
        damage.extend(lost.into_iter().map(|reason| (None, reason)));
        Ok((damage, written))
    }

    /// Sets a node's owner, extended attributes, mode and times, as far as they are trusted. Returns a
    /// message for each attribute that cannot be read.
    pub(super) fn dress(&mut self, from: &S::Node, stat: &Stat, to: &T::Node) -> io::Result<Vec<String>> {
        let without = match self.metadata {
            Metadata::Trusted => self.own(stat, to)?,
            Metadata::Untrusted => {
                self.leave_owner(stat, to)?;
                SET_ID
            }
        };
        let mut unreadable = Vec::new();
        if matches!(stat.kind, Kind::File | Kind::Dir) {
            for (name, value) in self.source.attributes(from)? {
                match value {
                    _ if name == CAPABILITIES && self.metadata == Metadata::Untrusted => {
                        self.report.lose(CAPABILITIES, UNTRUSTED.to_owned());
                    }
                    Err(e) => unreadable.push(format!("the attribute {name:?}: {e}")),
                    Ok(value) => self.attribute(to, &name, &value)?,
                }
            }
        }
        if stat.kind != Kind::Symlink {
            let mode = self.target.set_mode(to, stat.mode & !without);
            self.keep("permissions", mode)?;
        }
        let times = self.target.set_times(to, stat.atime, stat.mtime);
        self.keep("times", times)?;
        Ok(unreadable)
    }

    /// Sets a node's owner. Returns the mode bits that must be cleared.
    fn own(&mut self, stat: &Stat, to: &T::Node) -> io::Result<u32> {
        let owned = self.target.set_owner(to, Some(stat.uid), Some(stat.gid));
        if owned.is_err() {
            // The group alone may be permitted: this user may be a member.
            let _ = self.target.set_owner(to, None, Some(stat.gid));
        }
        // With these bits, the file would run as the wrong user.
        let without = if owned.is_err() && stat.kind != Kind::Dir { SET_ID } else { 0 };
        self.keep("owner", owned)?;
        Ok(without)
    }

    /// Leaves a node to this process's user, and reports differences from the source.
    fn leave_owner(&mut self, stat: &Stat, to: &T::Node) -> io::Result<()> {
        let own = self.target.stat(to)?;
        if (own.uid, own.gid) != (stat.uid, stat.gid) {
            self.report.lose("owner", UNTRUSTED.to_owned());
        }
        if stat.kind != Kind::Symlink && stat.mode & SET_ID != 0 {
            self.report.lose("set-user-id or set-group-id", UNTRUSTED.to_owned());
        }
        Ok(())
    }

    /// Sets an attribute, or reports that the target does not keep it. Fails if the disk is full:
    /// without the attribute, a file that got its name would pass for a complete copy in the next run.
    fn attribute(&mut self, to: &T::Node, name: &OsStr, value: &[u8]) -> io::Result<()> {
        let what = name.to_string_lossy();
        match self.target.set_attribute(to, name, value) {
            Err(e) if self.is_too_much(to, &e) => {
                self.report.lose(&what, e.to_string());
                Ok(())
            }
            set => self.keep(&what, set),
        }
    }

    /// Whether an attribute exceeds the target's limit for one node, regardless of free space.
    fn is_too_much(&self, to: &T::Node, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::TOOBIG | Errno::FBIG | Errno::RANGE | Errno::NAMETOOLONG) => true,
            // Many filesystems return the same error for a full node and for a full disk.
            Some(Errno::NOSPC) => self.target.room(to).is_ok_and(|room| room.is_left()),
            _ => false,
        }
    }

    /// Reports metadata that the target refuses to keep.
    fn keep(&mut self, what: &str, result: io::Result<()>) -> io::Result<()> {
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        match result {
            Err(e) if matches!(e.kind(), PermissionDenied | Unsupported | InvalidInput) => {
                self.report.lose(what, e.to_string());
                Ok(())
            }
            other => other,
        }
    }
}

/// Whether two nodes have the same type, size and modification time.
fn same(a: &Stat, b: &Stat) -> bool {
    let size = |stat: &Stat| match stat.kind {
        Kind::File | Kind::Symlink => stat.size,
        Kind::CharDevice | Kind::BlockDevice => stat.rdev,
        Kind::Dir | Kind::Fifo | Kind::Socket => 0,
    };
    (a.kind, a.mtime, size(a)) == (b.kind, b.mtime, size(b))
}

/// Adds a damaged range. Merges it with an adjacent one that has the same reason.
fn add(damage: &mut MissingRanges, range: Range<u64>, reason: String) {
    match damage.last_mut() {
        Some((Some(last), why)) if last.end == range.start && *why == reason => last.end = range.end,
        _ => damage.push((Some(range), reason)),
    }
}
