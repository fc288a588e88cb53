//! An open vault: directories and names, open files, reading, writing, commit and recovery.
//!
//! `file` is the commit protocol of one file over a `BackingFile`; `table` keeps the open files and
//! brings idle ones to rest; the rest is the namespace: what stands where, under which name.

mod attr;
mod dir;
mod error;
mod file;
mod open;
mod open_error;
mod table;
mod xattr;

pub use attr::{Kind, SetAttr, SetTime, Stat, StatFs, Time};
pub use dir::{Dir, DirEntry, NewNode, RenameMode, StoredName};
pub use error::{Damage, Error, Result};
pub use file::{Durability, File};
pub use open::{OpenOptions, Target, Unlock, Vault};
pub use open_error::OpenError;
pub use table::{Files, OpenFile};
