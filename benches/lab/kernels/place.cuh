// Where a table lies: the values of the template parameters of the experiments with block ciphers.
#pragma once
#include "platform.cuh"

enum Place {
  GLOBAL,    // read through the read-only cache
  CONSTANT,  // constant memory
  TEXTURE,   // a texture of 32-bit or 128-bit elements
  SHARED,    // one copy in shared memory, bank conflicts and all
  SPREAD,    // shared memory, laid out so that no two lanes of a warp meet in a bank
};
enum Way { FORWARD, BACKWARD };

// A texture object is a number for CUDA, and an address where kernels run on the CPU.
#ifdef __CUDACC__
DEVICE uint32_t texel(uint64_t texture, uint32_t index) { return tex1Dfetch<unsigned int>(texture, index); }
DEVICE uint4 wide_texel(uint64_t texture, uint32_t index) { return tex1Dfetch<uint4>(texture, index); }
#else
inline uint32_t texel(uint64_t texture, uint32_t index) { return reinterpret_cast<const uint32_t*>(texture)[index]; }
inline uint4 wide_texel(uint64_t texture, uint32_t index) { return reinterpret_cast<const uint4*>(texture)[index]; }
#endif
