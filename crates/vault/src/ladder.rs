//! The directories of a walk, from its start down to the present one. Only a few of them are open,
//! however deep the walk is.

use super::{Dir, attr::key};
use format::dir_id::DirId;
use std::{io, sync::Arc};
use store::StoreDir;

/// Number of levels kept open. Below them, the way back uses "..", which finds another directory if one
/// was moved meanwhile.
const KEPT: usize = 64;

/// An open directory from which a walk can return to those above.
pub trait Climb: Sized {
    /// Identifies the directory, and suffices to open it again.
    type Mark;

    /// The directory's mark.
    ///
    /// # Errors
    /// The store's error.
    fn mark(&self) -> io::Result<Self::Mark>;

    /// Opens the directory `levels` (at least one) above, which must have this mark.
    ///
    /// # Errors
    /// The store's error, or an error that it is another directory.
    fn above(&self, levels: usize, mark: &Self::Mark) -> io::Result<Self>;
}

/// The present directory and those above it, each with the walk's remaining work in it.
pub struct Ladder<D: Climb, T> {
    present: Option<(D, T)>,
    above: Vec<Above<D, T>>,
}

struct Above<D: Climb, T> {
    /// `Some` for the first levels, which stay open.
    dir: Option<D>,
    mark: D::Mark,
    rest: T,
}

/// A directory that the walk has left.
pub struct Left<D, T> {
    /// The directory.
    pub dir: D,
    /// Remaining work in it.
    pub rest: T,
    /// Remaining work in each directory above it that cannot be reached again, and the first error.
    pub lost: Option<(Vec<T>, io::Error)>,
}

impl<D: Climb, T> Ladder<D, T> {
    /// Begins a walk in `dir`.
    pub fn new(dir: D, rest: T) -> Self {
        Ladder { present: Some((dir, rest)), above: Vec::new() }
    }

    /// The present directory; `None` once the first one has been left.
    pub fn present(&mut self) -> Option<(&D, &mut T)> {
        self.present.as_mut().map(|(dir, rest)| (&*dir, rest))
    }

    /// Descends into `dir`, a subdirectory of the present one.
    ///
    /// # Errors
    /// The store's error: the present directory cannot be identified for the way back.
    pub fn enter(&mut self, dir: D, rest: T) -> io::Result<()> {
        let mark = self.present.as_ref().map(|(dir, _)| dir.mark()).transpose()?;
        if let (Some((above, rest)), Some(mark)) = (self.present.replace((dir, rest)), mark) {
            let dir = (self.above.len() < KEPT).then_some(above);
            self.above.push(Above { dir, mark, rest });
        }
        Ok(())
    }

    /// Leaves the present directory for the nearest one above it that can be reached.
    pub fn leave(&mut self) -> Option<Left<D, T>> {
        let (dir, rest) = self.present.take()?;
        let mut lost: Option<(Vec<T>, io::Error)> = None;
        for levels in 1.. {
            let Some(Above { dir: kept, mark, rest }) = self.above.pop() else { break };
            match kept.map_or_else(|| dir.above(levels, &mark), Ok) {
                Ok(above) => {
                    self.present = Some((above, rest));
                    break;
                }
                Err(e) => lost.get_or_insert((Vec::new(), e)).0.push(rest),
            }
        }
        Some(Left { dir, rest, lost })
    }
}

impl Climb for StoreDir {
    type Mark = (u64, u64);

    fn mark(&self) -> io::Result<Self::Mark> {
        Ok(key(&self.itself().stat()?))
    }

    fn above(&self, levels: usize, mark: &Self::Mark) -> io::Result<Self> {
        let mut dir = self.parent()?;
        for _ in 1..levels {
            dir = dir.parent()?;
        }
        match dir.mark()? == *mark {
            true => Ok(dir),
            false => Err(io::Error::other("a directory was moved meanwhile")),
        }
    }
}

impl Climb for Arc<Dir> {
    type Mark = ((u64, u64), Option<DirId>);

    fn mark(&self) -> io::Result<Self::Mark> {
        Ok((self.store.mark()?, self.id))
    }

    fn above(&self, levels: usize, (key, id): &Self::Mark) -> io::Result<Self> {
        Ok(Arc::new(Dir::new(self.store.above(levels, key)?, *id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_directory_that_moved_is_not_left_for_another_one() {
        let place = tempfile::tempdir().unwrap();
        let open = || StoreDir::open_path(place.path()).unwrap();
        let [name, moved] = ["dir", "moved"].map(OsStr::new);
        let (last, from) = (KEPT + 5, KEPT + 3);
        let mut ladder = Ladder::new(open(), 0);
        for level in 1..=last {
            let (dir, _) = ladder.present().unwrap();
            dir.mkdir(name, 0o700).unwrap();
            let inner = dir.open_dir(name).unwrap();
            if level == from {
                dir.rename(name, &open(), moved).unwrap();
            }
            ladder.enter(inner, level).unwrap();
        }
        for level in (from..=last).rev() {
            let left = ladder.leave().unwrap();
            let lost = left.lost.map(|(lost, _)| lost);
            // Levels that are not open are skipped, up to the last one that is.
            let expected = (level == from).then(|| (KEPT..from).rev().collect());
            assert_eq!((left.rest, lost), (level, expected));
        }
        for level in (0..KEPT).rev() {
            let left = ladder.leave().unwrap();
            assert_eq!((left.rest, left.lost.is_none()), (level, true));
        }
        assert!(ladder.leave().is_none() && ladder.present().is_none());
    }
}
