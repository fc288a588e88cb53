//! A global allocator that wipes small allocations when they are freed. A value may have gaps, such as the
//! parts of an `enum` that its current variant does not use. A move copies into them whatever was on the
//! stack before, which may be parts of keys that no destructor wipes.

use std::alloc::{GlobalAlloc, Layout, System};

/// Maximum size in bytes of allocations that are wiped. Larger ones are buffers: they have no gaps, and
/// code that puts secrets into them wipes them.
const SMALL: usize = 16 << 10;

/// Wraps an allocator (the system's, except in tests) and zeroes allocations of up to 16 KiB
/// before freeing them.
pub struct WipingAllocator<A = System>(pub A);

// SAFETY: every call is forwarded to the wrapped allocator under the caller's guarantees.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees what the wrapped allocator requires.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.size() <= SMALL {
            // SAFETY: the caller frees an allocation of this size. `black_box` keeps the compiler from
            // dropping the writes.
            unsafe { memory.write_bytes(0, layout.size()) };
            std::hint::black_box(memory);
        }
        // SAFETY: as above.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() > SMALL {
            // SAFETY: as above.
            return unsafe { self.0.realloc(memory, layout, size) };
        }
        // SAFETY: the caller guarantees that `size` is valid for this alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both allocations have at least this length and do not overlap, because one is new;
            // the caller gives up the old one.
            unsafe {
                new.copy_from_nonoverlapping(memory, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Counts the bytes freed, and how many of them are zero.
    #[derive(Default)]
    struct Counting {
        given_back: AtomicUsize,
        zeros: AtomicUsize,
    }

    // SAFETY: every call is forwarded to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's guarantees apply.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the tests have initialized all of it.
            let bytes = unsafe { std::slice::from_raw_parts(memory, layout.size()) };
            self.given_back.fetch_add(bytes.len(), Relaxed);
            self.zeros.fetch_add(bytes.iter().filter(|byte| **byte == 0).count(), Relaxed);
            // SAFETY: the caller's guarantees apply.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    /// Allocates and fills `size` bytes, reallocates them to `other` bytes, checks the bytes kept, and
    /// frees them. Returns the number of bytes freed, and how many of them were wiped.
    fn freed(size: usize, other: usize) -> (usize, usize) {
        let allocator = WipingAllocator(Counting::default());
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the layouts match, nothing is used after it was freed, and all bytes are initialized.
        unsafe {
            let memory = allocator.alloc(layout(size));
            memory.write_bytes(7, size);
            let moved = allocator.realloc(memory, layout(size), other);
            let kept = std::slice::from_raw_parts(moved, size.min(other));
            assert!(kept.iter().all(|byte| *byte == 7), "{size} to {other}");
            moved.write_bytes(7, other);
            allocator.dealloc(moved, layout(other));
        }
        (allocator.0.given_back.into_inner(), allocator.0.zeros.into_inner())
    }

    #[test]
    fn small_memory_is_wiped_when_it_is_freed_or_moved() {
        for (size, other) in [(1, 8), (100, 7), (8, 3000), (SMALL, 1), (SMALL, SMALL)] {
            assert_eq!(freed(size, other), (size + other, size + other), "{size} to {other}");
        }
    }

    #[test]
    fn large_memory_is_not() {
        assert_eq!(freed(SMALL + 1, SMALL + 2), (2 * SMALL + 3, 0));
        assert_eq!(freed(8, SMALL + 1), (SMALL + 9, 8));
        assert_eq!(freed(SMALL + 1, 8), (SMALL + 9, 8));
    }
}
