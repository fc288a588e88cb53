//! A walk through all directories below one, without recursion and without a descriptor for each level: the store may be deeper
//! than the stack, and deeper than the limit of open files.

use super::{Dir, attr::key};
use crate::{format::dir_id::DirId, store::StoreDir};
use std::{ffi::OsString, io, sync::Arc};

/// Levels that are kept open. Further down the walk climbs through "..", which finds another directory if one moved meanwhile.
const KEPT: usize = 64;

/// Visits each directory of a walk, and decides where it goes on.
pub(super) trait Visitor {
    /// Why a visitor ended the walk early.
    type Stop;

    /// Looks at a directory, before those in it; returns the stored names of the directories in it to visit.
    fn visit(&mut self, dir: &Arc<Dir>) -> Result<Vec<OsString>, Self::Stop>;

    /// Opens a directory in another one; `None` leaves it out.
    fn open(&mut self, dir: &Arc<Dir>, name: OsString) -> Result<Option<Arc<Dir>>, Self::Stop>;

    /// The way up from a directory was lost: directories beside those above it are left out.
    fn lost(&mut self, dir: &Arc<Dir>, error: io::Error) -> Result<(), Self::Stop>;
}

/// A directory above the present one.
struct Above {
    /// Directories in it that are still to be visited.
    rest: Vec<OsString>,
    /// Open, if it is one of the first levels.
    dir: Option<Arc<Dir>>,
    key: (u64, u64),
    id: Option<DirId>,
}

/// Visits `dir` and all below it.
///
/// # Errors
/// The visitor's, if it ends the walk.
pub(super) fn descend<V: Visitor>(visitor: &mut V, dir: &Arc<Dir>) -> Result<(), V::Stop> {
    let mut at = dir.clone();
    let mut rest = visitor.visit(&at)?;
    let mut above: Vec<Above> = Vec::new();
    // Levels above `at`: more than `above` has once the way up was lost.
    let mut depth = 0;
    loop {
        if let Some(name) = rest.pop() {
            let Some(inner) = visitor.open(&at, name)? else { continue };
            let raw = match at.store.itself().stat() {
                Ok(raw) => raw,
                Err(e) => {
                    visitor.lost(&at, e)?;
                    continue;
                }
            };
            let kept = (above.len() < KEPT).then(|| at.clone());
            let next = visitor.visit(&inner)?;
            above.push(Above {
                rest: std::mem::replace(&mut rest, next),
                dir: kept,
                key: key(&raw),
                id: at.id,
            });
            (at, depth) = (inner, above.len());
            continue;
        }
        let Some(left) = above.iter().rposition(|level| !level.rest.is_empty()) else { return Ok(()) };
        above.truncate(left + 1);
        let Some(Above { rest: others, dir, key, id }) = above.pop() else { return Ok(()) };
        match dir.map_or_else(
            || climb(&at.store, depth - left, key).map(|store| Arc::new(Dir::new(store, id))),
            Ok,
        ) {
            Ok(dir) => (at, rest, depth) = (dir, others, left),
            Err(e) => visitor.lost(&at, e)?,
        }
    }
}

/// The directory so many levels above, which must be the one with this key.
fn climb(from: &StoreDir, steps: usize, expected: (u64, u64)) -> io::Result<StoreDir> {
    let mut dir = from.parent()?;
    for _ in 1..steps {
        dir = dir.parent()?;
    }
    match key(&dir.itself().stat()?) == expected {
        true => Ok(dir),
        false => Err(io::Error::other("a directory was moved meanwhile")),
    }
}
