// Requests through io_uring: an answer and the fetching of the next request are one command.
//
// The kernel has a queue for each processor and gives a request to the queue of the processor that its program runs on.
// It copies the request in the context of the thread that has the ring, so that this must enter the kernel once
// IORING_SQ_TASKRUN says so. Forgets and interrupts still come through /dev/fuse.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "device.h"

// What linux/fuse.h has from protocol 7.42 on.
static constexpr uint32_t REGISTER = 1, COMMIT_AND_FETCH = 2;
struct RingHeader {
  char in_out[128], op_in[128];
  uint64_t flags, commit_id;
  uint32_t payload_size, padding;
  uint64_t reserved;
};
struct RingCommand {
  uint64_t flags, commit_id;
  uint16_t queue;
  uint8_t padding[6];
};

// Room for one request of a queue.
struct Entry {
  RingHeader* header;
  char* payload;
  iovec parts[2];
  int queue;
};

struct Ring {
  int fd, device;
  unsigned *sq_tail, *sq_flags, *cq_head, *cq_tail, sq_mask, cq_mask, unsubmitted = 0;
  io_uring_cqe* cqes;
  char* sqes;

  Ring(int device, unsigned entries) : device(device) {
    io_uring_params p{};
    p.flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    fd = syscall(SYS_io_uring_setup, entries, &p);
    if (fd < 0) die("io_uring_setup");
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe);
    char* rings = map(std::max(sq, cq), IORING_OFF_SQ_RING);
    sqes = map(p.sq_entries * 128, IORING_OFF_SQES);
    sq_tail = (unsigned*)(rings + p.sq_off.tail);
    sq_flags = (unsigned*)(rings + p.sq_off.flags);
    cq_head = (unsigned*)(rings + p.cq_off.head);
    cq_tail = (unsigned*)(rings + p.cq_off.tail);
    cqes = (io_uring_cqe*)(rings + p.cq_off.cqes);
    sq_mask = p.sq_entries - 1;
    cq_mask = p.cq_entries - 1;
    auto* array = (unsigned*)(rings + p.sq_off.array);
    for (unsigned i = 0; i < p.sq_entries; i++) array[i] = i;
  }

  char* map(size_t size, off_t at) {
    void* m = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
    if (m == MAP_FAILED) die("mmap");
    return (char*)m;
  }

  void push(Entry& entry, uint32_t operation, uint64_t commit_id) {
    unsigned tail = *sq_tail;
    auto& sqe = *(io_uring_sqe*)(sqes + (tail & sq_mask) * 128);
    memset(&sqe, 0, 128);
    sqe.opcode = IORING_OP_URING_CMD;
    sqe.fd = device;
    sqe.cmd_op = operation;
    sqe.user_data = (uint64_t)&entry;
    if (operation == REGISTER) {
      sqe.addr = (uint64_t)entry.parts;
      sqe.len = 2;
    }
    RingCommand command{0, commit_id, (uint16_t)entry.queue, {}};
    memcpy(sqe.cmd, &command, sizeof command);
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    unsubmitted++;
  }

  void enter(unsigned wait) {
    int done = syscall(SYS_io_uring_enter, fd, unsubmitted, wait, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (done < 0 && errno != EINTR) die("io_uring_enter");
    if (done > 0) unsubmitted -= done;
  }

  // Takes a request that has come, if any. The end of the mount ends the process.
  Entry* next() {
    unsigned head = *cq_head;
    if (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) return nullptr;
    io_uring_cqe cqe = cqes[head & cq_mask];
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    if (cqe.res == -ENOTCONN || cqe.res == -ECONNABORTED) _exit(0);
    if (cqe.res < 0) errno = -cqe.res, die("completion");
    return (Entry*)cqe.user_data;
  }

  // Whether a request has come, or would with a call.
  bool has_work() {
    return *cq_head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(sq_flags, __ATOMIC_ACQUIRE) & IORING_SQ_TASKRUN;
  }
};

static void answer_entry(Ring& ring, Entry& entry) {
  fuse_in_header in;
  memcpy(&in, entry.header->in_out, sizeof in);
  uint32_t length;
  int result = serve(in, entry.header->op_in, entry.payload, entry.payload, &length);
  fuse_out_header out{uint32_t(sizeof out + length), result, in.unique};
  memcpy(entry.header->in_out, &out, sizeof out);
  entry.header->payload_size = length;
  ring.push(entry, COMMIT_AND_FETCH, entry.header->commit_id);
}

// Serves some queues with `room` for so many requests of each, until the mount ends, which ends the process.
[[noreturn]] static void serve_ring(int device, bool looks, int first_queue, int queues, int room) {
  Ring ring(device, queues * room);
  std::vector<Entry> entries(queues * room);
  for (int i = 0; i < queues * room; i++) {
    Entry& e = entries[i];
    e.header = (RingHeader*)aligned_alloc(4096, 4096);
    e.payload = (char*)aligned_alloc(4096, LARGEST);
    e.parts[0] = {e.header, sizeof *e.header};
    e.parts[1] = {e.payload, LARGEST};
    e.queue = first_queue + i / room;
    ring.push(e, REGISTER, 0);
  }
  for (;;) {
    if (looks) {
      if (ring.unsubmitted) ring.enter(0);
      look([&] { return ring.has_work(); });
    }
    ring.enter(1);
    while (Entry* entry = ring.next()) answer_entry(ring, *entry);
  }
}
