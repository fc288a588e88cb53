//! Wipes the traces that work with keys leaves in a thread. Vector registers keep their last content, and
//! the kernel stores them in the thread's memory when a signal arrives. The stack below the current frame
//! keeps the data of calls that have returned. A function that blocks next may keep some of it in its
//! frame, and a value with gaps that is moved to the heap takes some of it along.

/// Bytes of stack that `wipe` zeroes. Deriving a file's keys, which are moved by value, uses 14 KiB of
/// stack. After requests, a search of memory found traces with 4 KiB wiped, and none with 16 KiB.
const STACK: usize = 24 << 10;

/// Zeroes this thread's vector registers (on x86-64), and the stack below the caller's frame.
pub fn wipe() {
    wipe_stack::<STACK>();
    clear_registers();
}

/// Runs `work`, which has keys on the stack, and wipes its traces.
pub fn wiped<T>(work: impl FnOnce() -> T) -> T {
    let result = apart(work);
    wipe();
    result
}

#[inline(never)] // keeps the stack of `work` below the caller's frame
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Zeroes `BYTES` bytes of the stack below the caller's frame.
#[inline(never)]
pub fn wipe_stack<const BYTES: usize>() {
    let mut below = [0_u8; BYTES]; // not a constant: that would be promoted to a static
    std::hint::black_box(&mut below);
}

fn clear_registers() {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the required CPU feature was just checked.
            return unsafe { clear_512() };
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: the required CPU feature was just checked.
            return unsafe { clear_256() };
        }
        clear_128();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn clear_512() {
    // SAFETY: accesses no memory, and declares every register that it changes.
    unsafe {
        std::arch::asm!(
            "vzeroall",
            "vpxord zmm16, zmm16, zmm16",
            "vpxord zmm17, zmm17, zmm17",
            "vpxord zmm18, zmm18, zmm18",
            "vpxord zmm19, zmm19, zmm19",
            "vpxord zmm20, zmm20, zmm20",
            "vpxord zmm21, zmm21, zmm21",
            "vpxord zmm22, zmm22, zmm22",
            "vpxord zmm23, zmm23, zmm23",
            "vpxord zmm24, zmm24, zmm24",
            "vpxord zmm25, zmm25, zmm25",
            "vpxord zmm26, zmm26, zmm26",
            "vpxord zmm27, zmm27, zmm27",
            "vpxord zmm28, zmm28, zmm28",
            "vpxord zmm29, zmm29, zmm29",
            "vpxord zmm30, zmm30, zmm30",
            "vpxord zmm31, zmm31, zmm31",
            clobber_abi("sysv64"),
            options(nomem, nostack),
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn clear_256() {
    // SAFETY: as above.
    unsafe { std::arch::asm!("vzeroall", clobber_abi("sysv64"), options(nomem, nostack)) }
}

#[cfg(target_arch = "x86_64")]
fn clear_128() {
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "xorps xmm0, xmm0",
            "xorps xmm1, xmm1",
            "xorps xmm2, xmm2",
            "xorps xmm3, xmm3",
            "xorps xmm4, xmm4",
            "xorps xmm5, xmm5",
            "xorps xmm6, xmm6",
            "xorps xmm7, xmm7",
            "xorps xmm8, xmm8",
            "xorps xmm9, xmm9",
            "xorps xmm10, xmm10",
            "xorps xmm11, xmm11",
            "xorps xmm12, xmm12",
            "xorps xmm13, xmm13",
            "xorps xmm14, xmm14",
            "xorps xmm15, xmm15",
            clobber_abi("sysv64"),
            options(nomem, nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};
    use std::{collections::HashSet, fs::File, os::unix::fs::FileExt, thread};

    /// Bytes of a new thread's stack to inspect. They are all zero when the thread starts.
    const LOOKED_AT: usize = 256 << 10;

    /// The content of a new thread's stack, below the caller's frame, after `work`.
    fn left_by(work: impl FnOnce() + Send) -> Vec<u8> {
        #[inline(never)]
        fn below(work: impl FnOnce()) -> Vec<u8> {
            let mut left = vec![0; LOOKED_AT];
            let start = std::hint::black_box(&raw mut left).addr() - LOOKED_AT;
            work();
            File::open("/proc/self/mem").unwrap().read_exact_at(&mut left, start as u64).unwrap();
            left
        }
        thread::scope(|scope| scope.spawn(|| below(work)).join().unwrap())
    }

    #[test]
    fn the_stack_keeps_nothing_of_derived_keys() {
        for integrity in Integrity::ALL {
            let contents = Secret::new_with(|key: &mut [u8; 32]| key.fill(7));
            let kdf = FileKdf::new(contents, Cipher::Aes256, integrity);
            let derive = || Box::new(std::hint::black_box(kdf.keys(&[1; 32])));
            let keys = derive();
            let states = [&keys.leaf, &keys.node, &keys.record].map(|key| *key.whole().state());
            let words = states.as_flattened().iter().map(|word| word.to_le_bytes());
            let rounds = keys.chunk.expanded().round_keys();
            let words = words.chain(rounds.as_flattened().as_chunks().0.iter().copied());
            let words: HashSet<[u8; 8]> = words.collect();
            let found = |left: Vec<u8>| left.windows(8).filter(|part| words.contains(*part)).count();
            assert!(found(left_by(|| drop(derive()))) > 10, "{integrity:?}: there was something");
            assert_eq!(found(left_by(|| drop(wiped(derive)))), 0, "{integrity:?}");
        }
    }
}
