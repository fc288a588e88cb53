//! Names that the target takes for one, as one does that folds case: what one name made must not pass for what another is to
//! make, nor be replaced by it.

use super::{
    copy::{Copy, Dirs, Level, has, inode},
    side::{Side, Target},
};
use std::{ffi::OsStr, io};

impl<S: Side, T: Target> Copy<'_, S, T> {
    /// Fails if the target takes a name for another one's that was copied or is to be.
    pub(super) fn tell_apart(
        &self,
        Dirs { from, to }: &Dirs<S, T>,
        level: &mut Level,
        name: &OsStr,
    ) -> io::Result<()> {
        if level.before.contains(name) {
            return Ok(());
        }
        // It stays open: some number a node anew once nobody holds it.
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
                return Ok(()); // Another program just made it.
            }
            if leads_there(&other).unwrap_or(false) {
                // What was there before is this name's own in another spelling, if no second one is taken for it.
                return match !has(self.source, from, &other) && level.before.remove(&other) {
                    true => Ok(()),
                    false => Err(io::Error::other(format!("the target takes this name for {other:?}"))),
                };
            }
        }
        Err(io::Error::other("the target takes this name for another one"))
    }

    /// Gives what was copied its name. What has got that since it was looked for is another name's.
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
