//! An allocator that wipes small memory when it is freed. A value may have gaps (the parts of an `enum` that its present
//! variant does not use), and a move takes along what the stack had there before: perhaps parts of keys, which no
//! destructor knows of.

use std::alloc::{GlobalAlloc, Layout, System};

/// What is longer is a buffer: it has no gaps, and who puts secrets in it wipes it.
const SMALL: usize = 16 << 10;

/// The system's allocator; up to 16 KiB are zeroed before they are given back.
pub struct WipingAllocator;

// SAFETY: every call goes on to the system's allocator, with the caller's own promises.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.size() <= SMALL {
            // SAFETY: the caller gives back as much memory at this place. The compiler must not drop the writes.
            unsafe { memory.write_bytes(0, layout.size()) };
            std::hint::black_box(memory);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() > SMALL {
            // SAFETY: as above.
            return unsafe { System.realloc(memory, layout, size) };
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
