//! What requests are answered with, and where an answer goes: back through `/dev/fuse`, or through a ring.

use super::errno::{Answer, VALUE_TOO_LARGE};
use crate::vault::{Kind, Stat};
use fuser::FopenFlags;
use std::{ffi::OsStr, time::Duration};

/// Where the answer to one request goes.
pub trait Reply<T>: Send + 'static {
    /// Answers.
    fn answer(self, answer: Answer<T>);
}

/// Where a listing of names goes.
pub trait Listing: Reply<()> {
    /// Adds a name; `next` is where the listing goes on after it. Returns whether there was no more room.
    fn add(&mut self, number: u64, next: u64, kind: Kind, name: &OsStr) -> bool;
}

/// Where a listing of names and attributes goes.
pub trait ListingPlus: Reply<()> {
    /// Adds a node; `next` is where the listing goes on after it. Returns whether there was no more room.
    fn add(&mut self, next: u64, name: &OsStr, found: &Found) -> bool;
}

/// A node's attributes.
pub struct Told {
    /// Its number in the mount; 0 stands for a name that does not exist.
    pub number: u64,
    /// The attributes.
    pub stat: Stat,
    /// How long the kernel may rely on them.
    pub ttl: Duration,
}

/// A node that a name leads to.
pub struct Found {
    /// Its attributes.
    pub told: Told,
    /// Tells it from others that had its number.
    pub generation: u64,
    /// How long the kernel may rely on the name.
    pub name_ttl: Duration,
}

/// An open file or directory.
pub struct Opened {
    /// Its handle.
    pub handle: u64,
    /// How the kernel is to treat it.
    pub mode: FopenFlags,
}

/// A file that was made and opened.
pub struct Created {
    /// The file.
    pub found: Found,
    /// Its handle.
    pub opened: Opened,
}

/// Bytes that were written or copied.
pub struct Written(pub u32);

/// A place in a file.
pub struct Place(pub i64);

/// An extended attribute, or all their names.
pub enum Value {
    /// How long it is.
    Size(u32),
    /// What it is.
    Bytes(Vec<u8>),
}

impl Value {
    /// For a caller with so much room; without any, it wants only the size.
    pub fn fitting(room: u32, value: Vec<u8>) -> Answer<Value> {
        match room {
            0 => Ok(Value::Size(u32::try_from(value.len()).unwrap_or(u32::MAX))),
            room if value.len() > room as usize => Err(VALUE_TOO_LARGE),
            _ => Ok(Value::Bytes(value)),
        }
    }
}
