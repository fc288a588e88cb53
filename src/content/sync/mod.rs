//! The locks of open files: parking_lot's. In tests, locks created while a scheduler runs are the
//! scheduler's, which decides at each lock operation which thread continues.

#[cfg(test)]
mod scheduled;

#[cfg(not(test))]
pub use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(test)]
pub use scheduled::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
