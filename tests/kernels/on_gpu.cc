// Runs jobs (jobs.h) on the first CUDA device: on_gpu FATBIN... Exits with status 77 and a reason if
// there is no driver or no device.
#include <algorithm>

#include "cuda_driver.h"
#include "jobs.h"

int main(int, char** arguments) {
  std::string reason = cuda::start();
  if (!reason.empty()) {
    fprintf(stderr, "%s\n", reason.c_str());
    return 77;
  }
  if (!arguments[1]) fail("which fatbin?");
  cuda::Module module(arguments[1]);
  for (char** more = arguments + 2; *more; more++) module.load(*more);
  Job job;
  while (read_job(job)) {
    std::vector<cuda::Memory> buffers;
    std::vector<uint64_t> values;
    for (const Argument& argument : job.arguments) {
      if (argument.kind == Argument::BUFFER) {
        std::vector<uint8_t> guarded(argument.bytes.size() + 2 * GUARD, GUARD_BYTE);
        std::copy(argument.bytes.begin(), argument.bytes.end(), guarded.begin() + GUARD);
        buffers.emplace_back(guarded.size());
        buffers.back().upload(guarded);
      }
      switch (argument.kind) {
        case Argument::NUMBER:
          values.push_back(argument.number);
          break;
        case Argument::BUFFER:
          values.push_back(buffers.back().address + GUARD);
          break;
        case Argument::SAME:
          values.push_back(values.at(argument.number));
          break;
      }
    }
    module.launch(job.name, job.blocks, job.threads, job.shared, values);
    cuda::synchronize();
    auto buffer = buffers.begin();
    for (Argument& argument : job.arguments) {
      if (argument.kind != Argument::BUFFER) continue;
      std::vector<uint8_t> guarded = (buffer++)->download();
      auto inner = guarded.begin() + GUARD, end = guarded.end() - GUARD;
      std::copy(inner, end, argument.bytes.begin());
      std::fill(inner, end, GUARD_BYTE);
      for (uint8_t byte : guarded) {
        if (byte != GUARD_BYTE) fail(job.name + ": wrote outside of a buffer");
      }
    }
    write_buffers(job);
  }
}
