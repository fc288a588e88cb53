//! `doctor`: reports whether vaults can be mounted on this machine, what is slower than necessary, and
//! the remedies.

mod finding;
mod kernel;
mod machine;
mod mounting;

use super::{
    exit::{Code, Failure, Outcome},
    json::document,
    print,
};
use finding::Diagnosis;
use serde_json::{Value, json};

/// Runs `doctor`.
///
/// # Errors
/// If a prerequisite is missing without which this user cannot mount.
pub fn run(as_json: bool) -> Outcome {
    let (kernel, machine) = (kernel::findings(), machine::findings());
    let found: Vec<Diagnosis> = mounting::findings().into_iter().chain(kernel).chain(machine).collect();
    let blocking: Vec<(Code, &str)> = found.iter().filter_map(Diagnosis::blocks).collect();
    let text = match as_json {
        true => {
            let checks: Value = found.iter().map(Diagnosis::json).collect();
            document("doctor", json!({ "can_mount": blocking.is_empty(), "checks": checks }))
        }
        false => found.iter().map(Diagnosis::text).collect(),
    };
    print(&text)?;
    let Some((code, _)) = blocking.first() else { return Ok(()) };
    let names: Vec<&str> = blocking.iter().map(|(_, name)| *name).collect();
    Err(Failure::new(
        *code,
        format!("no vault can be mounted here without {}", names.join(", ")),
        "The report says how to mend each of them.",
    ))
}
