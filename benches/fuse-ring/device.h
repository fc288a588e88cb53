// Requests through /dev/fuse: one read(2) and one writev(2) each.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include "filesystem.h"
#include "processors.h"

// What linux/fuse.h has from protocol 7.42 on, as a bit of the second 32.
static constexpr uint32_t OVER_IO_URING = 1 << (41 - 32);
// How long a thread looks for the next request before it sleeps.
static constexpr int64_t LOOK = 30000;  // ns
// A loop that follows its program asks where that is as often.
static constexpr unsigned FOLLOW_EVERY = 64;

static void send(int device, uint64_t unique, int error, const char* out, uint32_t length) {
  fuse_out_header header{uint32_t(sizeof header + length), error, unique};
  iovec parts[] = {{&header, sizeof header}, {(void*)out, length}};
  if (writev(device, parts, length ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV) perror("answer");
}

// Answers the kernel's first request; with `ring`, asks for io_uring.
static void shake_hands(int device, bool ring) {
  alignas(8) static char buffer[LARGEST + 4096];
  if (read(device, buffer, sizeof buffer) < 0) die("init");
  auto& header = *(fuse_in_header*)buffer;
  auto& in = *(fuse_init_in*)(&header + 1);
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = FUSE_KERNEL_MINOR_VERSION;
  out.max_readahead = LARGEST;
  out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES | FUSE_PARALLEL_DIROPS |
                          FUSE_INIT_EXT);
  if (ring && !(in.flags2 & OVER_IO_URING)) {
    fprintf(stderr, "the kernel does not offer io_uring: see /sys/module/fuse/parameters/enable_uring\n");
    _exit(1);
  }
  out.flags2 = ring ? OVER_IO_URING : 0;
  out.max_background = 64;
  out.congestion_threshold = 48;
  out.max_write = LARGEST;
  out.max_pages = LARGEST / 4096;
  send(device, header.unique, 0, (char*)&out, sizeof out);
}

// Looks for a moment whether it `came`.
template <class F>
static void look(F came) {
  for (int64_t end = now() + LOOK; !came() && now() < end;) __builtin_ia32_pause();
}

// Serves until the mount ends, which ends the process. With `follows`, the loop stays where its program runs.
[[noreturn]] static void serve_device(int device, bool looks, bool follows) {
  size_t size = LARGEST + 4096;
  char *buffer = (char*)aligned_alloc(4096, size), *out = (char*)aligned_alloc(4096, LARGEST);
  for (unsigned served = 0;;) {
    if (looks)
      look([&] {
        pollfd p{device, POLLIN, 0};
        return poll(&p, 1, 0) > 0;
      });
    ssize_t got = read(device, buffer, size);
    if (got < 0 && errno == ENODEV) _exit(0);
    if (got < 0) continue;
    auto& in = *(fuse_in_header*)buffer;
    if (follows && served++ % FOLLOW_EVERY == 0) {
      int processor = processor_of(in.pid);
      if (processor >= 0) stay_at(processor);
    }
    const char* fixed = buffer + sizeof in;
    uint32_t length;
    int result = serve(in, fixed, fixed + fixed_size(in.opcode), out, &length);
    if (result != NO_ANSWER) send(device, in.unique, result, out, length);
  }
}
