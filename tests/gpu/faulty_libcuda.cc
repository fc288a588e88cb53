// A wrapper around another libcuda.so.1, which does all the work; only launches fail on request. A
// launch looks for two files in the directory that CUDA_FAULTS names, and the launch that deletes a file
// fails:
//   fault    the kernel gets invalid addresses: the context is lost once it runs
//   refuse   the driver is asked for more threads per block than any device has, and refuses
// Both are passed on to the real driver, so the consequences are those of a real mistake.
// With PLANTED_FATBIN, a file, its kernels replace those with the same names (build-planted.sh), and the
// number in a third file, planted, selects the fault at each launch.
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>

namespace {

constexpr unsigned TOO_MANY = 1 << 16;
constexpr int MOST_PARAMETERS = 16;

bool takes(const char* fault) {
  const char* folder = getenv("CUDA_FAULTS");
  return folder && unlink((std::string(folder) + "/" + fault).c_str()) == 0;
}

// A number from a file in the directory, or 0.
uint32_t planted() {
  const char* folder = getenv("CUDA_FAULTS");
  FILE* file = folder ? fopen((std::string(folder) + "/planted").c_str(), "r") : nullptr;
  uint32_t number = 0;
  if (file && fscanf(file, "%u", &number) != 1) number = 0;
  if (file) fclose(file);
  return number;
}

// Device address of the fault number that the kernels read; 0 if they have none.
uint64_t place = 0;
std::mutex changing;
uint32_t known = 0;

template <class Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Nothing else may run on the device while the number changes.
void plant() {
  std::lock_guard<std::mutex> lock(changing);
  const uint32_t number = planted();
  if (!place || number == known) return;
  static const auto wait = behind<int()>("cuCtxSynchronize");
  static const auto write = behind<int(uint64_t, const void*, size_t)>("cuMemcpyHtoD_v2");
  if (wait() == 0 && write(place, &number, sizeof number) == 0) known = number;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuModuleLoadData(void** module, const void* image) {
  static const auto load = behind<int(void**, const void*)>("cuModuleLoadData");
  const char* path = getenv("PLANTED_FATBIN");
  if (!path) return load(module, image);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const int status = load(module, bytes.data());
  static const auto find = behind<int(uint64_t*, size_t*, void*, const char*)>("cuModuleGetGlobal_v2");
  size_t length;
  if (status == 0 && find(&place, &length, *module, "PLANTED") != 0) place = 0;
  return status;
}

extern "C" __attribute__((visibility("default"))) int cuLaunchKernel(
    void* kernel, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,
    unsigned threads_z, unsigned shared, void* stream, void** parameters, void** extra) {
  static const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(RTLD_NEXT, "cuLaunchKernel"));
  // Neither mapped nor aligned. Interpreted as a chunk count, it is small.
  static uint64_t nowhere = 1;
  void* wrong[MOST_PARAMETERS];
  if (takes("fault")) {
    for (void*& parameter : wrong) parameter = &nowhere;
    parameters = wrong;
  }
  if (takes("refuse")) threads_x = TOO_MANY;
  if (place) plant();
  return launch(kernel, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared, stream, parameters, extra);
}
