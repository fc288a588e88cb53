// FUSE requests through read(2) and writev(2) of /dev/fuse against io_uring, with the same filesystem behind both.
//
//   g++ -std=c++17 -O2 -static -pthread benches/fuse-ring/main.cc -o fuse-ring
//   echo Y > /sys/module/fuse/parameters/enable_uring
//   ./fuse-ring ROUNDS MILLISECONDS [PATTERN [WORK]]
//
// As root. Mounts the filesystem once for each way of serving, then runs each pattern, or those whose names begin
// with PATTERN, for MILLISECONDS with each way in turn, ROUNDS times. WORK is nanoseconds of made-up work for each read
// and write of up to 4 KiB. Prints medians: operations a second, microseconds of an operation as its thread sees it,
// microseconds of processor time for an operation, of the server and of the programs.
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <string>
#include <thread>

#include "ring.h"

using std::string;

struct Way {
  const char* name;
  bool ring;
  int threads;   // For each processor; 0: one for all; below: so many for all.
  bool pinned;   // Those of a processor stay there.
  bool looks;    // A thread looks for the next request before it sleeps.
  int room;      // Requests of a processor that a thread of the ring has room for.
  bool follows;  // A loop stays where its program runs.
};
static const Way WAYS[] = {
    {"device, 1 loop", false, 0, false, false, 0, false},
    {"device, 1 loop, looks", false, 0, false, true, 0, false},
    {"device, 1 loop, follows", false, 0, false, false, 0, true},
    {"device, 4 loops", false, -4, false, false, 0, false},
    {"device, 8 loops", false, -8, false, false, 0, false},
    {"device, loops", false, 1, false, false, 0, false},
    {"device, loops pinned", false, 1, true, false, 0, false},
    {"ring, 1 thread, looks", true, 0, false, true, 16, false},
    {"ring, threads", true, 1, false, false, 16, false},
    {"ring, threads pinned", true, 1, true, false, 16, false},
    {"ring, 4 pinned each", true, 4, true, false, 1, false},
};

enum Kind { READ, WRITE, SMALL, STAT };
struct Pattern {
  const char* name;
  Kind kind;
  int threads;
  size_t size;
  bool direct, in_order;
};
static const Pattern PATTERNS[] = {
    {"read 4K direct x1", READ, 1, 4096, true, false},
    {"read 4K direct x16", READ, 16, 4096, true, false},
    {"read 4K cached x1", READ, 1, 4096, false, false},
    {"read 4K cached x16", READ, 16, 4096, false, false},
    {"write 4K direct x1", WRITE, 1, 4096, true, false},
    {"write 4K direct x16", WRITE, 16, 4096, true, false},
    {"stream read 1M x1", READ, 1, MIB, true, true},
    {"stream read 1M x4", READ, 4, MIB, true, true},
    {"stream read 1M x16", READ, 16, MIB, true, true},
    {"stream read ahead x1", READ, 1, MIB, false, true},
    {"stream write 1M x1", WRITE, 1, MIB, true, true},
    {"stream write 1M x16", WRITE, 16, MIB, true, true},
    {"small file x1", SMALL, 1, 4096, false, false},
    {"small file x16", SMALL, 16, 4096, false, false},
    {"stat x1", STAT, 1, 0, false, false},
    {"stat x16", STAT, 16, 0, false, false},
};

struct Mount {
  string dir;
  pid_t server;
};

struct Sample {
  double rate, latency, server, programs;
};

static std::atomic<bool> stop;
static std::atomic<uint64_t> names;

[[noreturn]] static void run_server(int device, const Way& way) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  contents = (char*)mmap(nullptr, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (contents == MAP_FAILED) die("contents");
  shake_hands(device, way.ring);
  std::vector<std::thread> threads;
  auto start = [&](int processor, auto serve) {
    threads.emplace_back([=] {
      if (way.pinned) stay_at(processor);
      serve();
    });
  };
  int queues = possible_processors();  // The kernel uses no queue before each has an entry.
  if (way.ring) {
    threads.emplace_back([=] { serve_device(device, false, false); });
    if (way.threads == 0) start(0, [=] { serve_ring(device, way.looks, 0, queues, way.room); });
    for (int i = 0; i < queues * way.threads; i++) {
      int queue = i / way.threads;
      start(queue, [=] { serve_ring(device, way.looks, queue, 1, way.room); });
    }
  } else {
    std::vector<int> processors = available_processors();
    if (way.threads <= 0) processors.resize(way.threads ? -way.threads : 1, processors[0]);
    for (int processor : processors) start(processor, [=] { serve_device(device, way.looks, way.follows); });
  }
  for (auto& t : threads) t.join();
  _exit(0);
}

static Mount make_mount(const Way& way) {
  char dir[] = "/tmp/fuse-ring-XXXXXX";
  if (!mkdtemp(dir)) die("mkdtemp");
  int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) die("/dev/fuse");
  string data = "rootmode=40000,user_id=0,group_id=0,fd=" + std::to_string(device);
  if (mount("fuse-ring", dir, "fuse.ring", MS_NOSUID | MS_NODEV, data.c_str()) < 0) die("mount");
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) run_server(device, way);
  close(device);
  return {dir, pid};
}

// What was written is read again.
static void check(const Mount& mount) {
  alignas(4096) static char out[MIB], in[MIB];
  for (size_t size : {size_t(4096), MIB}) {
    for (size_t i = 0; i < size; i++) out[i] = rand();
    int fd = open((mount.dir + "/d0").c_str(), O_RDWR | O_DIRECT);
    if (pwrite(fd, out, size, 2 * MIB) != (ssize_t)size || pread(fd, in, size, 2 * MIB) != (ssize_t)size) die("check");
    if (memcmp(in, out, size)) die("contents differ");
    close(fd);
  }
}

static uint64_t run_file(const Pattern& p, const string& name) {
  alignas(4096) static thread_local char buffer[MIB];
  size_t blocks = FILE_SIZE / p.size;
  uint64_t done = 0;
  while (!stop) {  // Opening drops what the kernel has of the file.
    int fd = open(name.c_str(), O_RDWR | (p.direct ? O_DIRECT : 0));
    if (fd < 0) die(name.c_str());
    if (!p.in_order) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (size_t i = 0; i < blocks && !stop; i++, done++) {
      off_t at = (p.in_order ? i : i * 2654435761u % blocks) * p.size;
      ssize_t n = p.kind == READ ? pread(fd, buffer, p.size, at) : pwrite(fd, buffer, p.size, at);
      if (n != (ssize_t)p.size) die("read or write");
    }
    close(fd);
  }
  return done;
}

static uint64_t run_small(const Pattern& p, const string& dir) {
  char buffer[4096] = {};
  uint64_t done = 0;
  for (; !stop; done++) {
    string name = dir + "/s" + std::to_string(names++);
    int fd = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0 || write(fd, buffer, p.size) < 0 || close(fd) < 0 || unlink(name.c_str()) < 0) die(name.c_str());
  }
  return done;
}

static uint64_t run_stat(const string& dir, int thread) {
  struct stat st;
  uint64_t done = 0;
  for (; !stop; done++) {
    string name = dir + "/n" + std::to_string(thread * 1000 + done % 1000);
    if (stat(name.c_str(), &st) < 0) die(name.c_str());
  }
  return done;
}

static uint64_t run(const Pattern& p, const string& dir, int thread) {
  switch (p.kind) {
    case SMALL:
      return run_small(p, dir);
    case STAT:
      return run_stat(dir, thread);
    default:
      return run_file(p, dir + "/d" + std::to_string(thread));
  }
}

static int64_t processor_time(clockid_t clock) {
  timespec t;
  if (clock_gettime(clock, &t) < 0) die("processor time");
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static Sample measure(const Pattern& p, const Mount& mount, int milliseconds) {
  clockid_t server;
  if (clock_getcpuclockid(mount.server, &server)) die("server");
  stop = false;
  std::atomic<uint64_t> done{0};
  int64_t start = now(), server_start = processor_time(server), own_start = processor_time(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<std::thread> threads;
  for (int i = 0; i < p.threads; i++) threads.emplace_back([&, i] { done += run(p, mount.dir, i); });
  usleep(milliseconds * 1000);
  stop = true;
  for (auto& t : threads) t.join();
  double wall = now() - start, n = std::max<uint64_t>(done, 1);
  double server_time = processor_time(server) - server_start;
  double own_time = processor_time(CLOCK_PROCESS_CPUTIME_ID) - own_start;
  return {n * 1e9 / wall, wall * p.threads / n / 1e3, server_time / n / 1e3, own_time / n / 1e3};
}

static double median(const std::vector<Sample>& samples, double Sample::* field) {
  std::vector<double> values;
  for (auto& s : samples) values.push_back(s.*field);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "fuse-ring ROUNDS MILLISECONDS [PATTERN [WORK]]\n"), 2;
  int rounds = std::max(1, atoi(argv[1])), milliseconds = atoi(argv[2]);
  string prefix = argc > 3 ? argv[3] : "";
  work = argc > 4 ? atoll(argv[4]) : 0;
  signal(SIGPIPE, SIG_IGN);  // The mounts must be ended.
  std::vector<Mount> mounts;
  for (auto& way : WAYS) mounts.push_back(make_mount(way));
  for (auto& mount : mounts) check(mount);
  printf("pattern,way,operations a second,us each,us of the server,us of the programs\n");
  for (auto& p : PATTERNS) {
    if (string(p.name).rfind(prefix, 0) != 0) continue;
    std::vector<std::vector<Sample>> samples(mounts.size());
    for (int round = 0; round < rounds; round++)
      for (size_t w = 0; w < mounts.size(); w++) samples[w].push_back(measure(p, mounts[w], milliseconds));
    for (size_t w = 0; w < mounts.size(); w++)
      printf("%s,\"%s\",%.0f,%.1f,%.2f,%.2f\n", p.name, WAYS[w].name, median(samples[w], &Sample::rate),
             median(samples[w], &Sample::latency), median(samples[w], &Sample::server),
             median(samples[w], &Sample::programs));
    fflush(stdout);
  }
  for (auto& mount : mounts) {
    if (umount2(mount.dir.c_str(), MNT_DETACH) < 0) perror("umount");
    waitpid(mount.server, nullptr, 0);
    rmdir(mount.dir.c_str());
  }
}
