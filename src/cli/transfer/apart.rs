//! Detects names that the target treats as the same, for example because it folds case. The copy of one
//! name must neither pass for the copy of another nor be replaced by it.

use super::{
    copy::{Copy, CopyDirs, CopyLevel, has, inode},
    side::{CopyTarget, Side},
};
use std::{ffi::OsStr, io};

impl<S: Side, T: CopyTarget> Copy<'_, S, T> {
    /// Fails if the target treats `name` as the same name as another one of the source, copied or not.
    pub(super) fn tell_apart(
        &self,
        CopyDirs { from, to }: &CopyDirs<S, T>,
        level: &mut CopyLevel,
        name: &OsStr,
    ) -> io::Result<()> {
        if level.before.contains(name) {
            return Ok(());
        }
        // Keep this open: some filesystems assign a new inode number to a node that has no holder.
        let Some(node) = self.target.node(to, name)? else { return Ok(()) };
        let found = inode(&self.target.stat(&node)?);
        let leads_there = |name: &OsStr| -> io::Result<bool> {
            let node = self.target.node(to, name)?;
            Ok(node
                .map(|node| self.target.stat(&node))
                .transpose()?
                .is_some_and(|stat| inode(&stat) == found))
        };
        for other in self.target.names(to)? {
            if other == name {
                return Ok(()); // Another program just created it.
            }
            if leads_there(&other).unwrap_or(false) {
                // An entry from before the copy may be this name in another spelling, unless another
                // source name claims it.
                return match !has(self.source, from, &other) && level.before.remove(&other) {
                    true => Ok(()),
                    false => Err(io::Error::other(format!(
                        "the target does not distinguish this name from {other:?}"
                    ))),
                };
            }
        }
        Err(io::Error::other("the target takes this name for another one"))
    }

    /// Renames a finished copy to its final name. Unless `replaces`, the name was free before: an entry
    /// that has appeared since is the copy of another source name, and an error.
    pub(super) fn give_name(
        &self,
        dir: &T::Dir,
        temporary: &OsStr,
        name: &OsStr,
        replaces: bool,
    ) -> io::Result<()> {
        if replaces {
            return self.target.rename(dir, temporary, name);
        }
        self.target.rename_new(dir, temporary, name).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("the target takes this name for another one"),
            _ => e,
        })
    }
}
