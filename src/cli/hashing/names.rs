//! The names shown for files.

use crate::cli::exit::{Failure, Outcome};
use std::path::{Path, PathBuf};

/// How files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// As absolute paths.
    Absolute,
    /// As the user gave them.
    AsGiven,
    /// Without folders.
    Bare,
}

impl Naming {
    /// The naming that the options select.
    ///
    /// # Errors
    /// If there is no working directory for absolute paths.
    pub fn new(bare: bool, relative: bool) -> Outcome<Self> {
        if bare {
            return Ok(Naming::Bare);
        }
        if relative {
            return Ok(Naming::AsGiven);
        }
        std::env::current_dir().map_err(|e| Failure::io("the working directory", &e))?;
        Ok(Naming::Absolute)
    }

    /// The starting paths on a plain filesystem.
    pub fn roots(self, given: &[PathBuf]) -> Vec<PathBuf> {
        let root = |path: &PathBuf| match self {
            Naming::Absolute => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            _ => path.clone(),
        };
        given.iter().map(root).collect()
    }

    /// The starting paths in a vault: its root if none are given.
    pub fn vault_roots(self, given: &[PathBuf]) -> Vec<PathBuf> {
        let root = |path: &PathBuf| match self {
            Naming::AsGiven => path.clone(),
            _ => Path::new("/").join(path),
        };
        if given.is_empty() { vec![root(&PathBuf::new())] } else { given.iter().map(root).collect() }
    }

    /// The name shown for the file at `path`.
    pub fn shown(self, path: &Path) -> &Path {
        match self {
            Naming::Bare => path.file_name().map_or(path, Path::new),
            _ => path,
        }
    }
}
