// The filesystem behind every way of serving: a few files whose contents are one piece of memory.
//
// d0, d1, … share that memory; n0, n1, … are empty and are looked up each time; any other name can be created and
// removed, and is not kept.
#pragma once

#include <errno.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>

static constexpr size_t MIB = 1 << 20, FILE_SIZE = 32 * MIB;
// Bytes of a request's data at most.
static constexpr size_t LARGEST = MIB;
// Numbers of the files: d0 is 2.
static constexpr uint64_t FIRST_NAMED = 1000, FIRST_MADE = 1000000;
static constexpr uint64_t LASTING = 60;  // s
// What serve() returns for a request that wants no answer; else 0 or a negative errno.
static constexpr int NO_ANSWER = 1;

static char* contents;
// Made-up work for each read and write of up to 4 KiB, in nanoseconds.
static int64_t work;
static std::atomic<uint64_t> next_made{FIRST_MADE};

static int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static fuse_attr attributes(uint64_t node) {
  fuse_attr a{};
  a.ino = node;
  a.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
  a.nlink = 1;
  a.size = node > FUSE_ROOT_ID && node < FIRST_NAMED ? FILE_SIZE : 0;
  a.blksize = 4096;
  return a;
}

static fuse_entry_out entry(uint64_t node, uint64_t valid) {
  fuse_entry_out e{};
  e.nodeid = node;
  e.entry_valid = valid;
  e.attr_valid = LASTING;
  e.attr = attributes(node);
  return e;
}

// Bytes of a request's first argument, which the ring keeps apart from the others.
static size_t fixed_size(uint32_t opcode) {
  switch (opcode) {
    case FUSE_GETATTR:
      return sizeof(fuse_getattr_in);
    case FUSE_SETATTR:
      return sizeof(fuse_setattr_in);
    case FUSE_CREATE:
      return sizeof(fuse_create_in);
    case FUSE_READ:
    case FUSE_READDIR:
      return sizeof(fuse_read_in);
    case FUSE_WRITE:
      return sizeof(fuse_write_in);
    default:
      return 0;  // Of the others, those with one are served without a look at it.
  }
}

template <class T>
static int answer(char* out, uint32_t* length, const T& value) {
  memcpy(out, &value, sizeof value);
  *length = sizeof value;
  return 0;
}

static void do_work(uint32_t size) {
  if (!work || size > 4096) return;
  for (int64_t end = now() + work; now() < end;) {
  }
}

// Serves a request with its first argument and the others. `out` may be where `data` is.
static int serve(const fuse_in_header& in, const char* fixed, const char* data, char* out, uint32_t* length) {
  *length = 0;
  switch (in.opcode) {
    case FUSE_LOOKUP:
      if (data[0] == 'd') return answer(out, length, entry(2 + atoi(data + 1), LASTING));
      if (data[0] == 'n') return answer(out, length, entry(FIRST_NAMED + atoi(data + 1), 0));
      return -ENOENT;
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
      fuse_attr_out a{};
      a.attr_valid = LASTING;
      a.attr = attributes(in.nodeid);
      return answer(out, length, a);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR:
      return answer(out, length, fuse_open_out{});
    case FUSE_CREATE: {
      struct {
        fuse_entry_out entry;
        fuse_open_out open;
      } made{entry(next_made++, LASTING), {}};
      return answer(out, length, made);
    }
    case FUSE_READ: {
      auto& read = *(const fuse_read_in*)fixed;
      do_work(read.size);
      *length = read.offset < FILE_SIZE ? std::min<uint64_t>(read.size, FILE_SIZE - read.offset) : 0;
      memcpy(out, contents + read.offset, *length);
      return 0;
    }
    case FUSE_WRITE: {
      auto& write = *(const fuse_write_in*)fixed;
      do_work(write.size);
      if (in.nodeid < FIRST_NAMED && write.offset + write.size <= FILE_SIZE)
        memcpy(contents + write.offset, data, write.size);
      fuse_write_out written{};
      written.size = write.size;
      return answer(out, length, written);
    }
    case FUSE_UNLINK:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_READDIR:
      return 0;
    case FUSE_STATFS:
      return answer(out, length, fuse_statfs_out{});
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return NO_ANSWER;
    default:
      return -ENOSYS;
  }
}
