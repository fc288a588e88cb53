//! Memory that came back to a pool and is kept for reuse. Whoever takes it out frees it once the pool is unlocked: freeing
//! wipes it.

use super::memory::Memory;

/// Kept memory, the latest last.
#[derive(Default)]
pub(super) struct Kept {
    memory: Vec<Memory>,
    bytes: usize,
}

impl Kept {
    /// Bytes of all together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Adds the latest.
    pub fn push(&mut self, memory: Memory) {
        self.bytes += memory.capacity();
        self.memory.push(memory);
    }

    /// Takes out the latest of some.
    #[must_use]
    pub fn take_latest(&mut self, which: impl Fn(&Memory) -> bool) -> Option<Memory> {
        let place = self.memory.iter().rposition(which)?;
        let memory = self.memory.remove(place);
        self.bytes -= memory.capacity();
        Some(memory)
    }

    /// Takes out all of some.
    #[must_use]
    pub fn take(&mut self, which: impl Fn(&Memory) -> bool) -> Vec<Memory> {
        let taken: Vec<_> = self.memory.extract_if(.., |memory| which(memory)).collect();
        self.bytes -= taken.iter().map(Memory::capacity).sum::<usize>();
        taken
    }

    /// Takes out the oldest, of so many bytes together or more.
    #[must_use]
    pub fn take_oldest(&mut self, bytes: usize) -> Vec<Memory> {
        let (mut count, mut taken) = (0, 0);
        while taken < bytes && count < self.memory.len() {
            taken += self.memory[count].capacity();
            count += 1;
        }
        self.bytes -= taken;
        self.memory.drain(..count).collect()
    }

    /// All, for a look.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &Memory> {
        self.memory.iter()
    }
}
