//! Copies a tree into a mount and later compares the two byte by byte.

use super::tree::{NodeKind, TrialNode, TrialTree};
use crate::cli::{
    exit::{Code, Failure, Outcome},
    signals::Interrupt,
};
use indicatif::ProgressBar;
use std::{
    fs::{self, File, FileTimes, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
};

/// Bytes per read and write.
const STEP: usize = 1 << 20;

/// Copies every node to a path below `to`, with modes and modification times.
///
/// # Errors
/// The first error of a read or write, or an interruption.
pub fn copy(tree: &TrialTree, to: &Path, bar: &ProgressBar, interrupt: &Interrupt) -> Outcome {
    for node in &tree.nodes {
        interrupt.check()?;
        let target = to.join(&node.path);
        let result = match &node.kind {
            NodeKind::Dir => fs::create_dir(&target),
            NodeKind::Symlink(link) => symlink(link, &target),
            NodeKind::File(size) => copy_file(&tree.root.join(&node.path), &target, *size, node, bar),
        };
        result.map_err(|e| Failure::io(format!("copying {}", node.path.display()), &e))?;
    }
    // Directories last, children first: creating entries in a directory changes its time.
    for node in tree.nodes.iter().rev().filter(|n| n.kind == NodeKind::Dir) {
        let dressed = File::open(to.join(&node.path)).and_then(|dir| dress(&dir, node));
        dressed.map_err(|e| Failure::io(format!("copying {}", node.path.display()), &e))?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, size: u64, node: &TrialNode, bar: &ProgressBar) -> io::Result<()> {
    let mut source = File::open(from)?.take(size);
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let mut buffer = vec![0; STEP];
    loop {
        let n = source.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        target.write_all(&buffer[..n])?;
        bar.inc(n as u64);
    }
    dress(&target, node)
}

fn dress(file: &File, node: &TrialNode) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(node.mode))?;
    file.set_times(FileTimes::new().set_modified(node.mtime))
}

/// Compares every node below `copy` with its original: type, target, size, bytes, mode and time.
///
/// # Errors
/// The first difference or failure, or an interruption.
pub fn compare(tree: &TrialTree, copy: &Path, bar: &ProgressBar, interrupt: &Interrupt) -> Outcome {
    for node in &tree.nodes {
        interrupt.check()?;
        let found = difference(&tree.root.join(&node.path), &copy.join(&node.path), node, bar)
            .map_err(|e| Failure::io(format!("comparing {}", node.path.display()), &e))?;
        if let Some(what) = found {
            return Err(Failure::new(
                Code::Failed,
                format!("{}: {what} differs from the original's", node.path.display()),
                "Either the original changed during the run, or this is a bug: please report it.",
            ));
        }
    }
    Ok(())
}

/// The property that differs, if any.
fn difference(
    original: &Path,
    copy: &Path,
    node: &TrialNode,
    bar: &ProgressBar,
) -> io::Result<Option<&'static str>> {
    let found = fs::symlink_metadata(copy)?;
    match &node.kind {
        NodeKind::Symlink(link) => {
            let same = found.is_symlink() && fs::read_link(copy)? == *link;
            return Ok((!same).then_some("the link's target"));
        }
        NodeKind::Dir if !found.is_dir() => return Ok(Some("the type")),
        NodeKind::File(size) if !found.is_file() || found.len() != *size => return Ok(Some("type or size")),
        NodeKind::File(size) if !same_bytes(original, copy, *size, bar)? => return Ok(Some("the content")),
        _ => {}
    }
    Ok(if found.permissions().mode() & 0o777 != node.mode {
        Some("the mode")
    } else if found.modified()? != node.mtime {
        Some("the time of last write")
    } else {
        None
    })
}

fn same_bytes(original: &Path, copy: &Path, size: u64, bar: &ProgressBar) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(original)?, File::open(copy)?);
    let (mut left, mut right) = (vec![0; STEP], vec![0; STEP]);
    let mut rest = size;
    while rest > 0 {
        let n = rest.min(STEP as u64) as usize;
        a.read_exact(&mut left[..n])?;
        b.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
        bar.inc(n as u64);
        rest -= n as u64;
    }
    Ok(b.read(&mut right[..1])? == 0)
}
