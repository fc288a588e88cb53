//! Finds the files, depth first. The entries of a folder are visited in the byte order of their names.

use super::source::{Source, SourceEntry, SourceKind};
use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vault::{Ladder, WalkPath};

/// A file, or a folder that could not be read.
pub(super) struct FoundFile<P> {
    /// Path of the file, beginning with the root as given by the user.
    pub path: PathBuf,
    /// The file's place, or why it cannot be read.
    pub place: io::Result<P>,
}

/// Passes every file below `roots` to `each`, until `stop` is set.
pub(super) fn walk<S: Source>(
    source: &S,
    roots: &[PathBuf],
    stop: &AtomicBool,
    each: &mut dyn FnMut(FoundFile<S::Place>),
) {
    for root in roots {
        match source.start(root) {
            Ok((kind, place)) => {
                if kind == SourceKind::Other {
                    each(FoundFile {
                        path: root.clone(),
                        place: Err(io::Error::other("not a regular file")),
                    });
                }
                enter(source, root, kind, place, stop, each);
            }
            Err(e) => each(FoundFile { path: root.clone(), place: Err(e) }),
        }
    }
}

/// Entries of a folder not yet visited, next one last, and the folder's path below the root.
struct FolderRest<S> {
    entries: Vec<SourceEntry<S>>,
    path: WalkPath,
}

fn enter<S: Source>(
    source: &S,
    root: &Path,
    kind: SourceKind,
    place: S::Place,
    stop: &AtomicBool,
    each: &mut dyn FnMut(FoundFile<S::Place>),
) {
    let list = |path: WalkPath, place: S::Place, each: &mut dyn FnMut(FoundFile<S::Place>)| match source
        .list(|| path.below(root), &place)
    {
        Ok((folder, mut entries)) => {
            entries.sort_unstable_by(|a, b| b.name.cmp(&a.name));
            Some((folder, FolderRest { entries, path }))
        }
        Err(e) => {
            each(FoundFile { path: path.below(root), place: Err(e) });
            None
        }
    };
    let top = match kind {
        SourceKind::File => return each(FoundFile { path: root.to_owned(), place: Ok(place) }),
        SourceKind::Folder => list(WalkPath::default(), place, each),
        SourceKind::Other => return,
    };
    let Some((folder, rest)) = top else { return };
    let mut ladder = Ladder::new(folder, rest);
    while let Some((folder, FolderRest { entries, path })) = ladder.present() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(SourceEntry { name, kind, stored }) = entries.pop() else {
            if let Some((lost, error)) = ladder.leave().and_then(|left| left.lost) {
                each_lost(root, lost, &error, each);
            }
            continue;
        };
        let path = path.join(&name);
        match kind {
            SourceKind::File => {
                each(FoundFile { path: path.below(root), place: Ok(source.place(folder, stored)) })
            }
            SourceKind::Folder => {
                if let Some((folder, rest)) = list(path.clone(), source.place(folder, stored), each)
                    && let Err(e) = ladder.enter(folder, rest)
                {
                    each(FoundFile { path: path.below(root), place: Err(e) });
                }
            }
            SourceKind::Other => {}
        }
    }
}

/// Reports folders that the walk could not return to and that still have entries to visit.
fn each_lost<P, S>(
    root: &Path,
    lost: Vec<FolderRest<S>>,
    error: &io::Error,
    each: &mut dyn FnMut(FoundFile<P>),
) {
    for FolderRest { path, .. } in lost.into_iter().filter(|rest| !rest.entries.is_empty()) {
        let error = io::Error::new(error.kind(), error.to_string());
        each(FoundFile { path: path.below(root), place: Err(error) });
    }
}

/// Number of readable files below `roots`, and their total bytes.
pub fn count<S: Source>(source: &S, roots: &[PathBuf], stop: &AtomicBool) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0_u64);
    walk(source, roots, stop, &mut |found| {
        if let Ok(place) = &found.place {
            files += 1;
            bytes = bytes.saturating_add(source.size(&found.path, place).unwrap_or(0));
        }
    });
    (files, bytes)
}
