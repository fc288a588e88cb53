// Runs jobs (jobs.h) on the CPU, each twice, with its threads in both orders. The including file defines
// KERNELS, its entry points by name, and includes their sources.
#pragma once
#include "jobs.h"

#include <functional>
#include <map>
#include <string.h>
#include <utility>

// Turns a job's numbers and addresses into a kernel's parameters.
template <class... Parameters>
class Entry {
 public:
  explicit Entry(void (*kernel)(Parameters...)) : kernel(kernel) {}
  void operator()(const std::vector<uint64_t>& values) const {
    if (values.size() != sizeof...(Parameters)) fail("wrong number of arguments");
    call(values, std::index_sequence_for<Parameters...>());
  }

 private:
  template <size_t... I>
  void call(const std::vector<uint64_t>& values, std::index_sequence<I...>) const {
    kernel((Parameters)(values[I])...);
  }
  void (*kernel)(Parameters...);
};

using Kernel = std::function<void(const std::vector<uint64_t>&)>;
#define ENTRY(name) {#name, Entry(name)}
extern const std::map<std::string, Kernel> KERNELS;

// A copy of a buffer with guards around it, aligned as the device's allocator would align it.
class Guarded {
 public:
  explicit Guarded(const std::vector<uint8_t>& bytes) : length(bytes.size()) {
    memory = static_cast<uint8_t*>(aligned_alloc(GUARD, (length + 3 * GUARD - 1) / GUARD * GUARD));
    if (!memory) fail("out of memory");
    memset(memory, GUARD_BYTE, length + 2 * GUARD);
    memcpy(memory + GUARD, bytes.data(), length);
  }
  Guarded(Guarded&& other) : memory(std::exchange(other.memory, nullptr)), length(other.length) {}
  ~Guarded() { free(memory); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory + GUARD); }
  std::vector<uint8_t> take(const Job& job) const {
    for (size_t i = 0; i < GUARD; i++) {
      if (memory[i] != GUARD_BYTE || memory[GUARD + length + i] != GUARD_BYTE)
        fail(job.name + ": wrote outside of a buffer");
    }
    return {memory + GUARD, memory + GUARD + length};
  }

 private:
  uint8_t* memory;
  size_t length;
};

inline std::vector<std::vector<uint8_t>> run(const Job& job, bool backwards) {
  auto kernel = KERNELS.find(job.name);
  if (kernel == KERNELS.end()) fail(job.name + ": no such entry point");
  std::vector<Guarded> buffers;
  std::vector<uint64_t> values;
  for (const Argument& argument : job.arguments) {
    if (argument.kind == Argument::BUFFER) buffers.emplace_back(argument.bytes);
    switch (argument.kind) {
      case Argument::NUMBER:
        values.push_back(argument.number);
        break;
      case Argument::BUFFER:
        values.push_back(buffers.back().address());
        break;
      case Argument::SAME:
        values.push_back(values.at(argument.number));
        break;
    }
  }
  cpu::launch(job.blocks, job.threads, job.shared, backwards, [&] { kernel->second(values); });
  std::vector<std::vector<uint8_t>> results;
  for (const Guarded& buffer : buffers) results.push_back(buffer.take(job));
  return results;
}

int main() {
  Job job;
  while (read_job(job)) {
    auto results = run(job, false);
#ifndef CUDA_ON_THREADS
    if (run(job, true) != results) fail(job.name + ": the result depends on the order of the threads");
#endif
    auto result = results.begin();
    for (Argument& argument : job.arguments) {
      if (argument.kind == Argument::BUFFER) argument.bytes = *result++;
    }
    write_buffers(job);
  }
}
