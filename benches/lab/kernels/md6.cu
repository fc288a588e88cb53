// Experiments with MD6: threads that share a node, and the size of nodes. After a tool for matching files on a GeForce
// (16 threads a node, a node a block, nodes of 512 bytes to 2 KiB).
//
// The parameters are those of hash.cu; nodes have 64 words (MD6 itself) or as many as the name says.
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
