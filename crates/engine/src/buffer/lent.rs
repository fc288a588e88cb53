//! Memory that a GPU's process has mapped too, so that its device copies without the CPU's help.

use super::{shared::SharedMemory, wipe::wipe};
use parking_lot::Mutex;
use std::{
    ops::{Deref, DerefMut},
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Identifies memory that was lent to the process.
pub type MemoryId = u64;

/// The process that memory is lent to.
pub trait Borrower: Send + Sync {
    /// Tells the process to unmap this memory of `len` bytes.
    fn forget(&self, memory: MemoryId, len: usize);
}

/// State shared by the borrower and the memory it was lent. After the process was killed, returned memory
/// is kept until the process is gone, because its device may write to it until then.
#[derive(Default)]
pub struct Lending {
    is_over: AtomicBool,
    kept: Mutex<KeptMemory>,
}

#[derive(Default)]
struct KeptMemory {
    memory: Vec<SharedMemory>,
    is_gone: bool,
}

impl Lending {
    /// Records that the process was killed or is no longer needed. Returns whether this is the first such
    /// call.
    pub fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Records that the process is completely gone. Wipes the kept memory again and releases it.
    pub fn finish(&self) {
        let mut kept = self.kept.lock();
        kept.is_gone = true;
        let memory = std::mem::take(&mut kept.memory);
        drop(kept);
        drop(memory);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Wipes the memory, and keeps it until the process is completely gone.
    fn keep(&self, mut memory: SharedMemory) {
        wipe(&mut memory);
        let mut kept = self.kept.lock();
        if !kept.is_gone {
            kept.memory.push(memory);
        }
    }
}

/// Memory that a process's device reads and writes without the CPU's help. Wiped on drop.
pub struct LentMemory {
    memory: SharedMemory,
    id: MemoryId,
    borrower: Weak<dyn Borrower>,
    lending: Arc<Lending>,
}

impl LentMemory {
    /// Memory that `borrower` has mapped under this id.
    pub fn new<B: Borrower + 'static>(
        memory: SharedMemory,
        id: MemoryId,
        borrower: &Arc<B>,
        lending: Arc<Lending>,
    ) -> Self {
        let borrower: Weak<B> = Arc::downgrade(borrower);
        LentMemory { memory, id, borrower, lending }
    }

    /// The id under which the process knows it.
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// The number in the four bytes at `at`, a multiple of four. The device may write it concurrently.
    ///
    /// # Panics
    /// If it is out of range or unaligned.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        self.memory.number(at)
    }

    /// Whether this process has it mapped.
    pub fn is_of<B: Borrower>(&self, borrower: &Arc<B>) -> bool {
        ptr::addr_eq(Weak::as_ptr(&self.borrower), Arc::as_ptr(borrower))
    }

    /// Whether the same process has both mapped.
    pub fn is_beside(&self, other: &LentMemory) -> bool {
        self.borrower.ptr_eq(&other.borrower)
    }

    /// Whether the process was killed or is no longer needed, so that the memory no longer reaches a
    /// device. Orders given to the device earlier may still write to it.
    pub fn is_stale(&self) -> bool {
        self.lending.is_over()
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
        if self.lending.is_over() {
            self.lending.keep(self.memory.take());
        } else if let Some(borrower) = self.borrower.upgrade() {
            borrower.forget(self.id, self.memory.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{fd::OwnedFd, io};

    struct NullBorrower;

    impl Borrower for NullBorrower {
        fn forget(&self, _: MemoryId, _: usize) {
            panic!("a process that was killed is told something");
        }
    }

    /// Memory of a process that was then killed, and its file, which shows what the device sees.
    fn of_killed(lending: &Arc<Lending>) -> (LentMemory, OwnedFd) {
        let (memory, file) = SharedMemory::new(8192).expect("memory");
        let mut memory = LentMemory::new(memory, 1, &Arc::new(NullBorrower), lending.clone());
        memory.fill(7);
        assert!(!memory.is_stale());
        assert!(lending.end() && !lending.end());
        assert!(memory.is_stale());
        (memory, file)
    }

    fn holds(file: &OwnedFd, byte: u8) -> bool {
        let mut bytes = [0xee; 8192];
        io::pread(file, &mut bytes, 0).expect("bytes") == 8192 && bytes == [byte; 8192]
    }

    #[test]
    fn what_a_device_writes_until_its_process_is_gone_is_wiped() {
        let lending = Arc::<Lending>::default();
        let (memory, file) = of_killed(&lending);
        drop(memory);
        assert!(holds(&file, 0), "it is wiped at once");
        io::pwrite(&file, &[9; 8192], 0).expect("written");
        lending.finish();
        assert!(holds(&file, 0), "it is wiped again");
    }

    #[test]
    fn what_comes_back_when_the_process_is_gone_is_wiped_and_not_kept() {
        let lending = Arc::<Lending>::default();
        let (memory, file) = of_killed(&lending);
        lending.finish();
        drop(memory);
        assert!(holds(&file, 0) && lending.kept.lock().memory.is_empty());
    }
}
