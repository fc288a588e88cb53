//! Memory that the process of a GPU has mapped too, so that its device copies without the CPU's help.

use super::shared::SharedMemory;
use std::{
    ops::{Deref, DerefMut},
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Names memory that was lent to the process.
pub type MemoryId = u64;

/// The process that memory is lent to.
pub trait Borrower: Send + Sync {
    /// Tells the process to unmap the memory, which has so many bytes.
    fn forget(&self, memory: MemoryId, len: usize);
}

/// Memory that the device of a process reads and writes without the CPU's help. Wiped on drop.
pub struct LentMemory {
    memory: SharedMemory,
    id: MemoryId,
    borrower: Weak<dyn Borrower>,
    /// Set by the borrower once its process is gone or about to go.
    over: Arc<AtomicBool>,
}

impl LentMemory {
    /// Memory that `borrower` has mapped under this id.
    pub fn new<B: Borrower + 'static>(
        memory: SharedMemory,
        id: MemoryId,
        borrower: &Arc<B>,
        over: Arc<AtomicBool>,
    ) -> Self {
        let borrower: Weak<B> = Arc::downgrade(borrower);
        LentMemory { memory, id, borrower, over }
    }

    /// The name that the process knows it by.
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// The number in the four bytes from `at` on, a multiple of four, which the device may write meanwhile.
    ///
    /// # Panics
    /// If it is not there.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        self.memory.number(at)
    }

    /// Whether this process has it.
    pub fn is_of<B: Borrower>(&self, borrower: &Arc<B>) -> bool {
        ptr::addr_eq(Weak::as_ptr(&self.borrower), Arc::as_ptr(borrower))
    }

    /// Whether the same process has both.
    pub fn is_beside(&self, other: &LentMemory) -> bool {
        self.borrower.ptr_eq(&other.borrower)
    }

    /// Whether the process is gone, or about to go: no device reaches the memory any more.
    pub fn is_stale(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Deref for LentMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for LentMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if let Some(borrower) = self.borrower.upgrade() {
            borrower.forget(self.id, self.memory.len());
        }
    }
}
