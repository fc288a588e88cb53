// Just enough of OpenCL C on top of cuda_on_cpu.h to compile the kernels with g++. A group is a block; a
// group of 25 threads is 5 by 5. Local memory is static, because blocks run one after another, and is
// not refilled before each block.
#pragma once
#include "cuda_on_cpu.h"

#define __kernel
#define __global
#define __constant const
#define __local static
#define reqd_work_group_size(x, y, z) unused
#define CLK_LOCAL_MEM_FENCE
#define barrier(fence) __syncthreads()

namespace opencl {

using uint = uint32_t;
using ulong = uint64_t;

inline uint get_group_id(uint) { return blockIdx.x; }
inline uint get_local_id(uint dimension) {
  uint row = blockDim.x == 25 ? 5 : blockDim.x;
  return dimension == 0 ? threadIdx.x % row : threadIdx.x / row;
}
inline uint get_global_id(uint) { return blockIdx.x * blockDim.x + threadIdx.x; }
inline ulong rotate(ulong x, ulong amount) { return x << amount | x >> (-amount & 63); }

#include "keccak.cl"

}  // namespace opencl
