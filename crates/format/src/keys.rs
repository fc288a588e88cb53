//! Labels of the master key's sub-keys: one for each use, so that no key has two uses.

use crypto::{kdf::subkey, secret::Secret};

/// Parent of the keys of every file.
pub const CONTENTS: &str = "contents";
/// MAC of the vault's configuration.
pub const CONFIG: &str = "configuration";
/// Wrapping of the former master key during a rotation.
pub const FORMER: &str = "former keys";
/// MACs of the list of what is accepted under the former key.
pub const FORMER_LIST: &str = "former list";
/// Encryption of names.
pub const NAMES: &str = "names";
/// Hash in the stored form of a long name.
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
/// Parent of the keys of a reverse view.
pub const REVERSE: &str = "reverse";
/// Wrapping of an anchor's key. The anchor is not part of the vault.
pub const ANCHOR: &str = "anchor";

/// The parent of the keys of every file, for `FileKdf::new`.
pub fn contents_key(master: &Secret<32>) -> Secret<32> {
    subkey(master, CONTENTS)
}
