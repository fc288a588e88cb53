//! Paths of a walk. Paths in a deep tree share their prefixes. As separate strings they would take
//! memory and time that grow with the square of the depth.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The path of a directory or file, relative to the start of the walk.
#[derive(Clone, Default)]
pub struct WalkPath(Option<Arc<PathName>>);

struct PathName {
    above: WalkPath,
    name: OsString,
}

impl WalkPath {
    /// The path of the entry `name` in this directory.
    pub fn join(&self, name: &OsStr) -> WalkPath {
        WalkPath(Some(Arc::new(PathName { above: self.clone(), name: name.to_owned() })))
    }

    /// The path of the entry `name` in the same directory as this one.
    pub fn beside(&self, name: &OsStr) -> WalkPath {
        self.0.as_ref().map_or_else(WalkPath::default, |own| own.above.clone()).join(name)
    }

    /// The last component; empty at the start of the walk.
    pub fn name(&self) -> &OsStr {
        self.0.as_ref().map_or(OsStr::new(""), |own| &own.name)
    }

    /// Whether one of the two is a clone of the other.
    pub fn is_clone_of(&self, other: &WalkPath) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// As a path, appended to that of the start of the walk.
    pub fn below(&self, start: &Path) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(name) = &at.0 {
            names.push(&name.name);
            at = &name.above;
        }
        let mut path = start.to_owned();
        path.extend(names.iter().rev());
        path
    }

    /// As a path relative to the start of the walk.
    pub fn path(&self) -> PathBuf {
        self.below(Path::new(""))
    }
}

impl Drop for PathName {
    /// Iterative, because a recursive drop would need a stack as deep as the tree.
    fn drop(&mut self) {
        let mut next = self.above.0.take();
        while let Some(mut name) = next.and_then(Arc::into_inner) {
            next = name.above.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_names_in_order_and_no_depth_is_too_much() {
        let top = WalkPath::default();
        assert_eq!((top.path(), top.below(Path::new("a/."))), (PathBuf::new(), "a/.".into()));
        let other = top.join("b".as_ref()).join("c".as_ref());
        let mut deep = other.join("d".as_ref());
        assert_eq!((deep.path(), deep.below(Path::new("/a"))), ("b/c/d".into(), "/a/b/c/d".into()));
        assert_eq!((deep.name(), deep.beside("f".as_ref()).path()), ("d".as_ref(), "b/c/f".into()));
        assert!(deep.is_clone_of(&deep.clone()) && !deep.is_clone_of(&other.join("d".as_ref())));
        for _ in 0..1_000_000 {
            deep = deep.join("e".as_ref());
        }
        drop(deep);
        assert_eq!(other.path(), Path::new("b/c"));
    }
}
