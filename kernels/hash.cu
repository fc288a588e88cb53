// Entry points for hashing: levels of MD6 trees.
//
// Both compress `nodes` nodes (1 to 2^31) at level `level` (1 to 64) of trees that share one hash. The
// nodes are those of `count` layers (at least 1), sorted by `start`, which begins at 0. A layer's data
// is in `data`, which must be readable up to the next multiple of 16 bytes after each layer's end.
// Values of 128 bytes each go to `values`, which may follow the data in the same buffer or be anywhere
// else that does not overlap it. All four buffers are 16-byte aligned. Any one-dimensional grid.
#include "md6.cuh"

#define PARAMETERS                                                                                                  \
  const Md6Hash *hash, const Md6Layer *layers, uint32_t count, uint32_t level, uint32_t nodes, const uint8_t *data, \
      uint8_t *values

// For many nodes: one thread per node. Up to 128 threads per block; no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(128, 2) md6_nodes(PARAMETERS) {
  md6_alone(Md6Level{hash, layers, count, level, data, values}, nodes);
}

// For few nodes: 16 threads per node. Up to 512 threads per block, a multiple of 16; 112 bytes of
// dynamic shared memory per thread.
extern "C" __global__ void __launch_bounds__(512, 1) md6_nodes_shared(PARAMETERS) {
  DYNAMIC_SHARED(shared);
  static_assert(Md6Shared<64>::BYTES == 112 * MD6_ROUND, "as promised");
  md6_shared<64>(Md6Level{hash, layers, count, level, data, values}, nodes, shared);
}
