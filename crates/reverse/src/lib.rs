//! The stored form of a plain directory: the content that a vault of these files would have, computed on
//! access. `docs/reverse.md` describes how everything that is random in a vault is derived here.
//!
//! - `keys` derives ids, salts and nonces; `seal` seals a group of chunks; `content` is the stored form of
//!   a file.
//! - `attributes` is the stored form of extended attributes and ACLs.
//! - `plain` reads the plain directory and never leaves it; `exclusions` names what it does not see; `view`
//!   presents it as a store; `long_names` caches the names seen in listings.

mod attributes;
mod content;
mod exclusions;
mod keys;
mod long_names;
mod plain;
mod seal;
mod view;

pub use content::Content;
pub use exclusions::{Exclusions, PatternError, Patterns};
pub use keys::ReverseKeys;
pub use plain::CONFIG;
pub use view::{Time, View, ViewEntry, ViewNode};
