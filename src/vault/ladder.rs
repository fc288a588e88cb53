//! The directories of a walk, from where it began down to the present one. Few of them are open, however deep that is.

use super::{Dir, attr::key};
use crate::{format::dir_id::DirId, store::StoreDir};
use std::{io, sync::Arc};

/// Levels that are kept open. Further down the way back leads through "..", which finds another directory if one moved meanwhile.
const KEPT: usize = 64;

/// An open directory that can be left upwards.
pub trait Climb: Sized {
    /// What tells it from every other directory, and is needed to open it again.
    type Mark;

    /// Its mark.
    ///
    /// # Errors
    /// The store's.
    fn mark(&self) -> io::Result<Self::Mark>;

    /// The directory so many levels above, at least one, which must have this mark.
    ///
    /// # Errors
    /// The store's, or that it is another one.
    fn above(&self, levels: usize, mark: &Self::Mark) -> io::Result<Self>;
}

/// The present directory and those above it, each with what the walk has still to do in it.
pub struct Ladder<D: Climb, T> {
    present: Option<(D, T)>,
    above: Vec<Above<D, T>>,
}

struct Above<D: Climb, T> {
    /// Open, if it is one of the first levels.
    dir: Option<D>,
    mark: D::Mark,
    rest: T,
}

/// A directory that a walk has left.
pub struct Left<D, T> {
    /// The directory.
    pub dir: D,
    /// What there was still to do in it.
    pub rest: T,
    /// The same of directories above it to which there is no way back, and why.
    pub lost: Option<(Vec<T>, io::Error)>,
}

impl<D: Climb, T> Ladder<D, T> {
    /// Begins in a directory.
    pub fn new(dir: D, rest: T) -> Self {
        Ladder { present: Some((dir, rest)), above: Vec::new() }
    }

    /// The present directory; `None` once the first one was left.
    pub fn present(&mut self) -> Option<(&D, &mut T)> {
        self.present.as_mut().map(|(dir, rest)| (&*dir, rest))
    }

    /// Goes on in a directory that is in the present one.
    ///
    /// # Errors
    /// The store's: the present one cannot be told from others.
    pub fn enter(&mut self, dir: D, rest: T) -> io::Result<()> {
        let mark = self.present.as_ref().map(|(dir, _)| dir.mark()).transpose()?;
        if let (Some((above, rest)), Some(mark)) = (self.present.replace((dir, rest)), mark) {
            let dir = (self.above.len() < KEPT).then_some(above);
            self.above.push(Above { dir, mark, rest });
        }
        Ok(())
    }

    /// Leaves the present directory for the one above it.
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
            // The way leads past those that are not open to the last one that is.
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
