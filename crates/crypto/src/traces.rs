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
    #[cfg(target_arch = "x86_64")]
    use crate::hash::{lanes_avx2, lanes_avx512, lanes_vl};
    use crate::{
        chunk::{ChunkId, ChunkKeys},
        cipher::Cipher,
        hash::lanes::{self, Absorb},
        integrity::{Input, Integrity, several},
        kdf::FileKdf,
        secret::Secret,
        tags::{Sealed, tags},
    };
    use std::{collections::HashSet, fs::File, os::unix::fs::FileExt, thread};

    const ID: ChunkId = ChunkId { index: 3, epoch: 9, nonce: [0; 10] };

    /// Bytes of a new thread's stack to inspect.
    const LOOKED_AT: usize = 64 << 10;

    /// The content of a new thread's stack, below the caller's frame, after `work`.
    fn left_by(work: impl FnOnce() + Send) -> Vec<u8> {
        #[inline(never)]
        fn below(work: impl FnOnce()) -> Vec<u8> {
            let mut left = vec![0; LOOKED_AT];
            wipe_stack::<LOOKED_AT>(); // the stack may be that of a thread that has ended
            let start = std::hint::black_box(&raw mut left).addr() - LOOKED_AT;
            work();
            File::open("/proc/self/mem").unwrap().read_exact_at(&mut left, start as u64).unwrap();
            left
        }
        thread::scope(|scope| scope.spawn(|| below(work)).join().unwrap())
    }

    /// The distances from the end at which `left` has one of the words.
    fn found(left: &[u8], words: &HashSet<[u8; 8]>) -> Vec<usize> {
        let words = left.as_chunks().0.iter().enumerate().filter(|(_, word)| words.contains(*word));
        words.map(|(place, _)| left.len() - 8 * place).collect()
    }

    /// The implementations that this processor can run.
    fn absorbs() -> Vec<(&'static str, Absorb)> {
        let mut all: Vec<(&'static str, Absorb)> = vec![("portable", lanes::absorb_portable)];
        #[cfg(target_arch = "x86_64")]
        for (available, name, absorb) in [
            (lanes_avx2::available as fn() -> bool, "AVX2", lanes::absorb_avx2 as Absorb),
            (lanes_avx512::available, "AVX-512", lanes::absorb_avx512),
            (lanes_vl::available, "AVX-512VL", lanes::absorb_vl),
        ] {
            if available() {
                all.push((name, absorb));
            }
        }
        all
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
            assert!(
                found(&left_by(|| drop(derive())), &words).len() > 10,
                "{integrity:?}: there was something"
            );
            assert!(found(&left_by(|| drop(wiped(derive))), &words).is_empty(), "{integrity:?}");
        }
    }

    /// Nor may it keep what a single use of a key leaves: values that are made later in the same request
    /// would take it along in their gaps.
    #[test]
    fn the_stack_keeps_nothing_of_used_keys() {
        // Zeros leave the key's words in the states that absorb them.
        let data = [0; 5000];
        let lens = [1, 50, 200, 999, 1000, 4096];
        for integrity in Integrity::ALL {
            let keys: Vec<ChunkKeys> =
                (0..9).map(|n| ChunkKeys::new(Cipher::Aes256, integrity, &[1; 32], &[n; 32])).collect();
            let states =
                keys.iter().flat_map(|keys| [Some(keys.chunk_key().whole()), keys.chunk_key().lane()]);
            let words: HashSet<[u8; 8]> =
                states.flatten().flat_map(|key| key.state().map(u64::to_le_bytes)).collect();
            let leaves = |what: &str, work: &(dyn Fn() + Sync)| {
                let found = found(&left_by(work), &words);
                assert!(found.is_empty(), "{integrity:?}, {what}: words {found:?} bytes below");
            };
            let all: Vec<(usize, usize)> =
                lens.into_iter().flat_map(|len| (1..=9).map(move |count| (len, count))).collect();
            for ((len, count), step) in all.into_iter().flat_map(|one| [(one, 0), (one, 100)]) {
                let data: Vec<&[u8]> = (0..count).map(|n| &data[..len - (step * n).min(len - 1)]).collect();
                let both = || keys.iter().zip(&data);
                let inputs: Vec<Input> = both()
                    .map(|(keys, data)| Input { key: keys.chunk_key(), head: &[0; 30], data })
                    .collect();
                let what = format!("{count} times {len} bytes, less {step} each");
                for (name, absorb) in absorbs() {
                    leaves(&format!("{what}, {name}"), &|| drop(several::<32>(&inputs, absorb)));
                }
                let sealed: Vec<Sealed> =
                    both().map(|(keys, ciphertext)| Sealed { keys, id: &ID, ciphertext }).collect();
                leaves(&what, &|| tags(&sealed, &mut vec![[0; 16]; count]));
            }
            for len in lens {
                leaves(&format!("{len} bytes"), &|| _ = keys[0].tag(&ID, &data[..len]));
            }
        }
    }
}
