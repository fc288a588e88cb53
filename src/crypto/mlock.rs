//! Keeps memory out of swap; the only place of the crate's crypto that speaks to the kernel about memory.

use std::ffi::c_void;

/// Locks the pages of `place`; whether it worked (a limit on locked memory may forbid it).
pub(super) fn lock<T>(place: &T) -> bool {
    // SAFETY: the address and length are those of a live value, and locking changes no byte of it.
    unsafe { rustix::mm::mlock(address(place), size_of::<T>()).is_ok() }
}

/// Undoes `lock`.
pub(super) fn unlock<T>(place: &T) {
    // SAFETY: the address and length are those of a live value, and unlocking changes no byte of it.
    // A failure leaves the pages locked, which harms nothing.
    let _ = unsafe { rustix::mm::munlock(address(place), size_of::<T>()) };
}

fn address<T>(place: &T) -> *mut c_void {
    std::ptr::from_ref(place).cast_mut().cast()
}
