// Experiments with MD6: threads that share a node, and the size of nodes. After a tool for matching files on a GeForce
// (16 threads a node, a node a block, nodes of 512 bytes to 2 KiB).
//
// The parameters are those of hash.cu; nodes have 64 words (MD6 itself) or as many as the name says. The publication's
// own three kernels of a level have one parameter more.
#include "md6.cuh"

#define PARAMETERS                                                                                                  \
  const Md6Hash *hash, const Md6Layer *layers, uint32_t count, uint32_t level, uint32_t nodes, const uint8_t *data, \
      uint8_t *values
#define LEVEL \
  Md6Level { hash, layers, count, level, data, values }

// One thread a node: up to 128 threads a block; no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(128, 2) md6_alone_64(PARAMETERS) { md6_alone(LEVEL, nodes); }

// 16 threads a node: up to 512 threads a block, a multiple of 16; for each thread 112 bytes of dynamic shared
// memory, or 176, 240, 304.
#define SHARED(words)                                                                   \
  extern "C" __global__ void __launch_bounds__(512, 1) md6_shared_##words(PARAMETERS) { \
    DYNAMIC_SHARED(shared);                                                             \
    static_assert(Md6Shared<words>::BYTES == (words + 48) * MD6_ROUND, "as promised");  \
    md6_shared<words>(LEVEL, nodes, shared);                                            \
  }
SHARED(64)
SHARED(128)
SHARED(192)
SHARED(256)

// The publication's three kernels of a level, one after the other: the first writes each node's words into `work`, the
// second does the rounds there, with 16 threads a node and a barrier a round, the third takes the values from there.
// `work` has MD6_WORK bytes for each node, aligned to 8; it is a ring, as in shared memory, but written once.
constexpr uint32_t MD6_WORDS = 64, MD6_N = MD6_PREFIX + MD6_WORDS, MD6_RING = Md6Shared<MD6_WORDS>::RING;
constexpr uint32_t MD6_WORK = MD6_RING * 8;
static_assert(MD6_WORK == 896, "the host makes room for it");

// A thread a node; any block.
extern "C" __global__ void __launch_bounds__(1024, 1) md6_pack(PARAMETERS, uint64_t* work) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += gridDim.x * blockDim.x) {
    const Md6Node node = md6_node<MD6_WORDS>(LEVEL, i);
    const uint64_t* words = reinterpret_cast<const uint64_t*>(node.data);
    uint64_t* a = work + uint64_t(i) * MD6_RING + (MD6_RING - MD6_N);
    for (uint32_t k = 0; k < MD6_KEY; k++) a[k] = MD6_Q[k];
    for (uint32_t k = 0; k < 8; k++) a[MD6_KEY + k] = hash->key[k];
    a[23] = node.id;
    a[24] = node.control;
    for (uint32_t k = 0; k < MD6_WORDS; k++) {
      uint64_t word = 64 * k < node.bits ? md6_swap(words[k]) : 0;
      a[MD6_PREFIX + k] = md6_keep(word, int32_t(node.bits - 64 * k));
    }
  }
}

// 16 threads a node, as many a block.
extern "C" __global__ void __launch_bounds__(16, 1)
    md6_rounds(const Md6Hash* hash, const Md6Layer*, uint32_t, uint32_t, uint32_t nodes, const uint8_t*, uint8_t*,
               uint64_t* work) {
  uint32_t step = threadIdx.x, right = 0, left = 0;
#pragma unroll
  for (uint32_t i = 0; i < MD6_ROUND; i++) {
    right = step == i ? md6_right(i) : right;
    left = step == i ? md6_left(i) : left;
  }
  for (uint32_t i = blockIdx.x; i < nodes; i += gridDim.x) {
    uint64_t* a = work + uint64_t(i) * MD6_RING;
    uint64_t constant = MD6_FIRST;
    uint32_t at = step;
    auto before = [&](uint32_t words) { return a[at < words ? at + MD6_RING - words : at - words]; };
#pragma unroll 1
    for (uint32_t round = uint32_t(hash->control >> 48); round > 0; round--) {
      __syncthreads();
      uint64_t x = constant ^ before(MD6_N) ^ before(17) ^ (before(18) & before(21)) ^ (before(31) & before(67));
      a[at] = md6_mix(x, right, left);
      at = at + MD6_ROUND < MD6_RING ? at + MD6_ROUND : step;
      constant = md6_next(constant);
    }
  }
}

// A thread for four nodes, whose values are the next level's data; any block.
extern "C" __global__ void __launch_bounds__(1024, 1) md6_rewrite(PARAMETERS, uint64_t* work) {
  uint32_t last = uint32_t(hash->control >> 48) * MD6_ROUND % MD6_RING;
  uint32_t stride = 4 * gridDim.x * blockDim.x;
  for (uint64_t four = 4 * (blockIdx.x * blockDim.x + threadIdx.x); four < nodes; four += stride) {
    for (uint64_t i = four; i < four + 4 && i < nodes; i++) {
      const uint64_t* a = work + i * MD6_RING;
      uint64_t* value = reinterpret_cast<uint64_t*>(md6_node<MD6_WORDS>(LEVEL, uint32_t(i)).value);
      for (uint32_t k = 0; k < MD6_ROUND; k++) value[k] = md6_swap(a[(last + MD6_RING - MD6_ROUND + k) % MD6_RING]);
    }
  }
}
