// Platform layer of the kernels: CUDA itself, or an emulation that runs them on the CPU for tests.
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
// Declares the block's dynamic shared memory.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]
#else
#include "cuda_on_cpu.h"
#endif

#define DEVICE __device__ __forceinline__

constexpr uint32_t WARP = 32;
constexpr uint32_t ALL_LANES = 0xffffffffu;

// PRMT with all its modes: a selector nibble of 8 or more replicates the top bit of the chosen byte.
DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
#else
  return __byte_perm(a, b, selector);
#endif
}

// Makes `value` opaque to the compiler, so that no load that depends on it moves above this point.
DEVICE void keep_below(uint32_t& value) { asm volatile("" : "+r"(value) : : "memory"); }

// A table in shared memory whose address is known to the compiler, so that it becomes an immediate of
// the load. If addresses are made by one byte permutation (an index above an offset below 256), no
// addition remains. The table is ORIGIN bytes into the shared window, at or after the end of the part
// that the system reserves. A kernel with such a table takes ORIGIN bytes more than the table needs and
// has no static shared memory.
struct SharedTable {
  static constexpr uint32_t ORIGIN = 1024;
#ifdef __CUDA_ARCH__
  uint8_t* start;
  DEVICE explicit SharedTable(uint8_t* shared) {
    uint32_t base = uint32_t(__cvta_generic_to_shared(shared));
    if (base > ORIGIN) __trap();
    start = shared + (ORIGIN - base);
  }
  template <uint32_t EXTRA>
  DEVICE static uint32_t word(uint32_t address) {
    uint32_t value;
    asm("ld.shared.u32 %0, [%1+%2];" : "=r"(value) : "r"(address), "n"(ORIGIN + EXTRA));
    return value;
  }
#else
  uint8_t* start;
  explicit SharedTable(uint8_t* shared) : start(shared) {}
  template <uint32_t EXTRA>
  uint32_t word(uint32_t address) const {
    return *reinterpret_cast<const uint32_t*>(start + address + EXTRA);
  }
#endif
};

DEVICE uint32_t swap_bytes(uint32_t x) { return __byte_perm(x, 0, 0x0123); }
DEVICE uint32_t rotate_bytes(uint32_t x) { return __byte_perm(x, 0, 0x2103); }
DEVICE uint32_t rotate_halves(uint32_t x) { return __byte_perm(x, 0, 0x1032); }

DEVICE uint4 operator^(uint4 a, uint4 b) { return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w); }

// The multiprocessor that runs this block. On the CPU, blocks alternate between two.
DEVICE uint32_t multiprocessor() {
#ifdef __CUDA_ARCH__
  uint32_t number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
#else
  return blockIdx.x % 2;
#endif
}

// Release store and acquire load between running blocks: a reader that sees the word also sees
// everything written before it.
DEVICE void publish(uint64_t* word, uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.gpu.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}
DEVICE uint64_t published(const uint64_t* word) {
  uint64_t value;
#ifdef __CUDA_ARCH__
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
#else
  value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
  return value;
}
// Relaxed versions, for words that say nothing about other memory.
DEVICE void put_word(uint64_t* word, uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
#else
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}
DEVICE uint64_t get_word(const uint64_t* word) {
  uint64_t value;
#ifdef __CUDA_ARCH__
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
#else
  value = __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
  return value;
}
DEVICE uint64_t exchange(uint64_t* word, uint64_t value) {
#ifdef __CUDA_ARCH__
  return atomicExch(reinterpret_cast<unsigned long long*>(word), value);
#else
  return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
#endif
}

// Bounded wait for another block, which may not have started yet.
class Patience {
 public:
  // Waits up to 0.4 µs. Returns false once the waits add up to about 10 ms.
  DEVICE bool lasts() {
#ifdef __CUDA_ARCH__
    __nanosleep(200);
#elif !defined(__CUDACC__)
    cpu::rest();
#endif
    return ++moments < 50000;
  }

 private:
  uint32_t moments = 0;
};

// Waits until `come()` is true; false on timeout.
template <class Come>
DEVICE bool comes_in_time(const Come& come) {
  for (Patience patience; !come();) {
    if (!patience.lasts()) return false;
  }
  return true;
}

DEVICE uint32_t lane_id() { return threadIdx.x % WARP; }
DEVICE uint64_t warp_id() { return (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP; }
DEVICE uint64_t warp_count() { return uint64_t(gridDim.x) * blockDim.x / WARP; }
