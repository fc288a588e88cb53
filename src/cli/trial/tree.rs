//! A bounded tree of real files on this machine, for `try` to copy and compare.

use crate::cli::{
    exit::{Code, Failure, Outcome},
    signals::Interrupt,
};
use std::{
    collections::VecDeque,
    env,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Maximum number of files and bytes.
const MAX_FILES: usize = 5000;
const MAX_BYTES: u64 = 200 << 20;
/// A folder with at least this many files is accepted without trying others.
const ENOUGH_FILES: usize = 1000;

/// The type of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file and its size in bytes.
    File(u64),
    /// A directory.
    Dir,
    /// A symbolic link with its target.
    Symlink(PathBuf),
}

/// A file, directory or link below the tree's root.
#[derive(Debug, Clone)]
pub struct TrialNode {
    /// Path relative to the root.
    pub path: PathBuf,
    /// Type, with size or target.
    pub kind: NodeKind,
    /// Permission bits. The owner's right to read is added, and for directories the right to write and
    /// search.
    pub mode: u32,
    /// Modification time.
    pub mtime: SystemTime,
}

/// Nodes below a root, parents before children.
pub struct TrialTree {
    /// Path of the originals.
    pub root: PathBuf,
    /// Everything below the root, within the limits.
    pub nodes: Vec<TrialNode>,
}

impl TrialTree {
    /// The named folder, or otherwise the first on this machine with many files.
    ///
    /// # Errors
    /// If there are no files to copy, or the user interrupts.
    pub fn find(named: Option<&Path>, interrupt: &Interrupt) -> Outcome<TrialTree> {
        let folders = named.map_or_else(candidates, |path| vec![path.to_owned()]);
        let mut best: Option<TrialTree> = None;
        for root in folders {
            let tree = gather(root, interrupt)?;
            if best.as_ref().is_none_or(|b| tree.files() > b.files()) {
                best = Some(tree);
            }
            if best.as_ref().is_some_and(|b| b.files() >= ENOUGH_FILES) {
                break;
            }
        }
        best.filter(|tree| tree.files() > 0).ok_or_else(|| {
            Failure::new(Code::Failed, "there are no files to copy", "Name a folder with some: --from DIR.")
        })
    }

    /// The number of regular files.
    pub fn files(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.kind, NodeKind::File(_))).count()
    }

    /// Their total size in bytes.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().map(|n| if let NodeKind::File(size) = n.kind { size } else { 0 }).sum()
    }
}

fn candidates() -> Vec<PathBuf> {
    let home = |sub: &str| env::var_os("HOME").map(|h| Path::new(&h).join(sub));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| home(".cargo"));
    let sources = cargo.map(|c| c.join("registry/src"));
    let system = ["/usr/share/doc", "/usr/include", "/usr/share", "/etc"].map(PathBuf::from);
    sources.into_iter().chain(system).chain(env::current_dir()).collect()
}

/// Walks breadth-first in the order of names, on one filesystem. Skips what cannot be read.
fn gather(root: PathBuf, interrupt: &Interrupt) -> Outcome<TrialTree> {
    let (mut nodes, mut files, mut bytes) = (Vec::new(), 0, 0);
    let Ok(top) = fs::metadata(&root) else { return Ok(TrialTree { root, nodes }) };
    let mut folders = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        interrupt.check()?;
        for name in sorted_names(&root.join(&folder)) {
            if files == MAX_FILES {
                return Ok(TrialTree { root, nodes });
            }
            let path = folder.join(name);
            let Ok(metadata) = fs::symlink_metadata(root.join(&path)) else { continue };
            if metadata.dev() != top.dev() {
                continue;
            }
            let Some(node) = node(&root, path, &metadata) else { continue };
            match node.kind {
                NodeKind::File(size) if bytes + size > MAX_BYTES => continue,
                NodeKind::File(size) => {
                    files += 1;
                    bytes += size;
                }
                NodeKind::Dir => folders.push_back(node.path.clone()),
                NodeKind::Symlink(_) => {}
            }
            nodes.push(node);
        }
    }
    Ok(TrialTree { root, nodes })
}

fn sorted_names(folder: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
    names.sort();
    names
}

fn node(root: &Path, path: PathBuf, metadata: &Metadata) -> Option<TrialNode> {
    let full = root.join(&path);
    let (kind, owner) = if metadata.is_file() {
        fs::File::open(full).ok()?;
        (NodeKind::File(metadata.len()), 0o400)
    } else if metadata.is_dir() {
        (NodeKind::Dir, 0o700)
    } else if metadata.is_symlink() {
        (NodeKind::Symlink(fs::read_link(full).ok()?), 0)
    } else {
        return None;
    };
    let mode = metadata.mode() & 0o777 | owner;
    Some(TrialNode { path, kind, mode, mtime: metadata.modified().ok()? })
}
