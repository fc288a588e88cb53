//! The sub-keys of the master key: one label a use, so that no key serves two.

use crate::crypto::{kdf::subkey, secret::Secret};

/// Parent of every file's keys.
pub const CONTENTS: &str = "contents";
/// MAC of the vault's configuration.
pub const CONFIG: &str = "configuration";
/// Wrapping of the former master key while a rotation is under way.
pub const FORMER: &str = "former keys";
/// MACs of the list of what is accepted under that.
pub const FORMER_LIST: &str = "former list";
/// Encryption of names.
pub const NAMES: &str = "names";
/// Hash that stands for a long name.
pub const LONG_NAMES: &str = "long names";
/// MAC of a directory's id.
pub const DIR_IDS: &str = "directory ids";
/// Encryption of symbolic link targets.
pub const LINKS: &str = "symlinks";
/// Encryption of extended attribute names.
pub const XATTR_NAMES: &str = "xattr names";
/// Encryption of extended attribute values.
pub const XATTR_VALUES: &str = "xattr values";
/// Encryption of change times.
pub const CHANGE_TIMES: &str = "change times";
/// Parent of what a reverse view derives.
pub const REVERSE: &str = "reverse";
/// Wrapping of the key of an anchor, which is no part of the vault.
pub const ANCHOR: &str = "anchor";

/// The parent of every file's keys, as `FileKdf::new` takes it.
pub fn contents_key(master: &Secret<32>) -> Secret<32> {
    subkey(master, CONTENTS)
}
