//! The documents that commands print with `--json`. `docs/json.md` describes them.

use serde_json::{Map, Value, json};
use std::{os::unix::ffi::OsStrExt, path::Path};

/// Version of all documents. New members do not change it; removing a member or changing its meaning
/// does.
pub const VERSION: u32 = 1;

/// A command's document as text: the common members, then `members`.
pub fn document(command: &str, members: Value) -> String {
    format!("{:#}\n", enveloped(command, members))
}

/// As [`document`], on one line.
pub fn line(command: &str, members: Value) -> String {
    format!("{}\n", enveloped(command, members))
}

/// The members common to all documents.
pub fn head(command: &str) -> Map<String, Value> {
    [("version".to_owned(), json!(VERSION)), ("command".to_owned(), json!(command))].into_iter().collect()
}

fn enveloped(command: &str, members: Value) -> Value {
    let mut all = head(command);
    if let Value::Object(members) = members {
        // A mount may send any member. It must not override the common ones.
        all.extend(members.into_iter().filter(|(name, _)| !matches!(name.as_str(), "version" | "command")));
    }
    all.into()
}

/// An object with a file name as its member `path`.
pub fn path(name: &Path) -> Map<String, Value> {
    let mut object = Map::new();
    put_name(&mut object, "path", name);
    object
}

/// Adds a name. If it is not UTF-8, also adds its bytes in hexadecimal.
pub fn put_name(object: &mut Map<String, Value>, member: &str, name: &Path) {
    object.insert(member.to_owned(), json!(name.to_string_lossy()));
    if name.to_str().is_none() {
        let bytes = data_encoding::HEXLOWER.encode(name.as_os_str().as_bytes());
        object.insert(format!("{member}_bytes"), json!(bytes));
    }
}

/// As [`put_name`]; null if there is no name.
pub fn put_if_named(object: &mut Map<String, Value>, member: &str, name: Option<&Path>) {
    match name {
        Some(name) => put_name(object, member, name),
        None => drop(object.insert(member.to_owned(), Value::Null)),
    }
}
