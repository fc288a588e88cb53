//! Errors that name what is damaged.

use crate::vault::{Damage, Error};

/// The error of a chunk that does not authenticate.
pub(super) fn damaged_chunk(index: u64) -> Error {
    Damage { what: format!("chunk {index}"), reason: "does not authenticate" }.into()
}
