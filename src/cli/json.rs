//! The documents that commands print with `--json`. `docs/json.md` says what is in them.

use serde_json::{Map, Value, json};
use std::{os::unix::ffi::OsStrExt, path::Path};

/// The version of all documents. A member that is new needs no new one; a member that goes or gets another meaning does.
pub const VERSION: u32 = 1;

/// A document of a command as text: its members after those that every document has.
pub fn document(command: &str, members: Value) -> String {
    format!("{:#}\n", enveloped(command, members))
}

/// The same on one line.
pub fn line(command: &str, members: Value) -> String {
    format!("{}\n", enveloped(command, members))
}

/// What every document begins with.
pub fn head(command: &str) -> Map<String, Value> {
    [("version".to_owned(), json!(VERSION)), ("command".to_owned(), json!(command))].into_iter().collect()
}

fn enveloped(command: &str, members: Value) -> Value {
    let mut all = head(command);
    if let Value::Object(members) = members {
        // A mount may say anything; what every document has is not its to say.
        all.extend(members.into_iter().filter(|(name, _)| !matches!(name.as_str(), "version" | "command")));
    }
    all.into()
}

/// An object with the name of a file.
pub fn path(name: &Path) -> Map<String, Value> {
    let mut object = Map::new();
    put_name(&mut object, "path", name);
    object
}

/// Adds a name. One that is not UTF-8 is added in hexadecimal digits, too.
pub fn put_name(object: &mut Map<String, Value>, member: &str, name: &Path) {
    object.insert(member.to_owned(), json!(name.to_string_lossy()));
    if name.to_str().is_none() {
        let bytes = data_encoding::HEXLOWER.encode(name.as_os_str().as_bytes());
        object.insert(format!("{member}_bytes"), json!(bytes));
    }
}

/// As `put_name`; null if there is none.
pub fn put_if_named(object: &mut Map<String, Value>, member: &str, name: Option<&Path>) {
    match name {
        Some(name) => put_name(object, member, name),
        None => drop(object.insert(member.to_owned(), Value::Null)),
    }
}
