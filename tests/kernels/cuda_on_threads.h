// A variant of the block execution in cuda_on_cpu.h, with an OS thread for each CUDA thread. It is slow;
// its purpose is the thread sanitizer, which finds accesses to shared or global memory that no barrier
// orders.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace cpu {

struct Index {
  uint32_t x;
};

// Opens once every thread that is still running has arrived.
class Barrier {
 public:
  void expect() { expected++; }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t before = generation;
    arrived++;
    open_if_complete();
    opened.wait(lock, [&] { return generation != before; });
  }
  void leave() {
    std::lock_guard<std::mutex> lock(mutex);
    expected--;
    if (expected) open_if_complete();
  }

 private:
  void open_if_complete() {
    if (arrived < expected) return;
    arrived = 0, generation++;
    opened.notify_all();
  }
  std::mutex mutex;
  std::condition_variable opened;
  uint32_t expected = 0, arrived = 0;
  uint64_t generation = 0;
};

struct Warp {
  Barrier barrier;
  uint64_t values[32] = {};  // for a shuffle
};

struct Block {
  explicit Block(uint32_t count) : warps((count + 31) / 32) {
    for (uint32_t i = 0; i < count; i++) barrier.expect(), warps[i / 32].barrier.expect();
  }
  Index grid, threads, id;
  uint8_t* shared;
  Barrier barrier;
  std::vector<Warp> warps;
};
inline thread_local Block* block = nullptr;
inline thread_local Index thread = {0};

inline Warp& warp() { return block->warps[thread.x / 32]; }
inline void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// Runs blocks in order, as many at a time as the thread limit allows.
inline void launch(uint32_t grid, uint32_t count, uint32_t shared_bytes, bool, const std::function<void()>& body) {
  const uint32_t most = 512 / count + 1;
  const size_t room = (shared_bytes + 1023) / 1024 * 1024 + 1024;
  uint8_t* shared = static_cast<uint8_t*>(aligned_alloc(1024, most * room));
  if (!shared) abort();
  for (uint32_t first = 0; first < grid; first += most) {
    memset(shared, 0xa5, most * room);
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::thread> threads;
    for (uint32_t id = first; id < grid && id < first + most; id++) {
      Block* own = blocks.emplace_back(std::make_unique<Block>(count)).get();
      own->grid = {grid}, own->threads = {count}, own->id = {id}, own->shared = shared + (id - first) * room;
      for (uint32_t i = 0; i < count; i++) {
        threads.emplace_back([&body, own, i] {
          block = own, thread = {i};
          body();
          warp().barrier.leave();
          block->barrier.leave();
        });
      }
    }
    for (std::thread& one : threads) one.join();
  }
  free(shared);
}

template <class T>
T shuffle(T value, uint32_t lane) {
  static_assert(sizeof(T) <= 8, "a slot of a shuffle has eight bytes");
  memcpy(&warp().values[thread.x % 32], &value, sizeof value);
  warp().barrier.wait();
  T result;
  memcpy(&result, &warp().values[lane % 32], sizeof result);
  warp().barrier.wait();
  return result;
}

}  // namespace cpu

#define threadIdx (cpu::thread)
#define blockIdx (cpu::block->id)
#define blockDim (cpu::block->threads)
#define gridDim (cpu::block->grid)

inline void __syncthreads() { cpu::block->barrier.wait(); }
inline void __syncwarp() { cpu::warp().barrier.wait(); }
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  return cpu::shuffle(value, lane);
}
