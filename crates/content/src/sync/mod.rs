//! The locks of open files: parking_lot's. In tests, locks created while a scheduler runs are the
//! scheduler's, which decides at each lock operation which thread continues.

#[cfg(any(test, feature = "testing"))]
mod scheduled;

#[cfg(not(any(test, feature = "testing")))]
pub use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(any(test, feature = "testing"))]
pub use scheduled::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
