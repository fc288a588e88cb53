//! Keeps memory out of swap. The only module in `crypto` with system calls for memory.

use std::ffi::c_void;

/// Locks the pages of `place`. Returns whether that succeeded; a limit on locked memory may prevent it.
pub(super) fn lock<T>(place: &T) -> bool {
    // SAFETY: address and length are those of a live value, and locking changes none of its bytes.
    unsafe { rustix::mm::mlock(address(place), size_of::<T>()).is_ok() }
}

/// Unlocks the pages of `place`.
pub(super) fn unlock<T>(place: &T) {
    // SAFETY: address and length are those of a live value, and unlocking changes none of its bytes. A
    // failure leaves the pages locked, which does no harm.
    let _ = unsafe { rustix::mm::munlock(address(place), size_of::<T>()) };
}

fn address<T>(place: &T) -> *mut c_void {
    std::ptr::from_ref(place).cast_mut().cast()
}
