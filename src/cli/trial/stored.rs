//! The view of an attacker who has only the store: searches its names and bytes for plaintext.

use super::tree::{NodeKind, TrialTree};
use crate::cli::{
    exit::{Failure, Outcome},
    signals::Interrupt,
};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// Length of a sample of plaintext in bytes.
const PIECE: usize = 24;
/// Maximum number of files to take a sample from.
const PIECES: usize = 200;
/// Shorter names may occur by chance.
const NAME_MIN: usize = 8;

/// Plaintext samples to search for, indexed by their first eight bytes.
pub struct Pieces(HashMap<u64, Vec<[u8; PIECE]>>);

impl Pieces {
    /// Takes one sample from each of up to `PIECES` files, spread over the tree. Skips samples with few
    /// distinct bytes.
    pub fn of(tree: &TrialTree) -> Pieces {
        let big =
            |n: &&super::tree::TrialNode| matches!(n.kind, NodeKind::File(size) if size >= 2 * PIECE as u64);
        let files: Vec<_> = tree.nodes.iter().filter(big).collect();
        let mut pieces = Pieces(HashMap::new());
        for node in files.iter().step_by(files.len() / PIECES + 1) {
            if let NodeKind::File(size) = node.kind
                && let Ok(piece) = piece_at(&tree.root.join(&node.path), size / 2 - PIECE as u64 / 2)
            {
                pieces.add(piece);
            }
        }
        pieces
    }

    fn add(&mut self, piece: [u8; PIECE]) {
        if piece.iter().collect::<HashSet<_>>().len() >= 8 {
            self.0.entry(head(&piece)).or_default().push(piece);
        }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn occur_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(PIECE).any(|w| self.0.get(&head(w)).is_some_and(|pieces| pieces.iter().any(|p| p == w)))
    }
}

fn piece_at(path: &Path, offset: u64) -> io::Result<[u8; PIECE]> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = [0; PIECE];
    file.read_exact(&mut piece)?;
    Ok(piece)
}

/// The first eight bytes as a number. Shorter input is padded with zeros.
fn head(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let n = bytes.len().min(8);
    first[..n].copy_from_slice(&bytes[..n]);
    u64::from_le_bytes(first)
}

/// The result of the search.
#[derive(Default)]
pub struct Sight {
    /// A few stored names with the sizes of their files.
    pub samples: Vec<(OsString, u64)>,
    /// Total bytes in the vault.
    pub bytes: u64,
    /// A stored name that also occurs in the tree.
    pub readable_name: Option<OsString>,
    /// A stored file that contains a plaintext sample.
    pub readable_file: Option<PathBuf>,
}

/// Searches every name and every byte of the vault.
///
/// # Errors
/// If the store cannot be read, or the user interrupts.
pub fn look(vault: &Path, tree: &TrialTree, pieces: &Pieces, interrupt: &Interrupt) -> Outcome<Sight> {
    let names: HashSet<OsString> = tree
        .nodes
        .iter()
        .filter_map(|n| n.path.file_name().map(OsString::from))
        .filter(|n| n.len() >= NAME_MIN)
        .collect();
    let mut sight = Sight::default();
    let mut folders = vec![vault.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |e: io::Error| Failure::io(format!("reading {}", folder.display()), &e);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            interrupt.check()?;
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            if names.contains(&entry.file_name()) {
                sight.readable_name = Some(entry.file_name());
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() {
                let bytes = fs::read(entry.path()).map_err(failed)?;
                sight.bytes += bytes.len() as u64;
                if sight.samples.len() < 4 && bytes.len() > 4096 {
                    sight.samples.push((entry.file_name(), bytes.len() as u64));
                }
                if pieces.occur_in(&bytes) {
                    sight.readable_file = Some(entry.path());
                }
            }
        }
    }
    Ok(sight)
}
