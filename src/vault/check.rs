//! Checking a vault that is open for reading: what stands in a directory of the store, and which parts of a node do not
//! verify. Nothing is changed.

use super::{Dir, DirEntry, Error, File, Kind, Result, StoredName, Target, Vault, names::NameOf};
use crate::{
    format::{
        layout,
        name::{ASIDE, Class},
    },
    store::is_dots,
};
use std::{ffi::OsString, os::unix::ffi::OsStrExt, sync::Arc};

/// Bytes of a file that are read at once: enough for the engine to work on all cores.
const PIECE: u64 = 8 << 20;

/// What stands in a directory of the store.
#[derive(Default)]
pub struct Contents {
    /// Entries whose names authenticate.
    pub entries: Vec<DirEntry>,
    /// Stored names of entries that do not, with the reason.
    pub damaged: Vec<(OsString, String)>,
    /// Names that are none of the vault's.
    pub strays: Vec<OsString>,
    /// Left-overs of unfinished writes, and what was set aside.
    pub left_over: Vec<OsString>,
}

/// Something that does not verify.
pub struct Flaw {
    /// Which part of the node.
    pub part: Part,
    /// What is wrong.
    pub reason: String,
}

/// A part of a node.
pub enum Part {
    /// The node itself, or all of a file's content.
    Whole,
    /// The bytes of a file's content from the first one to the one before the second.
    Bytes(u64, u64),
    /// The attribute with this name in the store.
    Attribute(OsString),
}

impl Flaw {
    /// One of the node, or of all of its content.
    pub fn whole(reason: String) -> Self {
        Flaw { part: Part::Whole, reason }
    }

    fn of(error: &Error) -> Self {
        Flaw::whole(error.to_string())
    }
}

impl Vault {
    /// Everything that stands in a directory of the store.
    ///
    /// # Errors
    /// The store's.
    pub fn inspect_dir(&self, dir: &Arc<Dir>) -> Result<Contents> {
        let mut contents = Contents::default();
        let listed = self.with_access(&dir.store.itself(), 0o500, || dir.store.list())?;
        for entry in listed.into_iter().filter(|entry| !is_dots(&entry.name)) {
            match self.name_of_entry(dir, &entry) {
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
                NameOf::Entry(Err(_)) if !self.keys.names.has_form(entry.name.as_bytes()) => {
                    contents.strays.push(entry.name);
                }
                NameOf::Entry(Err(reason)) => contents.damaged.push((entry.name, reason)),
            }
        }
        Ok(contents)
    }

    /// Checks what a node has besides its content: attributes, and the target of a link.
    pub fn check_node(&self, dir: &Dir, entry: &DirEntry) -> Vec<Flaw> {
        let target = Target::Entry(dir, &entry.stored);
        let mut flaws = Vec::new();
        if let Err(e) = self.check_attributes(target, &mut flaws) {
            flaws.push(Flaw::of(&e));
        }
        if entry.kind == Kind::Symlink
            && let Err(e) = self.readlink(dir, &entry.stored)
        {
            flaws.push(Flaw::of(&e));
        }
        flaws
    }

    fn check_attributes(&self, target: Target, flaws: &mut Vec<Flaw>) -> Result<()> {
        if !self.has_xattrs(target)? {
            return Ok(());
        }
        for (stored, name) in self.attribute_names(target)? {
            let reason = match name {
                None => "its name does not authenticate".to_owned(),
                Some(name) => match self.get_xattr(target, &name) {
                    Ok(_) | Err(Error::NoAttribute) => continue,
                    Err(e) => e.to_string(),
                },
            };
            let reason = format!("attribute {}: {reason}", stored.display());
            flaws.push(Flaw { part: Part::Attribute(stored), reason });
        }
        Ok(())
    }

    /// Checks the content of a file: its header, its length and its tree, and if `all`, every tag. `progress` is told how
    /// many bytes are done, and says whether to go on.
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
        let mut at = 0;
        while let Some((start, end)) = next_extent(&open.file, &mut at, &mut flaws) {
            if !(if all {
                check_extent(&open.file, start..end, &mut flaws, progress)
            } else {
                progress(end - start)
            }) {
                break;
            }
        }
        self.files().release(open);
        flaws
    }
}

/// The next range with data from `at` on. Groups whose entries do not verify are stepped over.
fn next_extent(file: &File, at: &mut u64, flaws: &mut Vec<Flaw>) -> Option<(u64, u64)> {
    // The first byte behind the group of another.
    let behind_group = |at: u64| {
        let next = layout::first_chunk(layout::group_of(at / layout::CHUNK) + 1);
        file.size().min(next.saturating_mul(layout::CHUNK))
    };
    loop {
        match file.seek(*at, true) {
            Ok(start) => {
                // Where a later group does not verify, this one has data up to its end.
                *at = file.seek(start, false).unwrap_or_else(|_| behind_group(start));
                return Some((start, *at));
            }
            Err(Error::NoData) => return None,
            // This group does not verify, or it has holes up to its end and a later one does not.
            Err(_) => {
                let end = behind_group(*at);
                if let Err(e) = file.check_group(layout::group_of(*at / layout::CHUNK)) {
                    flaws.push(Flaw { part: Part::Bytes(*at, end), reason: e.to_string() });
                }
                *at = end;
            }
        }
    }
}

/// Verifies a range with data; false to stop.
fn check_extent(
    file: &File,
    range: std::ops::Range<u64>,
    flaws: &mut Vec<Flaw>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> bool {
    let mut buffer = vec![0; PIECE.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let len = PIECE.min(range.end - at);
        if file.read(at, &mut buffer[..len as usize]).is_err() {
            check_chunks(file, at..at + len, flaws);
        }
        at += len;
        if !progress(len) {
            return false;
        }
    }
    true
}

/// Finds the chunks that do not verify; neighbours with one reason are one flaw.
fn check_chunks(file: &File, range: std::ops::Range<u64>, flaws: &mut Vec<Flaw>) {
    let mut at = range.start;
    while at < range.end {
        let len = (layout::CHUNK - at % layout::CHUNK).min(range.end - at);
        if let Err(e) = file.read(at, &mut [0; layout::CHUNK as usize][..len as usize]) {
            let reason = match e {
                Error::Damaged(damage) => damage.reason.to_owned(),
                other => other.to_string(),
            };
            match flaws.last_mut() {
                Some(Flaw { part: Part::Bytes(_, end), reason: before })
                    if *end == at && *before == reason =>
                {
                    *end = at + len;
                }
                _ => flaws.push(Flaw { part: Part::Bytes(at, at + len), reason }),
            }
        }
        at += len;
    }
}
