//! What copying asks of either side: a vault, or the filesystem that the process sees.

use crate::vault::{Climb, Kind, Segment, Stat, Time};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};

/// An extended attribute: its name, and its value if that can be read.
pub type Attribute = (OsString, io::Result<Vec<u8>>);

/// A tree of files.
///
/// # Errors
/// Every method fails with what its side says.
pub trait Side {
    /// An open directory.
    type Dir: Climb;
    /// A node of any type. If it is a symbolic link, it is the link itself.
    type Node;

    /// What is at a path that the user named; `None` if nothing is.
    fn at(&self, path: &Path) -> io::Result<Option<Self::Node>>;
    /// The names in a directory, in any order.
    fn names(&self, dir: &Self::Dir) -> io::Result<Vec<OsString>>;

    /// What has this name; `None` if nothing has.
    fn node(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Option<Self::Node>>;

    /// Attributes. The size of a file that was not closed properly is only known to [`Side::each_segment`].
    fn stat(&self, node: &Self::Node) -> io::Result<Stat>;
    /// Opens a directory; ENOTDIR if it is something else.
    fn enter(&self, node: &Self::Node) -> io::Result<Self::Dir>;
    /// The node that a directory is.
    fn node_of_dir(&self, dir: &Self::Dir) -> io::Result<Self::Node>;
    /// The target of a symbolic link.
    fn link_target(&self, node: &Self::Node) -> io::Result<OsString>;

    /// The extended attributes of a file or directory.
    fn attributes(&self, node: &Self::Node) -> io::Result<Vec<Attribute>>;

    /// Hands the segments of a regular file to `give`, in order, until it fails. Returns the attributes that the content
    /// belongs to.
    fn each_segment(
        &self,
        node: &Self::Node,
        give: &mut dyn FnMut(Segment) -> io::Result<()>,
    ) -> io::Result<Stat>;
}

/// A tree that can be written to. No link in it is followed.
///
/// # Errors
/// Every method fails with what its side says; what makes a name, with EEXIST if it is taken.
pub trait Target: Side {
    /// A regular file that is being written.
    type File;

    /// Makes something other than a regular file. Only its owner may access it.
    fn make(&self, dir: &Self::Dir, name: &OsStr, new: New) -> io::Result<()>;
    /// Gives a node another name.
    fn link(&self, node: &Self::Node, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;
    /// Makes a regular file that only its owner may access.
    fn create(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<Self::File>;
    /// The node that a file is.
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
    /// What is free where a node is.
    fn room(&self, node: &Self::Node) -> io::Result<Room>;
    /// Makes the content of files durable.
    fn store(&self, files: &[&Self::File]) -> io::Result<()>;
    /// Renames within a directory, replacing anything but a directory (EISDIR).
    fn rename(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Renames within a directory to a name that is free (else EEXIST).
    fn rename_new(&self, dir: &Self::Dir, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes anything but a directory.
    fn remove(&self, dir: &Self::Dir, name: &OsStr) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn store_names(&self, dir: &Self::Dir) -> io::Result<()>;
    /// Makes the rest durable.
    fn finish(&self) -> io::Result<()>;
}

/// What to make, other than a regular file.
#[derive(Clone, Copy)]
pub enum New<'a> {
    /// A directory.
    Dir,
    /// A symbolic link with this target.
    Symlink(&'a OsStr),
    /// A FIFO, a socket or a device, with its number.
    Special(Kind, u64),
}

/// What is free on a filesystem.
pub struct Room {
    /// Bytes for this user.
    pub bytes: u64,
    /// Nodes; `None` if it does not count them.
    pub nodes: Option<u64>,
}

impl Room {
    /// With less a filesystem counts as full: more than the longest attribute takes.
    const BYTES: u64 = 1 << 20;
    /// The same: tmpfs takes a node for each KiB of attributes.
    const NODES: u64 = 128;

    /// Whether there is room for every attribute.
    pub fn is_left(&self) -> bool {
        self.bytes >= Self::BYTES && self.nodes.is_none_or(|nodes| nodes >= Self::NODES)
    }
}

/// Up to so many files are synced one by one, more by one sync of the whole filesystem.
pub const SYNC_EACH: usize = 8;

/// `None` if an error says that nothing is there.
///
/// # Errors
/// All others.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
