//! Resolution of a directory's number to the open directory.

use super::{
    errno,
    inodes::{self, Node, ROOT},
    server::Server,
};
use content::Result;
use metrics::Cache;
use std::sync::Arc;
use vault::{Dir, Kind, StoredName, Target};

/// Maximum number of parent directories of a node; the kernel's paths are much shorter.
const DEPTH: usize = 100_000;
/// Maximum number of attempts to walk to a directory if something moves meanwhile.
pub const TRIES: usize = 8;

/// A directory on the path.
enum ResolveStep {
    /// The kernel knows it.
    Known(Arc<Node>),
    /// Number of a directory that the kernel does not know.
    Forgotten(u64),
}

impl Server {
    /// Returns the directory with this number, reopening it from its nearest open ancestor if necessary.
    ///
    /// # Errors
    /// ENOTDIR; ESTALE if there is no such directory; ENOENT if it is gone.
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

    /// Whether a directory is open, or known to the kernel.
    pub fn is_at_hand(&self, number: u64) -> bool {
        // In this order: asking the store whether a known directory is gone would be useless.
        self.inodes.get(number).is_ok() || self.open_dir(number).is_some()
    }

    fn open_dir(&self, number: u64) -> Option<Arc<Dir>> {
        if number == ROOT {
            return Some(self.vault.root());
        }
        let dir = self.dirs.get(number)?;
        // Another process may have removed it. Ask before each request rather than after one that failed:
        // with an anchor, a name missing from a removed directory would be reported as a rollback.
        if self.vault.has_generations() && dir.is_gone() {
            self.dirs.drop_dir(number);
            return None;
        }
        Some(dir)
    }

    /// Climbs to an open directory and opens those below it. `None` if one of them moved meanwhile.
    fn walk(&self, number: u64) -> Result<Option<Arc<Dir>>> {
        let mut below = Vec::new();
        let mut at = number;
        let mut dir = loop {
            if let Some(dir) = self.open_dir(at) {
                break dir;
            }
            let step = match self.inodes.get(at) {
                Ok(node) if node.kind != Kind::Dir => return Err(errno::not_dir()),
                Ok(node) => ResolveStep::Known(node),
                Err(_) => ResolveStep::Forgotten(at),
            };
            if let (ResolveStep::Known(node), true) = (&step, below.is_empty())
                && let Some(pin) = node.names.read().pin()
            {
                return Ok(Some(self.vault.gone_dir(pin)?));
            }
            at = match &step {
                ResolveStep::Known(node) => node.names.read().any().ok_or_else(errno::no_entry)?.parent,
                ResolveStep::Forgotten(number) => self.parent_of_forgotten(*number)?,
            };
            below.push(step);
            if below.len() > DEPTH {
                return Err(errno::stale());
            }
        };
        for step in below.into_iter().rev() {
            let (number, opened) = match step {
                ResolveStep::Known(node) => {
                    let names = node.names.read();
                    let Some(name) = names.any().filter(|n| n.parent == at) else { return Ok(None) };
                    (node.number, self.open_inner(&dir, &name.stored, node.number, Some(&node))?)
                }
                ResolveStep::Forgotten(number) => {
                    let Some(name) = self.forgotten_child(&dir, number)? else { return Ok(None) };
                    (number, self.open_inner(&dir, &name, number, None)?)
                }
            };
            dir = opened;
            at = number;
        }
        Ok(Some(dir))
    }

    /// Opens and caches the directory `number` by its name in `dir`. `node` is the kernel's node, if
    /// known.
    fn open_inner(&self, dir: &Dir, name: &StoredName, number: u64, node: Option<&Node>) -> Result<Arc<Dir>> {
        let inner = self.vault.open_dir(dir, name)?;
        let key = inodes::key(&self.vault.stat(Target::Dir(&inner))?);
        let is_other = |node: &Node| !self.is_node(node, key, Target::Dir(&inner));
        if self.inodes.number_of(key) != number || node.is_some_and(is_other) {
            return Err(errno::stale());
        }
        // In a shared vault, a directory without an ID is not cached, because another machine may restore
        // the ID.
        if inner.has_id() || !self.vault.is_shared() {
            self.dirs.put(number, inner.clone());
        }
        Ok(inner)
    }
}
