// The modes of the experiments with AES, and the counters of CTR.
#pragma once
#include "platform.cuh"

enum Mode { CTR, ECB_ENCRYPT, ECB_DECRYPT };

// counter + i; the counter's last 64 bits do not wrap.
DEVICE uint4 counter_block(uint4 counter, uint32_t i) {
  uint64_t low = (uint64_t(swap_bytes(counter.z)) << 32 | swap_bytes(counter.w)) + i;
  return make_uint4(counter.x, counter.y, swap_bytes(uint32_t(low >> 32)), swap_bytes(uint32_t(low)));
}
