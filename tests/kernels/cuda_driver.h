// The part of CUDA's driver API needed to run a kernel, loaded at run time: building needs no CUDA, and
// the program starts without a driver. Every error ends the program, except for those of start().
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cuda {

// Function name as the library exports it, and its parameters.
#define CUDA_FUNCTIONS(F)                                                                                             \
  F(cuInit, unsigned)                                                                                                 \
  F(cuDeviceGetCount, int*) F(cuDeviceGet, int*, int) F(cuDeviceGetName, char*, int, int)                             \
      F(cuDeviceGetAttribute, int*, int, int) F(cuDriverGetVersion, int*) F(cuDevicePrimaryCtxRetain, void**, int)    \
          F(cuCtxSetCurrent, void*) F(cuCtxSynchronize) F(cuModuleLoad, void**, const char*)                          \
              F(cuModuleGetFunction, void**, void*, const char*) F(cuFuncSetAttribute, void*, int, int)               \
                  F(cuFuncGetAttribute, int*, int, void*) F(cuMemAlloc_v2, uint64_t*, size_t)                         \
                      F(cuMemFree_v2, uint64_t) F(cuMemcpyHtoD_v2, uint64_t, const void*, size_t)                     \
                          F(cuMemcpyDtoH_v2, void*, uint64_t, size_t) F(cuMemcpyDtoD_v2, uint64_t, uint64_t, size_t)  \
                              F(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                                unsigned, void*, void**, void**)                                                      \
                                  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, void*, int, size_t)            \
                                      F(cuEventCreate, void**, unsigned) F(cuEventRecord, void*, void*)               \
                                          F(cuEventSynchronize, void*) F(cuEventElapsedTime_v2, float*, void*, void*) \
                                              F(cuGetErrorString, int, const char**)

#define CUDA_POINTER(name, ...) inline int (*name)(__VA_ARGS__) = nullptr;
CUDA_FUNCTIONS(CUDA_POINTER)
#undef CUDA_POINTER

inline void check(int status, const char* call) {
  if (status == 0) return;
  const char* text = "";
  cuGetErrorString(status, &text);
  fprintf(stderr, "%s: %s (%d)\n", call, text, status);
  exit(1);
}
#define CUDA(function, ...) cuda::check(cuda::function(__VA_ARGS__), #function)

inline int device = 0;

// Opens the first device. Returns the reason for a failure, or an empty string.
inline std::string start() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return dlerror();
#define CUDA_FIND(name, ...)                                      \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  if (!name && std::string(#name) != "cuEventElapsedTime_v2") return dlerror();
  CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
  if (!cuEventElapsedTime_v2)
    cuEventElapsedTime_v2 = reinterpret_cast<decltype(cuEventElapsedTime_v2)>(dlsym(library, "cuEventElapsedTime"));
  int count = 0;
  if (cuInit(0) != 0 || cuDeviceGetCount(&count) != 0 || count == 0) return "the driver knows no device";
  CUDA(cuDeviceGet, &device, 0);
  void* context;
  CUDA(cuDevicePrimaryCtxRetain, &context, device);
  CUDA(cuCtxSetCurrent, context);
  return "";
}

inline std::string device_name() {
  char name[128] = {};
  CUDA(cuDeviceGetName, name, sizeof name, device);
  return name;
}
inline int processors() {
  constexpr int MULTIPROCESSOR_COUNT = 16;
  int count;
  CUDA(cuDeviceGetAttribute, &count, MULTIPROCESSOR_COUNT, device);
  return count;
}
inline void synchronize() { CUDA(cuCtxSynchronize); }

class Memory {
 public:
  explicit Memory(size_t length) : length(length) { CUDA(cuMemAlloc_v2, &address, length); }
  Memory(Memory&& other) : address(std::exchange(other.address, 0)), length(other.length) {}
  ~Memory() {
    if (address) cuMemFree_v2(address);
  }
  void upload(const std::vector<uint8_t>& bytes) const { CUDA(cuMemcpyHtoD_v2, address, bytes.data(), bytes.size()); }
  std::vector<uint8_t> download() const {
    std::vector<uint8_t> bytes(length);
    CUDA(cuMemcpyDtoH_v2, bytes.data(), address, length);
    return bytes;
  }
  uint64_t address = 0;
  size_t length;
};

class Module {
 public:
  explicit Module(const char* fatbin) { load(fatbin); }
  // Loads the kernels of another file in addition.
  void load(const char* fatbin) {
    handles.emplace_back();
    CUDA(cuModuleLoad, &handles.back(), fatbin);
  }

  // Every kernel parameter is a number of 32 or 64 bits. The lower bytes of `values` serve for both.
  void launch(const std::string& name, unsigned blocks, unsigned threads, unsigned shared,
              std::vector<uint64_t> values) {
    std::vector<void*> parameters;
    for (uint64_t& value : values) parameters.push_back(&value);
    CUDA(cuLaunchKernel, function(name, shared), blocks, 1, 1, threads, 1, 1, shared, nullptr, parameters.data(),
         nullptr);
  }
  // Blocks of this size that fit on a multiprocessor at once; 0 if the kernel does not support so many
  // threads.
  int occupancy(const std::string& name, unsigned threads, unsigned shared) {
    constexpr int MAX_THREADS_PER_BLOCK = 0;
    int blocks, most;
    CUDA(cuFuncGetAttribute, &most, MAX_THREADS_PER_BLOCK, function(name, shared));
    if (int(threads) > most) return 0;
    CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function(name, shared), int(threads), shared);
    return blocks;
  }

 private:
  void* function(const std::string& name, unsigned shared) {
    constexpr int MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
    void*& found = functions[name];
    constexpr int NOT_FOUND = 500;
    int status = 0;
    for (size_t i = 0; i < handles.size() && !found; i++) {
      status = cuModuleGetFunction(&found, handles[i], name.c_str());
      if (status == NOT_FOUND && i + 1 < handles.size())
        found = nullptr;
      else
        check(status, "cuModuleGetFunction");
    }
    if (shared > 48 << 10) CUDA(cuFuncSetAttribute, found, MAX_DYNAMIC_SHARED_SIZE_BYTES, int(shared));
    return found;
  }
  std::vector<void*> handles;
  std::map<std::string, void*> functions;
};

}  // namespace cuda
