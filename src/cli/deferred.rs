//! A secret that is read once, when first needed. Users should not have to type a new password before
//! the present one has been verified.

use super::exit::Outcome;
use std::cell::OnceCell;

/// A secret obtained by calling `read`.
pub struct Deferred<T, F> {
    read: F,
    value: OnceCell<T>,
}

impl<T, F: Fn() -> Outcome<T>> Deferred<T, F> {
    /// Does not call `read` yet.
    pub fn new(read: F) -> Self {
        Deferred { read, value: OnceCell::new() }
    }

    /// The secret, read on the first call.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn get(&self) -> Outcome<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = (self.read)()?;
        Ok(self.value.get_or_init(|| value))
    }

    /// Reads the secret now if `early`, which is for secrets that need no prompt.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn get_if(&self, early: bool) -> Outcome {
        if early { self.get().map(drop) } else { Ok(()) }
    }
}
