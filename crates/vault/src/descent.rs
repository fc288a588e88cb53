//! A walk through all directories below a given one, without recursion and without one descriptor per
//! level: the store may be deeper than the stack and than the limit on open files.

use super::{Dir, Ladder, ladder::Left};
use std::{ffi::OsString, io, sync::Arc};

/// Visits each directory of a walk, and decides which ones to enter.
pub(super) trait Visitor {
    /// Why a visitor ended the walk early.
    type Stop;

    /// Visits a directory before its subdirectories; returns the stored names of the subdirectories to
    /// visit.
    fn visit(&mut self, dir: &Arc<Dir>) -> Result<Vec<OsString>, Self::Stop>;

    /// Opens a subdirectory; `None` skips it.
    fn open(&mut self, dir: &Arc<Dir>, name: OsString) -> Result<Option<Arc<Dir>>, Self::Stop>;

    /// The way back up from a directory was lost, so the remaining siblings of its ancestors are
    /// skipped.
    fn lost(&mut self, dir: &Arc<Dir>, error: io::Error) -> Result<(), Self::Stop>;
}

/// Visits `dir` and all directories below it.
///
/// # Errors
/// The visitor's, if it ends the walk early.
pub(super) fn descend<V: Visitor>(visitor: &mut V, dir: &Arc<Dir>) -> Result<(), V::Stop> {
    let mut ladder = Ladder::new(dir.clone(), visitor.visit(dir)?);
    while let Some((dir, rest)) = ladder.present() {
        let Some(name) = rest.pop() else {
            if let Some(Left { dir, lost: Some((lost, error)), .. }) = ladder.leave()
                && lost.iter().any(|rest| !rest.is_empty())
            {
                visitor.lost(&dir, error)?;
            }
            continue;
        };
        let Some(inner) = visitor.open(dir, name)? else { continue };
        let rest = visitor.visit(&inner)?;
        if let Err(e) = ladder.enter(inner.clone(), rest) {
            visitor.lost(&inner, e)?;
        }
    }
    Ok(())
}
