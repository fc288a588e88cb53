//! Checks a vault that is open for reading: finds what a directory of the store contains, and which
//! parts of a node do not verify. Changes nothing.

use super::{
    Dir, DirEntry, Kind, StoredName, Target, Vault, anchor::AnchoredIdentity, names::NameOf,
    xattr_owner::special,
};
use content::{Error, File, Mismatch, Refused, Result, Segment, each_piece, next_range};
use format::name::{ASIDE, Class, copied_from, is_removed_over_nfs};
use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
    io,
    ops::Range,
    os::unix::ffi::OsStrExt,
    sync::Arc,
};
use store::is_dots;

/// Contents of a directory of the store, by category.
#[derive(Default)]
pub struct Contents {
    /// Entries whose names authenticate.
    pub entries: Vec<DirEntry>,
    /// Stored names of entries whose names do not authenticate, with the reason.
    pub damaged: Vec<(OsString, String)>,
    /// Stored names of entries whose names cannot be read, with the reason.
    pub unread: Vec<(OsString, String)>,
    /// Names that the vault did not write, with the origin that they indicate.
    pub strays: Vec<(OsString, Origin)>,
    /// Leftovers of unfinished writes, and anything that was set aside.
    pub left_over: Vec<OsString>,
}

/// Origin of a file that does not belong to the vault, as far as its name shows.
pub enum Origin {
    /// Another program's copy of the entry with this name: sync programs name conflict copies this way.
    CopyOf(OsString),
    /// A copy of this internal file of the vault.
    CopyOfOwn(&'static str),
    /// Removed while a program had it open; an NFS client keeps it.
    RemovedOverNfs,
    /// Not apparent from the name.
    Unknown,
}

/// Something that does not verify.
pub struct Flaw {
    /// The affected part of the node.
    pub part: Part,
    /// The reason, for people to read.
    pub reason: String,
}

/// A part of a node.
pub enum Part {
    /// The node itself, or all of a file's content.
    Whole,
    /// Bytes of a file's content, from the first (inclusive) to the second (exclusive).
    Bytes(u64, u64),
    /// The attribute with this name in the store.
    Attribute(OsString),
    /// The list of attributes that the store did not accept.
    AttributeList,
    /// The node itself, which differs from what an anchor has.
    Anchored(Mismatch),
    /// A part that could not be read, which does not mean that it is damaged.
    Unread,
}

impl Flaw {
    /// A flaw of the node itself, or of all its content.
    pub fn whole(reason: String) -> Self {
        Flaw { part: Part::Whole, reason }
    }

    /// The flaw that this error reports.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Refused(refused) => Flaw::refused(refused),
            Error::Damaged(damage) => Flaw::whole(damage.to_string()),
            other => Flaw::unread(other.to_string()),
        }
    }

    /// A flaw of something that could not be read.
    pub fn unread(reason: String) -> Self {
        Flaw { part: Part::Unread, reason }
    }

    /// A mismatch with the anchor.
    pub fn refused(refused: &Refused) -> Self {
        Flaw { part: Part::Anchored(refused.mismatch), reason: refused.to_string() }
    }
}

impl Vault {
    /// Lists everything in a directory of the store.
    ///
    /// # Errors
    /// The store's.
    pub fn inspect_dir(&self, dir: &Arc<Dir>) -> Result<Contents> {
        let mut contents = Contents::default();
        let listed = self.with_access(&dir.store.itself(), 0o500, || dir.store.list())?;
        for entry in listed.into_iter().filter(|entry| !is_dots(&entry.name)) {
            let has_form = self.keys().names.has_form(entry.name.as_bytes());
            match self.name_of_entry(dir, &entry) {
                NameOf::Own(_) | NameOf::Entry(Err(_)) if !has_form => {
                    let origin = self.origin(dir, &entry.name);
                    contents.strays.push((entry.name, origin));
                }
                NameOf::Own(class) => {
                    if class == Class::Temporary || entry.name.as_bytes().starts_with(ASIDE.as_bytes()) {
                        contents.left_over.push(entry.name);
                    }
                }
                NameOf::Entry(Ok(name)) => {
                    let Some(kind) = Kind::from_store(entry.kind) else { continue };
                    let (stored, ino) = (StoredName(entry.name), entry.ino);
                    contents.entries.push(DirEntry { name, stored, kind, ino, next: 0 });
                }
                NameOf::Entry(Err(reason)) => match self.named_after(dir, &entry.name) {
                    // A suffix that another program appended happens to give the name a valid length.
                    Some(name) => contents.strays.push((entry.name, Origin::CopyOf(name))),
                    None => contents.damaged.push((entry.name, reason)),
                },
                NameOf::Unread(reason) => contents.unread.push((entry.name, reason)),
            }
        }
        Ok(contents)
    }

    fn origin(&self, dir: &Dir, stray: &OsStr) -> Origin {
        if is_removed_over_nfs(stray.as_bytes()) {
            return Origin::RemovedOverNfs;
        }
        match copied_from(stray.as_bytes()) {
            Some(own) => Origin::CopyOfOwn(own),
            None => self.named_after(dir, stray).map_or(Origin::Unknown, Origin::CopyOf),
        }
    }

    /// Checks a node apart from its content: its attributes, and the target of a link. Attributes are
    /// bound to a file's header or a directory's id. If that is damaged, nothing is known about them and
    /// nothing is reported.
    pub fn check_node(&self, dir: &Dir, entry: &DirEntry) -> Vec<Flaw> {
        let target = Target::Entry(dir, &entry.stored);
        let mut flaws = Vec::new();
        if let Err(e) = self.check_name(dir, entry) {
            return vec![Flaw::of(&e)];
        }
        if let Err(e) = self.check_attributes(target, &mut flaws) {
            flaws.push(Flaw::of(&e));
        }
        if entry.kind == Kind::Symlink {
            flaws.extend(self.readlink(dir, &entry.stored).err().map(|e| Flaw::of(&e)));
        }
        flaws
    }

    /// Checks that an anchor has the name, and the node that it leads to.
    fn check_name(&self, dir: &Dir, entry: &DirEntry) -> Result<()> {
        match entry.kind {
            Kind::File | Kind::Dir | Kind::Symlink => Ok(()), // Checked when it is opened or read.
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                let special = || Ok(special(&dir.store.stat(&entry.stored.0)?));
                let identity = |known: &Option<_>| Ok(known.map(AnchoredIdentity::Special));
                self.compared_entry(dir, &entry.stored, special, identity).map(drop)
            }
        }
    }

    fn check_attributes(&self, target: Target, flaws: &mut Vec<Flaw>) -> Result<()> {
        if !self.has_xattrs(target)? {
            return Ok(());
        }
        let identity = match self.identity(&target, &target.node()?, false) {
            // Reported when the content is checked or the directory is opened.
            Err(Error::Damaged(_) | Error::Refused(_)) => return Ok(()),
            found => found?,
        };
        match self.list_of(&target, &target.node()?) {
            Ok(_) => {}
            Err(Error::Damaged(damage)) => {
                // The attributes on the node may be older than the list, so they are not checked.
                flaws.push(Flaw { part: Part::AttributeList, reason: damage.to_string() });
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        for (stored, name) in self.attribute_names(target)? {
            let told = |reason: &dyn Display| format!("attribute {}: {reason}", stored.display());
            flaws.push(match name {
                None => {
                    let reason = told(&"its name does not authenticate");
                    Flaw { part: Part::Attribute(stored), reason }
                }
                Some(name) => match self.check_attribute(&target, identity.as_ref(), &name) {
                    Ok(()) => continue,
                    Err(Error::Damaged(damage)) => {
                        let reason = told(&damage);
                        Flaw { part: Part::Attribute(stored), reason }
                    }
                    Err(e) => Flaw::unread(told(&e)),
                },
            });
        }
        Ok(())
    }

    /// Checks a file's header, length and tree and, with `all`, every tag. `progress` receives the
    /// number of bytes just checked, and returns whether to continue.
    pub fn check_content(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        all: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<Flaw> {
        let open = match self.open_file(dir, &entry.stored, false) {
            Ok(open) => open,
            Err(e) => return vec![Flaw::of(&e)],
        };
        let mut flaws = Vec::new();
        if let Err(e) = open.file.check_length() {
            flaws.push(Flaw::of(&e));
        }
        if open.file.is_blank() {
            flaws.push(Flaw::whole(
                "its header is blank: nothing was committed, or somebody blanked it".to_owned(),
            ));
        }
        check_ranges(&open.file, all, &mut flaws, progress);
        self.files().release(open);
        flaws
    }
}

fn check_ranges(file: &File, all: bool, flaws: &mut Vec<Flaw>, progress: &mut dyn FnMut(u64) -> bool) {
    let mut go_on = |bytes| if progress(bytes) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) };
    let (mut at, mut buffer) = (0, Vec::new());
    while let Some((range, damage)) = next_range(file, at) {
        at = range.end;
        let done = match damage {
            Some(reason) => {
                let len = range.end - range.start;
                note_chunk(flaws, range, reason);
                go_on(len)
            }
            None if all => each_piece(file, range, &mut buffer, &mut |segment| match segment {
                Segment::Data(_, bytes) => go_on(bytes.len() as u64),
                Segment::Damaged(bytes, reason) => {
                    let len = bytes.end - bytes.start;
                    note_chunk(flaws, bytes, reason);
                    go_on(len)
                }
            }),
            None => go_on(range.end - range.start),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Records a damaged range. Adjacent ranges with the same reason become one flaw.
fn note_chunk(flaws: &mut Vec<Flaw>, bytes: Range<u64>, reason: String) {
    match flaws.last_mut() {
        Some(Flaw { part: Part::Bytes(_, end), reason: before })
            if *end == bytes.start && *before == reason =>
        {
            *end = bytes.end;
        }
        _ => flaws.push(Flaw { part: Part::Bytes(bytes.start, bytes.end), reason }),
    }
}
