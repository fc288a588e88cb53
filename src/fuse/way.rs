//! The way from a directory's number to the directory, opened.

use super::{
    errno,
    inodes::{self, Node, ROOT},
    server::Server,
};
use crate::{
    metrics::{self, Cache},
    vault::{Dir, Kind, Result, StoredName, Target},
};
use std::sync::Arc;

/// Directories above a node at most; the kernel's paths are much shorter.
const DEPTH: usize = 100_000;
/// How often a way is gone again if something moves meanwhile.
pub const TRIES: usize = 8;

/// A directory on the way.
enum Step {
    /// One that the kernel knows.
    Known(Arc<Node>),
    /// The number of one that it does not.
    Forgotten(u64),
}

impl Server {
    /// The directory of a number, opened again from the nearest open one above if necessary.
    ///
    /// # Errors
    /// ENOTDIR, ESTALE if there is none, ENOENT if it is gone.
    pub fn dir(&self, number: u64) -> Result<Arc<Dir>> {
        for _ in 0..TRIES {
            let open = self.open_dir(number);
            metrics::asked(Cache::Folders, open.is_some());
            if let Some(dir) = open {
                return Ok(dir);
            }
            if let Some(dir) = self.walk(number)? {
                return Ok(dir);
            }
        }
        Err(errno::stale())
    }

    /// Whether a directory is open, or one that the kernel knows.
    pub fn is_at_hand(&self, number: u64) -> bool {
        self.open_dir(number).is_some() || self.inodes.get(number).is_ok()
    }

    fn open_dir(&self, number: u64) -> Option<Arc<Dir>> {
        if number == ROOT {
            return Some(self.vault.root());
        }
        let dir = self.dirs.get(number)?;
        // Somebody else may have removed it.
        if self.vault.has_generations() && dir.is_gone() {
            self.dirs.drop_dir(number);
            return None;
        }
        Some(dir)
    }

    /// Climbs to an open directory and opens those below it. `None` if one moved meanwhile.
    fn walk(&self, number: u64) -> Result<Option<Arc<Dir>>> {
        let mut below = Vec::new();
        let mut at = number;
        let mut dir = loop {
            if let Some(dir) = self.open_dir(at) {
                break dir;
            }
            let step = match self.inodes.get(at) {
                Ok(node) if node.kind != Kind::Dir => return Err(errno::not_dir()),
                Ok(node) => Step::Known(node),
                Err(_) => Step::Forgotten(at),
            };
            if let (Step::Known(node), true) = (&step, below.is_empty())
                && let Some(pin) = node.names.read().pin()
            {
                return Ok(Some(self.vault.gone_dir(pin)?));
            }
            at = match &step {
                Step::Known(node) => node.names.read().any().ok_or_else(errno::no_entry)?.parent,
                Step::Forgotten(number) => self.parent_of_forgotten(*number)?,
            };
            below.push(step);
            if below.len() > DEPTH {
                return Err(errno::stale());
            }
        };
        for step in below.into_iter().rev() {
            let (number, opened) = match step {
                Step::Known(node) => {
                    let names = node.names.read();
                    let Some(name) = names.any().filter(|n| n.parent == at) else { return Ok(None) };
                    (node.number, self.open_inner(&dir, &name.stored, node.number, Some(&node))?)
                }
                Step::Forgotten(number) => {
                    let Some(name) = self.forgotten_child(&dir, number)? else { return Ok(None) };
                    (number, self.open_inner(&dir, &name, number, None)?)
                }
            };
            dir = opened;
            at = number;
        }
        Ok(Some(dir))
    }

    /// Opens the directory `number` under its name in `dir`, and keeps it. It is the kernel's `node`, if that is known.
    fn open_inner(&self, dir: &Dir, name: &StoredName, number: u64, node: Option<&Node>) -> Result<Arc<Dir>> {
        let inner = self.vault.open_dir(dir, name)?;
        let key = inodes::key(&self.vault.stat(Target::Dir(&inner))?);
        let is_other = |node: &Node| !self.is_node(node, key, Target::Dir(&inner));
        if self.inodes.number_of(key) != number || node.is_some_and(is_other) {
            return Err(errno::stale());
        }
        // Another machine may put the id of one without back.
        if inner.has_id() || !self.vault.is_shared() {
            self.dirs.put(number, inner.clone());
        }
        Ok(inner)
    }
}
