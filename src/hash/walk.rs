//! Finding the files: folders depth first, the entries of each in the order of their names' bytes.

use super::source::{Kind, Source};
use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// A file, or a folder that could not be read.
pub(super) struct Found<P> {
    /// Its path, beginning with the root as the user named it.
    pub path: PathBuf,
    /// Where it is, or why it cannot be read.
    pub place: io::Result<P>,
}

/// Passes every file below `roots` to `each`, until `stop` is set.
pub(super) fn walk<S: Source>(
    source: &S,
    roots: &[PathBuf],
    stop: &AtomicBool,
    each: &mut dyn FnMut(Found<S::Place>),
) {
    for root in roots {
        match source.start(root) {
            Ok((kind, place)) => {
                if kind == Kind::Other {
                    each(Found { path: root.clone(), place: Err(io::Error::other("not a regular file")) });
                }
                enter(source, root, kind, place, stop, each);
            }
            Err(e) => each(Found { path: root.clone(), place: Err(e) }),
        }
    }
}

fn enter<S: Source>(
    source: &S,
    root: &Path,
    kind: Kind,
    place: S::Place,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Found<S::Place>),
) {
    // Nodes to visit, the next one last.
    let mut left = vec![(root.to_owned(), kind, place)];
    while let Some((path, kind, place)) = left.pop() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match kind {
            Kind::File => each(Found { path, place: Ok(place) }),
            Kind::Folder => match source.list(&path, &place) {
                Ok(mut entries) => {
                    entries.sort_unstable_by(|a, b| b.name.cmp(&a.name));
                    left.extend(entries.into_iter().map(|e| (path.join(&e.name), e.kind, e.place)));
                }
                Err(e) => each(Found { path, place: Err(e) }),
            },
            Kind::Other => {}
        }
    }
}

/// The number of readable files below `roots`, and their bytes.
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
