//! Errors that name the damaged item.

use crate::error::{Damage, Error};

/// The error for a chunk that does not authenticate.
pub(super) fn damaged_chunk(index: u64) -> Error {
    Damage { what: format!("chunk {index}"), reason: "does not authenticate" }.into()
}
