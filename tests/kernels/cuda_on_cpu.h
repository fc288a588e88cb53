// Just enough of CUDA to compile the kernels with g++ and run them on the CPU, one block after another.
//
// Every thread of a block is a fiber with a stack of its own, all on one OS thread, so a run is
// repeatable. A fiber runs until it waits at a barrier; the order in which fibers are taken up is
// chosen per launch, so that two launches in opposite orders show a barrier that is missing. Dynamic shared memory
// is filled with 0xa5 before each block. With CUDA_ON_THREADS, threads are threads (cuda_on_threads.h).
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

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

// Opens when every thread that still runs has arrived.
struct Barrier {
  uint32_t expected = 0, arrived = 0;
  uint64_t generation = 0;
  void open_if_complete() {
    if (arrived == expected) arrived = 0, generation++;
  }
};

struct Fiber {
  ucontext_t first;
  jmp_buf resume;
  bool started = false, finished = false;
  const Barrier* waits_for = nullptr;
  uint64_t generation = 0;
  uint32_t shuffles = 0;
  bool blocked() const { return waits_for && waits_for->generation == generation; }
};

struct Warp {
  Barrier barrier;
  uint64_t values[2][32] = {};  // of shuffles, in turn: a lane can be ahead of another by one shuffle only
};

struct Block {
  Index grid, threads, id;
  uint8_t* shared;
  const std::function<void()>* body;
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
  uint32_t current = 0;
  Index thread = {0};
  jmp_buf scheduler;
};
inline Block* block = nullptr;

// What a block waits for that no block before it has done never comes.
inline void rest() {}

inline void wait(Barrier& barrier) {
  Fiber& self = block->fibers[block->current];
  self.generation = barrier.generation;
  self.waits_for = &barrier;
  barrier.arrived++;
  barrier.open_if_complete();
  if (self.blocked() && !_setjmp(self.resume)) _longjmp(block->scheduler, 1);
  self.waits_for = nullptr;
}

// A fiber's first frame; a thread that has left takes part in no later barrier.
inline void run_thread() {
  (*block->body)();
  Warp& warp = block->warps[block->current / 32];
  block->fibers[block->current].finished = true;
  block->barrier.expected--, warp.barrier.expected--;
  if (block->barrier.expected) block->barrier.open_if_complete();
  if (warp.barrier.expected) warp.barrier.open_if_complete();
  _longjmp(block->scheduler, 1);
}

inline void resume(uint32_t index) {
  block->current = index;
  block->thread = {index};
  Fiber& fiber = block->fibers[index];
  if (_setjmp(block->scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.first);
}

inline void run_block(uint8_t* stacks, size_t stack, bool backwards) {
  uint32_t count = block->threads.x;
  block->barrier = {count};
  block->warps.assign((count + 31) / 32, {});
  block->fibers.assign(count, {});
  for (uint32_t i = 0; i < count; i++) {
    block->warps[i / 32].barrier.expected++;
    ucontext_t& first = block->fibers[i].first;
    getcontext(&first);
    first.uc_stack.ss_sp = stacks + i * stack;
    first.uc_stack.ss_size = stack;
    first.uc_link = nullptr;
    makecontext(&first, run_thread, 0);
  }
  for (bool running = true, moved = true; running;) {
    if (!moved) {
      fprintf(stderr, "block %u: every thread waits at a barrier that cannot open\n", block->id.x);
      abort();
    }
    running = moved = false;
    for (uint32_t i = 0; i < count; i++) {
      Fiber& fiber = block->fibers[backwards ? count - 1 - i : i];
      if (fiber.finished) continue;
      running = true;
      if (fiber.blocked()) continue;
      moved = true;
      resume(backwards ? count - 1 - i : i);
    }
  }
}

inline void launch(uint32_t grid, uint32_t threads, uint32_t shared_bytes, bool backwards,
                   const std::function<void()>& body) {
  constexpr size_t STACK = 128 << 10;
  void* stacks =
      mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* shared = aligned_alloc(1024, (shared_bytes + 1023) / 1024 * 1024 + 1024);
  if (stacks == MAP_FAILED || !shared) abort();
  Block own;
  own.grid = {grid}, own.threads = {threads};
  own.shared = static_cast<uint8_t*>(shared), own.body = &body;
  block = &own;
  for (uint32_t id = 0; id < grid; id++) {
    own.id = {id};
    memset(shared, 0xa5, shared_bytes);
    run_block(static_cast<uint8_t*>(stacks), STACK, backwards);
  }
  block = nullptr;
  free(shared);
  munmap(stacks, threads * STACK);
}

template <class T>
T shuffle(T value, uint32_t lane) {
  static_assert(sizeof(T) <= 8, "a slot of a shuffle has eight bytes");
  Fiber& self = block->fibers[block->current];
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
// Threads that meet in one word. For the CPU's threads as well.
inline uint32_t atomicExch(uint32_t* place, uint32_t value) { return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST); }
inline uint32_t atomicOr(uint32_t* place, uint32_t bits) { return __atomic_fetch_or(place, bits, __ATOMIC_SEQ_CST); }
inline uint32_t atomicMin(uint32_t* place, uint32_t value) {
  uint32_t before = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  while (value < before && !__atomic_compare_exchange_n(place, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}
