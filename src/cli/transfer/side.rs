//! The operations that copying needs from each side: a vault, or the filesystem as the process sees it.

use content::{Segment, Time};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};
use vault::{Climb, Kind, Stat};

/// An extended attribute: its name, and its value or the error from reading it.
pub type CopiedAttribute = (OsString, io::Result<Vec<u8>>);

/// A tree of files.
///
/// # Errors
/// Every method returns the errors of the underlying vault or filesystem.
pub trait Side {
    /// An open directory.
    type Dir: Climb;
    /// A node of any type. A symbolic link is not followed.
    type Node;

    /// The node at a path that the user named; `None` if there is none.
    fn at(&self, path: &Path) -> io::Result<Option<Self::Node>>;
    /// The names in a directory, in any order.
    fn names(&self, dir: &Self::Dir) -> io::Result<Vec<OsString>>;

    /// The node with this name; `None` if there is none.
    fn node(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Option<Self::Node>>;

    /// Attributes. The exact size of a file that was not closed properly is only known to
    /// [`Side::each_segment`].
    fn stat(&self, node: &Self::Node) -> io::Result<Stat>;
    /// Opens a directory. Fails with ENOTDIR for other nodes.
    fn enter(&self, node: &Self::Node) -> io::Result<Self::Dir>;
    /// The node of a directory.
    fn node_of_dir(&self, dir: &Self::Dir) -> io::Result<Self::Node>;
    /// The target of a symbolic link.
    fn link_target(&self, node: &Self::Node) -> io::Result<OsString>;

    /// The extended attributes of a file or directory.
    fn attributes(&self, node: &Self::Node) -> io::Result<Vec<CopiedAttribute>>;

    /// Passes the segments of a regular file to `give`, in order, until it fails. Returns the attributes
    /// that belong to this content.
    fn each_segment(
        &self,
        node: &Self::Node,
        give: &mut dyn FnMut(Segment) -> io::Result<()>,
    ) -> io::Result<Stat>;
}

/// A writable tree. Its links are never followed.
///
/// # Errors
/// Every method returns the errors of the underlying vault or filesystem. Methods that create a name
/// fail with EEXIST if it is taken.
pub trait CopyTarget: Side {
    /// A regular file being written.
    type File;

    /// Creates a node other than a regular file. Only its owner may access it.
    fn make(&self, dir: &Self::Dir, name: &OsStr, new: New) -> io::Result<()>;
    /// Creates another hard link to a node.
    fn link(&self, node: &Self::Node, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;
    /// Creates a regular file that only its owner may access.
    fn create(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Self::File>;
    /// The node of a file.
    fn node_of_file(&self, file: &Self::File) -> Self::Node;
    /// Writes all of `bytes`.
    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Extends a file with a hole.
    fn set_len(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Sets owner, group, or both.
    fn set_owner(&self, node: &Self::Node, user: Option<u32>, group: Option<u32>) -> io::Result<()>;
    /// Sets the permission bits of anything but a symbolic link.
    fn set_mode(&self, node: &Self::Node, mode: u32) -> io::Result<()>;
    /// Sets the times of last access and last modification.
    fn set_times(&self, node: &Self::Node, accessed: Time, modified: Time) -> io::Result<()>;
    /// Sets an extended attribute.
    fn set_attribute(&self, node: &Self::Node, name: &OsStr, value: &[u8]) -> io::Result<()>;
    /// Free space on the filesystem of a node.
    fn room(&self, node: &Self::Node) -> io::Result<Room>;
    /// Makes the content of files durable.
    fn store(&self, files: &[&Self::File]) -> io::Result<()>;
    /// Renames within a directory, replacing anything but a directory (EISDIR).
    fn rename(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Renames within a directory to a free name. Fails with EEXIST if the name is taken.
    fn rename_new(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes anything but a directory.
    fn remove(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn store_names(&self, dir: &Self::Dir) -> io::Result<()>;
    /// Makes everything else durable.
    fn finish(&self) -> io::Result<()>;
}

/// A node to create, other than a regular file.
#[derive(Clone, Copy)]
pub enum New<'a> {
    /// A directory.
    Dir,
    /// A symbolic link with this target.
    Symlink(&'a OsStr),
    /// A FIFO, socket or device, with its device number.
    Special(Kind, u64),
}

/// Free space on a filesystem.
pub struct Room {
    /// Bytes available to this user.
    pub bytes: u64,
    /// Free inodes; `None` if the filesystem does not count them.
    pub nodes: Option<u64>,
}

impl Room {
    /// Below this many bytes a filesystem counts as full. More than the longest attribute needs.
    const BYTES: u64 = 1 << 20;
    /// Below this many inodes it counts as full: tmpfs uses one for each KiB of attributes.
    const NODES: u64 = 128;

    /// Whether there is enough space for any attribute.
    pub fn is_left(&self) -> bool {
        self.bytes >= Self::BYTES && self.nodes.is_none_or(|nodes| nodes >= Self::NODES)
    }
}

/// Up to this many files are synced one by one; more by a sync of the whole filesystem.
pub const SYNC_EACH: usize = 8;

/// Turns `NotFound` into `None`.
///
/// # Errors
/// All other errors.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
