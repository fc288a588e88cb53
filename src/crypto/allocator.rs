//! An allocator that wipes small memory when it is freed. A value may have gaps (the parts of an `enum` that its present
//! variant does not use), and a move takes along what the stack had there before: perhaps parts of keys, which no
//! destructor knows of.

use std::alloc::{GlobalAlloc, Layout, System};

/// What is longer is a buffer: it has no gaps, and who puts secrets in it wipes it.
const SMALL: usize = 16 << 10;

/// An allocator, the system's outside of tests; up to 16 KiB are zeroed before they are given back to it.
pub struct WipingAllocator<A = System>(pub A);

// SAFETY: every call goes on to the other allocator, with the caller's own promises.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the other allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.size() <= SMALL {
            // SAFETY: the caller gives back as much memory at this place. The compiler must not drop the writes.
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
        // SAFETY: the caller promises that the layout is possible with this size.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both are as long, and one was just allocated; the caller gives up the other.
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

    /// Counts what it is given back, and how much of that is zeros.
    #[derive(Default)]
    struct Counting {
        given_back: AtomicUsize,
        zeros: AtomicUsize,
    }

    // SAFETY: every call goes on to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller promises it.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the tests have written all of it.
            let bytes = unsafe { std::slice::from_raw_parts(memory, layout.size()) };
            self.given_back.fetch_add(bytes.len(), Relaxed);
            self.zeros.fetch_add(bytes.iter().filter(|byte| **byte == 0).count(), Relaxed);
            // SAFETY: the caller promises it.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    /// Fills `size` bytes, has them moved to `other` bytes, looks at those that stay, and frees all. Returns how many
    /// bytes were given back, and how many of them were wiped.
    fn freed(size: usize, other: usize) -> (usize, usize) {
        let allocator = WipingAllocator(Counting::default());
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: sizes and layouts belong together, nothing is used after it was freed, and all is written.
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
