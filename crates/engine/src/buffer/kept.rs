//! Memory that was returned to a pool and is kept for reuse. Callers drop the memory they take out only
//! after unlocking the pool, because dropping wipes it.

use super::memory::Memory;

/// Kept memory, newest last.
#[derive(Default)]
pub(super) struct Kept {
    memory: Vec<Memory>,
    bytes: usize,
}

impl Kept {
    /// Total bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Adds memory as the newest.
    pub fn push(&mut self, memory: Memory) {
        self.bytes += memory.capacity();
        self.memory.push(memory);
    }

    /// Removes the newest entry that satisfies `which`.
    #[must_use]
    pub fn take_latest(&mut self, which: impl Fn(&Memory) -> bool) -> Option<Memory> {
        let place = self.memory.iter().rposition(which)?;
        let memory = self.memory.remove(place);
        self.bytes -= memory.capacity();
        Some(memory)
    }

    /// Removes all entries that satisfy `which`.
    #[must_use]
    pub fn take(&mut self, which: impl Fn(&Memory) -> bool) -> Vec<Memory> {
        let taken: Vec<_> = self.memory.extract_if(.., |memory| which(memory)).collect();
        self.bytes -= taken.iter().map(Memory::capacity).sum::<usize>();
        taken
    }

    /// Removes the oldest entries until they total at least `bytes`.
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

    /// All entries.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &Memory> {
        self.memory.iter()
    }
}
