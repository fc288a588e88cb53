// A libcuda.so.1 in front of another one, which does all the work: only launches fail now and then. A launch looks
// for two files in the folder that CUDA_FAULTS names, and the one that takes a file away fails:
//   fault    the kernel gets addresses that lead nowhere: the context is lost once it runs
//   refuse   the driver is asked for more threads in a block than any device has, and refuses
// Both are left to the driver behind: what happens after them is what it does after such a mistake.
#include <dlfcn.h>
#include <stdint.h>
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

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuLaunchKernel(
    void* kernel, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,
    unsigned threads_z, unsigned shared, void* stream, void** parameters, void** extra) {
  static const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(RTLD_NEXT, "cuLaunchKernel"));
  // Neither mapped nor aligned; as a number of chunks it is small.
  static uint64_t nowhere = 1;
  void* wrong[MOST_PARAMETERS];
  if (takes("fault")) {
    for (void*& parameter : wrong) parameter = &nowhere;
    parameters = wrong;
  }
  if (takes("refuse")) threads_x = TOO_MANY;
  return launch(kernel, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared, stream, parameters, extra);
}
