// The protocol of the programs that run kernels for the tests: jobs arrive on standard input and results
// are written to standard output; all numbers are little-endian.
//
// A job: u32 length of the entry point's name, the name, u32 blocks, u32 threads per block, u32 bytes of
// dynamic shared memory, u32 number of arguments, then the arguments. Each argument is a u32 kind and a
// u64: 0, a number; 1, a buffer's length, followed by its bytes; 2, the index of an earlier argument
// whose buffer is reused. The answer: the bytes of every buffer after the launch, in order. A program
// that cannot run a job reports the reason on standard error and exits with a failure.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

struct Argument {
  enum Kind : uint32_t { NUMBER, BUFFER, SAME } kind;
  uint64_t number;
  std::vector<uint8_t> bytes;
};
struct Job {
  std::string name;
  uint32_t blocks, threads, shared;
  std::vector<Argument> arguments;
};

[[noreturn]] inline void fail(const std::string& why) {
  fprintf(stderr, "%s\n", why.c_str());
  exit(1);
}

inline bool read_bytes(void* to, size_t length) { return fread(to, 1, length, stdin) == length; }

template <class T>
T read_number() {
  T value;
  if (!read_bytes(&value, sizeof value)) fail("a job ends early");
  return value;
}

// Reads the next job; false at the end of the input.
inline bool read_job(Job& job) {
  uint32_t length;
  if (!read_bytes(&length, sizeof length)) return false;
  job.name.resize(length);
  if (!read_bytes(&job.name[0], length)) fail("a job ends early");
  job.blocks = read_number<uint32_t>();
  job.threads = read_number<uint32_t>();
  job.shared = read_number<uint32_t>();
  job.arguments.assign(read_number<uint32_t>(), {});
  for (Argument& argument : job.arguments) {
    argument.kind = Argument::Kind(read_number<uint32_t>());
    argument.number = read_number<uint64_t>();
    if (argument.kind == Argument::BUFFER) argument.bytes.resize(argument.number);
    if (!read_bytes(argument.bytes.data(), argument.bytes.size())) fail("a job ends early");
  }
  return true;
}

inline void write_buffers(const Job& job) {
  for (const Argument& argument : job.arguments) {
    if (argument.kind == Argument::BUFFER) fwrite(argument.bytes.data(), 1, argument.bytes.size(), stdout);
  }
  fflush(stdout);
}

// Bytes around every buffer, to detect writes outside of it.
constexpr size_t GUARD = 256;
constexpr uint8_t GUARD_BYTE = 0x5c;
