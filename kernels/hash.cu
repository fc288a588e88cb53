// The entry points for hashing: levels of MD6's trees.
//
// Both compress `nodes` nodes, 1 to 2^31, of level `level` (1 to 64) of trees of one hash: those of `count` layers, 1
// at least, whose `start` grows from 0. Data of a layer begins in `data`, which is readable up to the next multiple of
// 16 bytes behind each layer's end; values go to `values`, 128 bytes each, and may lie behind the data of the same
// buffer, or anywhere that does not overlap it. All four buffers are aligned to 16 bytes. Any grid of one dimension.
#include "md6.cuh"

#define PARAMETERS                                                                                                  \
  const Md6Hash *hash, const Md6Layer *layers, uint32_t count, uint32_t level, uint32_t nodes, const uint8_t *data, \
      uint8_t *values

// Many nodes: one thread each. Up to 128 threads a block; no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(128, 2) md6_nodes(PARAMETERS) {
  md6_alone(Md6Level{hash, layers, count, level, data, values}, nodes);
}

// Few nodes: 16 threads each. Up to 512 threads a block, a multiple of 16; 112 bytes of dynamic shared memory for each.
extern "C" __global__ void __launch_bounds__(512, 1) md6_nodes_shared(PARAMETERS) {
  DYNAMIC_SHARED(shared);
  static_assert(Md6Shared<64>::BYTES == 112 * MD6_ROUND, "as promised");
  md6_shared<64>(Md6Level{hash, layers, count, level, data, values}, nodes, shared);
}
