//! An open vault: directories, names, attributes, keys and open files.
//!
//! `table` keeps the open files and cleans idle ones. Most of the rest is the namespace: which node is where,
//! and under which name.

// In tests, the store fails on command, and rules of files can be broken.
#[cfg(test)]
extern crate content_testing as content;
#[cfg(test)]
extern crate store_testing as store;

mod access;
mod acl;
mod anchor;
mod aside;
mod atime;
mod attr;
mod away;
mod check;
mod config_file;
mod ctime;
mod ctime_file;
mod descent;
mod dir;
mod dir_id;
mod dir_lock;
mod former_list;
mod init;
mod keys;
mod ladder;
mod link;
mod listing;
mod lock;
mod lock_mark;
mod make;
mod names;
mod open;
mod open_error;
mod open_file;
mod own_dirs;
mod ownerless;
mod pending;
mod process;
mod remove;
mod repair;
mod resources;
mod rest;
mod rewrites;
mod rotate;
mod sharing;
mod table;
mod taken_id;
mod target;
mod walk_path;
mod xattr;
mod xattr_list;
mod xattr_owner;

#[cfg(test)]
mod tests;

pub use acl::AclKind;
pub use anchor::{AnchorError, AnchorUse, refuse_inside};
pub use attr::{Kind, SetAttr, SetTime, Stat, StatFs};
pub use away::AwayError;
pub use check::{Contents, Flaw, Origin, Part};
pub use config_file::{ConfigLock, Unlocked};
pub use dir::{Dir, StoredName};
pub use init::NewPlace;
pub use ladder::{Climb, Ladder, Left};
pub use listing::{DirEntry, Listing};
pub use make::NewNode;
pub use open::{OpenOptions, PATIENCE, Unlock, Vault};
pub use open_error::OpenError;
pub use open_file::{Key, OpenFile};
pub use process::{descriptors, lift_limits};
pub use remove::{RenameMode, Spot, There};
pub use repair::Aside;
pub use resources::MemoryUse;
pub use rotate::{Begun, Rotated, Step};
pub use table::{Files, SyncStore};
pub use target::{Pin, Target};
pub use walk_path::WalkPath;

#[cfg(test)]
use content::testing::cases;
