//! What a thread that worked with keys leaves behind. Vector registers keep what was in them last, and the kernel stores them
//! in the thread's memory when a signal comes. The stack below keeps what calls that have returned had there; who waits
//! next, or makes a value with gaps and moves it to the heap, takes some of it along.

/// Bytes of stack that `wipe` wipes: deeper than a thread that waits, or that builds a value, goes.
const STACK: usize = 4 << 10;

/// Zeros the vector registers of this thread, on x86-64, and the stack below the caller's part.
pub fn wipe() {
    wipe_stack::<STACK>();
    clear_registers();
}

/// Does `work`, which has keys on the stack, and wipes its traces.
pub fn wiped<T>(work: impl FnOnce() -> T) -> T {
    let result = apart(work);
    wipe();
    result
}

#[inline(never)] // What `work` had on the stack lies below the caller's part.
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Zeros so many bytes of the stack below the caller's part.
#[inline(never)]
pub fn wipe_stack<const BYTES: usize>() {
    std::hint::black_box(&[0_u8; BYTES]);
}

fn clear_registers() {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the features, as was just seen.
            return unsafe { clear_512() };
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the feature, as was just seen.
            return unsafe { clear_256() };
        }
        clear_128();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn clear_512() {
    // SAFETY: no memory is touched, and every register that changes is named as changed.
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
