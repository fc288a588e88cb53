//! The stored form of a plain directory: what a vault with this content would hold, computed when it is read.
//! `docs/reverse.md` says how everything random in a vault is derived here.
//!
//! - `keys` derives ids, salts, and nonces; `seal` seals a group of chunks; `content` is the stored form of a file.
//! - `attributes` is that of extended attributes and ACLs.
//! - `plain` reads the plain directory and never leaves it; `view` is what the store would show, `long_names` which
//!   names its listings had.

mod attributes;
mod content;
mod keys;
mod long_names;
mod plain;
mod seal;
mod view;

pub use content::Content;
pub use keys::ReverseKeys;
pub use plain::CONFIG;
pub use view::{Entry, Node, Time, View};
