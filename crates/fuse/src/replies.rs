//! Answers to requests, and the traits for sending them: through `/dev/fuse`, or through a ring.

use super::errno::{Answer, VALUE_TOO_LARGE};
use fuser::FopenFlags;
use std::{ffi::OsStr, time::Duration};
use vault::{Kind, Stat};

/// Destination of the answer to one request.
pub trait Reply<T>: Send + 'static {
    /// Sends the answer.
    fn answer(self, answer: Answer<T>);
}

/// Destination of a listing of names.
pub trait Listing: Reply<()> {
    /// Adds a name; `next` is the offset at which the listing continues after it. Returns whether the
    /// reply is full.
    fn add(&mut self, number: u64, next: u64, kind: Kind, name: &OsStr) -> bool;
}

/// Destination of a listing of names and attributes.
pub trait ListingPlus: Reply<()> {
    /// Adds a node; `next` is the offset at which the listing continues after it. Returns whether the
    /// reply is full.
    fn add(&mut self, next: u64, name: &OsStr, found: &FoundReply) -> bool;
}

/// A node's attributes.
pub struct AttrReply {
    /// Number in the mount; 0 for a name that does not exist.
    pub number: u64,
    /// The attributes.
    pub stat: Stat,
    /// How long the kernel may cache the attributes.
    pub ttl: Duration,
}

/// A node found by name.
pub struct FoundReply {
    /// The node's attributes.
    pub told: AttrReply,
    /// Distinguishes the node from others that had its number.
    pub generation: u64,
    /// How long the kernel may cache the name.
    pub name_ttl: Duration,
}

/// An open file or directory.
pub struct OpenReply {
    /// The new handle.
    pub handle: u64,
    /// How the kernel must treat the handle.
    pub mode: FopenFlags,
}

/// A file that was created and opened.
pub struct Created {
    /// The new file.
    pub found: FoundReply,
    /// Its handle.
    pub opened: OpenReply,
}

/// Number of bytes written or copied.
pub struct Written(pub u32);

/// An offset in a file.
pub struct Place(pub i64);

/// The value of an extended attribute, or the list of their names.
pub enum Value {
    /// Its length in bytes.
    Size(u32),
    /// Its content.
    Bytes(Vec<u8>),
}

impl Value {
    /// Answers a caller whose buffer holds `room` bytes. A `room` of 0 asks for the size only.
    pub fn fitting(room: u32, value: Vec<u8>) -> Answer<Value> {
        match room {
            0 => Ok(Value::Size(u32::try_from(value.len()).unwrap_or(u32::MAX))),
            room if value.len() > room as usize => Err(VALUE_TOO_LARGE),
            _ => Ok(Value::Bytes(value)),
        }
    }
}
