//! The vault format, version 2: parsing bytes into checked types, and encoding them. `docs/format.md` is
//! the normative description.
//!
//! Nothing here does I/O: callers read and write, these modules interpret the bytes.

pub mod acl;
mod bytes;
pub mod change_times;
pub mod config;
mod config_json;
pub mod dir_id;
pub mod entry;
pub mod former_list;
pub mod key_slot;
pub mod keys;
pub mod layout;
pub mod link;
pub mod master_secret;
pub mod name;
pub mod printable;
pub mod printed;
pub mod record;
pub mod recovery_key;
pub mod tree;
pub mod xattr;
pub mod xattr_list;
