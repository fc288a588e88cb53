// Just enough of CUDA to compile the kernels with g++ and run them on the CPU, one block after another.
//
// Every thread of a block is a fiber with its own stack, and all of them share one OS thread, so runs
// are reproducible. A fiber runs until it waits at a barrier, and then the next fiber runs. Whether that
// is the one with the next higher or lower number is chosen per launch, so two launches in opposite
// orders reveal a missing barrier. Dynamic shared memory is filled with 0xa5 before each block. One
// launch runs at a time. With CUDA_ON_THREADS, CUDA threads are OS threads (cuda_on_threads.h).
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <functional>
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) uint8_t* name = cpu::block->shared

struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

#ifdef CUDA_ON_THREADS
#include "cuda_on_threads.h"
#else
namespace cpu {

struct Index {
  uint32_t x;
};

// Opens once every thread that is still running has arrived.
struct Barrier {
  uint32_t expected = 0, arrived = 0;
  uint64_t generation = 0;
  void open_if_complete() {
    if (arrived == expected) arrived = 0, generation++;
  }
};

struct Fiber {
  void* stack = nullptr;  // top of the stack while not running
  bool finished = true;
  const Barrier* waits_for = nullptr;
  uint64_t generation = 0;
  uint32_t shuffles = 0;
  bool blocked() const { return waits_for && waits_for->generation == generation; }
};
// Fibers outlive launches: one that has finished a thread waits for the next.
inline Fiber fibers[1024];

struct Warp {
  Barrier barrier;
  uint64_t values[2][32] = {};  // used alternately by shuffles: lanes differ by at most one shuffle
};

struct Block {
  Index grid, threads, id;
  uint8_t* shared;
  const std::function<void()>* body;
  bool backwards;
  Barrier barrier;
  std::vector<Warp> warps;
  uint32_t current = 0, running = 0;
  Index thread = {0};
  void* stack;  // stack of `run_block`
};
inline Block* block = nullptr;

// A no-op: if no earlier block did what this block waits for, waiting is pointless.
inline void rest() {}

void run_threads();

// Switches stacks, saving the top of the old one in `from`. Unlike that of setjmp, this return is
// predicted correctly: a kernel on the fake device spent half of its time there.
[[gnu::naked, gnu::noinline]] inline void exchange(void**, void*) {
  asm("pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n\t"
      "movq %rsp, (%rdi); movq %rsi, %rsp\n\t"
      "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}

// A stack that starts in `run_threads`.
inline void* new_stack() {
  constexpr size_t STACK = 128 << 10;
  void* low = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) abort();
  // No return address, then the six registers.
  void** top = reinterpret_cast<void**>(static_cast<char*>(low) + STACK) - 8;
  top[6] = reinterpret_cast<void*>(run_threads);
  return top;
}

// Resumes a thread until it switches back to `from`.
inline void resume(void** from, uint32_t index) {
  block->current = index;
  block->thread = {index};
  if (!fibers[index].stack) fibers[index].stack = new_stack();
  exchange(from, fibers[index].stack);
}

// Resumes the next runnable thread, or `run_block` if there is none.
inline void give_way() {
  uint32_t index = block->current, count = block->threads.x;
  void** from = &fibers[index].stack;
  for (uint32_t n = 1; n < count; n++) {
    index = block->backwards ? (index ? index : count) - 1 : index + 1 < count ? index + 1 : 0;
    if (!fibers[index].finished && !fibers[index].blocked()) return resume(from, index);
  }
  exchange(from, block->stack);
}

inline void wait(Barrier& barrier) {
  Fiber& self = fibers[block->current];
  self.generation = barrier.generation;
  self.waits_for = &barrier;
  barrier.arrived++;
  barrier.open_if_complete();
  if (self.blocked()) give_way();
  self.waits_for = nullptr;
}

// A fiber's first frame. A thread that has returned takes part in no later barrier.
inline void run_threads() {
  for (;;) {
    (*block->body)();
    Warp& warp = block->warps[block->current / 32];
    fibers[block->current].finished = true;
    block->running--, block->barrier.expected--, warp.barrier.expected--;
    if (block->barrier.expected) block->barrier.open_if_complete();
    if (warp.barrier.expected) warp.barrier.open_if_complete();
    give_way();
  }
}

inline void run_block() {
  uint32_t count = block->threads.x;
  block->running = count;
  block->barrier = {count};
  block->warps.assign((count + 31) / 32, {});
  for (uint32_t i = 0; i < count; i++) {
    block->warps[i / 32].barrier.expected++;
    fibers[i].finished = false, fibers[i].shuffles = 0;
  }
  resume(&block->stack, block->backwards ? count - 1 : 0);
  if (block->running) {
    fprintf(stderr, "block %u: every thread waits at a barrier that cannot open\n", block->id.x);
    abort();
  }
}

inline void launch(uint32_t grid, uint32_t threads, uint32_t shared_bytes, bool backwards,
                   const std::function<void()>& body) {
  void* shared = aligned_alloc(1024, (shared_bytes + 1023) / 1024 * 1024 + 1024);
  if (!shared) abort();
  Block own;
  own.grid = {grid}, own.threads = {threads};
  own.shared = static_cast<uint8_t*>(shared), own.body = &body, own.backwards = backwards;
  block = &own;
  for (uint32_t id = 0; id < grid; id++) {
    own.id = {id};
    memset(shared, 0xa5, shared_bytes);
    run_block();
  }
  block = nullptr;
  free(shared);
}

template <class T>
T shuffle(T value, uint32_t lane) {
  static_assert(sizeof(T) <= 8, "a slot of a shuffle has eight bytes");
  Fiber& self = fibers[block->current];
  Warp& warp = block->warps[block->current / 32];
  uint64_t(&values)[32] = warp.values[self.shuffles++ % 2];
  memcpy(&values[block->current % 32], &value, sizeof value);
  wait(warp.barrier);
  T result;
  memcpy(&result, &values[lane % 32], sizeof result);
  return result;
}

}  // namespace cpu

#define threadIdx (cpu::block->thread)
#define blockIdx (cpu::block->id)
#define blockDim (cpu::block->threads)
#define gridDim (cpu::block->grid)

inline void __syncthreads() { cpu::wait(cpu::block->barrier); }
inline void __syncwarp() { cpu::wait(cpu::block->warps[cpu::block->current / 32].barrier); }
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  return cpu::shuffle(value, lane);
}
#endif  // CUDA_ON_THREADS

template <class T>
T __ldg(const T* place) {
  return *place;
}
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t nibble = selector >> 4 * i & 15, byte = bytes >> 8 * (nibble & 7) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t amount) {
  return uint32_t((uint64_t(high) << 32 | low) << (amount & 31) >> 32);
}
// Atomic operations, which also work between OS threads.
inline uint32_t atomicExch(uint32_t* place, uint32_t value) { return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST); }
inline uint32_t atomicOr(uint32_t* place, uint32_t bits) { return __atomic_fetch_or(place, bits, __ATOMIC_SEQ_CST); }
inline uint32_t atomicMin(uint32_t* place, uint32_t value) {
  uint32_t before = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  while (value < before && !__atomic_compare_exchange_n(place, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}
