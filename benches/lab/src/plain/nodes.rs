//! The numbers by which the kernel knows paths.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The kernel's number for the root.
const ROOT: u64 = 1;

/// A file that the kernel knows.
pub struct Node {
    path: Mutex<PathBuf>,
    /// End of the bytes that were written and dropped: the file's size when no data is stored.
    pub size: AtomicU64,
}

impl Node {
    /// Current path of the file.
    pub fn path(&self) -> PathBuf {
        self.path.lock().clone()
    }
}

/// Maps numbers to paths and paths to numbers.
pub struct Nodes(Mutex<Table>);

struct Table {
    next: u64,
    by_number: HashMap<u64, (Arc<Node>, u64)>,
    by_path: HashMap<PathBuf, u64>,
}

impl Nodes {
    /// Contains only the root.
    pub fn new(root: &Path) -> Self {
        let nodes =
            Nodes(Mutex::new(Table { next: ROOT, by_number: HashMap::new(), by_path: HashMap::new() }));
        nodes.found(root);
        nodes
    }

    /// The node with this number.
    pub fn get(&self, number: u64) -> Option<Arc<Node>> {
        self.0.lock().by_number.get(&number).map(|(node, _)| node.clone())
    }

    /// Counts a lookup of a path. Returns its number and node.
    pub fn found(&self, path: &Path) -> (u64, Arc<Node>) {
        let mut table = self.0.lock();
        if let Some(&number) = table.by_path.get(path)
            && let Some((node, lookups)) = table.by_number.get_mut(&number)
        {
            *lookups += 1;
            return (number, node.clone());
        }
        let number = table.next;
        table.next += 1;
        let node = Arc::new(Node { path: Mutex::new(path.to_owned()), size: AtomicU64::new(0) });
        table.by_number.insert(number, (node.clone(), 1));
        table.by_path.insert(path.to_owned(), number);
        (number, node)
    }

    /// Takes back `count` lookups.
    pub fn forget(&self, number: u64, count: u64) {
        let mut table = self.0.lock();
        let Some((node, lookups)) = table.by_number.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(count);
        if *lookups == 0 && number != ROOT {
            let path = node.path();
            table.by_number.remove(&number);
            if table.by_path.get(&path) == Some(&number) {
                table.by_path.remove(&path);
            }
        }
    }

    /// Removes a path that no longer exists.
    pub fn removed(&self, path: &Path) {
        self.0.lock().by_path.remove(path);
    }

    /// Updates all paths at or below `from`, which was renamed to `to`.
    pub fn renamed(&self, from: &Path, to: &Path) {
        let mut table = self.0.lock();
        let moved: Vec<(PathBuf, u64)> =
            table.by_path.iter().filter(|(p, _)| p.starts_with(from)).map(|(p, n)| (p.clone(), *n)).collect();
        for (old, number) in moved {
            let Ok(rest) = old.strip_prefix(from) else { continue };
            // Joining with an empty path would add a slash.
            let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            table.by_path.remove(&old);
            table.by_path.insert(new.clone(), number);
            if let Some((node, _)) = table.by_number.get(&number) {
                *node.path.lock() = new;
            }
        }
    }
}

impl Node {
    /// Records that bytes up to `end` were written.
    pub fn reaches(&self, end: u64) {
        self.size.fetch_max(end, Ordering::Relaxed);
    }
}
