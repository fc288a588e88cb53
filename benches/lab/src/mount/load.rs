//! The load: threads that read and write known content, aligned as O_DIRECT requires.

use std::{
    io,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use warpcrypt::cli::lab::Interrupt;

/// Alignment of every buffer: a page.
const PAGE: usize = 4096;

/// Runs `work` on this many threads, which start together. Returns the time from the first start to the
/// last end, and the sum of the results. `prepare` is not timed.
///
/// # Errors
/// The first error of any thread.
pub fn together<T>(
    threads: usize,
    prepare: impl Fn(usize) -> io::Result<T> + Sync,
    work: impl Fn(usize, T) -> io::Result<u64> + Sync,
) -> io::Result<(Duration, u64)> {
    let ready = Barrier::new(threads);
    let one = |number: usize| -> io::Result<(Instant, Instant, u64)> {
        let prepared = prepare(number);
        // Threads that failed must wait too, or the others would wait forever.
        ready.wait();
        let start = Instant::now();
        let part = work(number, prepared?)?;
        Ok((start, Instant::now(), part))
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        running.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))).collect()
    });
    let ended = ended.into_iter().collect::<io::Result<Vec<_>>>()?;
    let start = ended.iter().map(|(start, ..)| *start).min();
    let end = ended.iter().map(|(_, end, _)| *end).max();
    let time = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    Ok((time, ended.iter().map(|(.., part)| part).sum()))
}

/// Ends a phase early: when its time is up, or after Ctrl-C.
pub struct Limit<'a> {
    start: Instant,
    most: Duration,
    interrupt: &'a Interrupt,
}

impl<'a> Limit<'a> {
    /// Starts now and lasts for `most`.
    pub fn new(most: Duration, interrupt: &'a Interrupt) -> Self {
        Limit { start: Instant::now(), most, interrupt }
    }

    /// Whether it is time to stop.
    pub fn reached(&self) -> bool {
        self.start.elapsed() > self.most || self.interrupt.check().is_err()
    }
}

/// A page-aligned buffer whose bytes no filesystem can compress or treat as a hole.
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Block {
    /// A block of `len` bytes. Different seeds give different bytes.
    pub fn new(len: usize, seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut bytes = vec![0; len + PAGE];
        for word in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        let start = bytes.as_ptr().align_offset(PAGE);
        Block { bytes, start, len }
    }

    /// The block's bytes.
    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    /// Stamps the block's first bytes with `file` and `offset`.
    pub fn stamp(&mut self, file: usize, offset: u64) {
        let stamp = stamp(file, offset);
        self.get()[..16].copy_from_slice(&stamp);
    }

    /// Checks that the block has the stamp for this file and offset.
    ///
    /// # Errors
    /// If it has not.
    pub fn check(&mut self, file: usize, offset: u64) -> io::Result<()> {
        if self.get()[..16] == stamp(file, offset) {
            Ok(())
        } else {
            Err(io::Error::other(format!("wrong bytes at offset {offset} of file {file}")))
        }
    }
}

fn stamp(file: usize, offset: u64) -> [u8; 16] {
    let mut stamp = [0; 16];
    stamp[..8].copy_from_slice(&(file as u64 + 1).to_le_bytes());
    stamp[8..].copy_from_slice(&(offset | 1 << 63).to_le_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_start_together_and_errors_arrive() {
        let sum = together(3, |n| Ok(n as u64), |_, n| Ok(n + 1)).map(|(_, sum)| sum);
        assert_eq!(sum.ok(), Some(6));
        assert!(together(2, |_| Err::<u64, _>(io::Error::other("no")), |_, n| Ok(n)).is_err());
        let odd = |n: usize, ()| if n == 1 { Err(io::Error::other("odd")) } else { Ok(1) };
        assert!(together(2, |_| Ok(()), odd).is_err());
    }

    #[test]
    fn a_block_knows_its_place() {
        let mut block = Block::new(10_000, 7);
        assert_eq!(block.get().as_ptr() as usize % PAGE, 0);
        block.stamp(3, 4096);
        assert!(
            block.check(3, 4096).is_ok() && block.check(3, 8192).is_err() && block.check(2, 4096).is_err()
        );
        assert!(block.get().chunks(512).all(|part| part.iter().any(|b| *b != 0)));
    }
}
