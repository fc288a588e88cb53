//! A secret that is read when it is first needed, once: nobody types a new password before the present one is known to be
//! right.

use super::exit::Outcome;
use std::cell::OnceCell;

/// A secret that `read` reads.
pub struct Deferred<T, F> {
    read: F,
    value: OnceCell<T>,
}

impl<T, F: Fn() -> Outcome<T>> Deferred<T, F> {
    /// Reads nothing yet.
    pub fn new(read: F) -> Self {
        Deferred { read, value: OnceCell::new() }
    }

    /// The secret.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn get(&self) -> Outcome<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = (self.read)()?;
        Ok(self.value.get_or_init(|| value))
    }

    /// Reads it now, if that asks nobody for anything.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn get_if(&self, early: bool) -> Outcome {
        if early { self.get().map(drop) } else { Ok(()) }
    }
}
