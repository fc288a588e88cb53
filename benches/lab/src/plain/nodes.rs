//! Which number the kernel knows a path by.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The kernel's number of the root.
const ROOT: u64 = 1;

/// A file that the kernel knows.
pub struct Node {
    path: Mutex<PathBuf>,
    /// Bytes that were written to it and dropped: its size where no data is stored.
    pub size: AtomicU64,
}

impl Node {
    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        self.path.lock().clone()
    }
}

/// Numbers and paths, both ways.
pub struct Nodes(Mutex<Table>);

struct Table {
    next: u64,
    by_number: HashMap<u64, (Arc<Node>, u64)>,
    by_path: HashMap<PathBuf, u64>,
}

impl Nodes {
    /// Only the root.
    pub fn new(root: &Path) -> Self {
        let nodes =
            Nodes(Mutex::new(Table { next: ROOT, by_number: HashMap::new(), by_path: HashMap::new() }));
        nodes.found(root);
        nodes
    }

    /// The node of a number.
    pub fn get(&self, number: u64) -> Option<Arc<Node>> {
        self.0.lock().by_number.get(&number).map(|(node, _)| node.clone())
    }

    /// Counts a lookup of a path; returns its number.
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

    /// Takes back so many lookups.
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

    /// A path is gone.
    pub fn removed(&self, path: &Path) {
        self.0.lock().by_path.remove(path);
    }

    /// What was at or below one path is now at or below another.
    pub fn renamed(&self, from: &Path, to: &Path) {
        let mut table = self.0.lock();
        let moved: Vec<(PathBuf, u64)> =
            table.by_path.iter().filter(|(p, _)| p.starts_with(from)).map(|(p, n)| (p.clone(), *n)).collect();
        for (old, number) in moved {
            let Ok(rest) = old.strip_prefix(from) else { continue };
            // Joining with nothing would add a slash.
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
    /// Notes that bytes up to `end` were written.
    pub fn reaches(&self, end: u64) {
        self.size.fetch_max(end, Ordering::Relaxed);
    }
}
