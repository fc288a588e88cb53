// Random reads of 4 KiB in one file by several threads.
//
//   gcc -O2 -static -pthread benches/readers.c -o readers
//   ./readers FILE THREADS direct|cached SECONDS PID
//
// Each thread has a descriptor of its own. With `cached` the pages are dropped first. Prints thousand reads a second,
// and microseconds of processor time of the process PID, which serves the mount, for each.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4096, MOST_THREADS = 64 };

static const char* path;
static int direct;
static double end;
static long total;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void* read_at_random(void* number) {
  int file = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
  if (file < 0) die(path);
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  long blocks = lseek(file, 0, SEEK_END) / SIZE, done = 0;
  void* buffer;
  if (posix_memalign(&buffer, SIZE, SIZE)) die("memory");
  unsigned long random = 88172645463325252UL * (2 * (long)number + 1);
  for (; done % 16 || now() < end; done++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    if (pread(file, buffer, SIZE, random % blocks * SIZE) != SIZE) die("read");
  }
  __sync_fetch_and_add(&total, done);
  return NULL;
}

// Processor time of a process, in clock ticks.
static long ticks(const char* pid) {
  char name[64], text[1024] = "";
  snprintf(name, sizeof name, "/proc/%s/stat", pid);
  FILE* stat = fopen(name, "r");
  if (!stat || !fgets(text, sizeof text, stat)) die(name);
  fclose(stat);
  long user, kernel;
  if (sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &kernel) != 2) die(name);
  return user + kernel;
}

int main(int count, char** arguments) {
  if (count != 6) die("usage: readers FILE THREADS direct|cached SECONDS PID");
  path = arguments[1];
  int threads = atoi(arguments[2]);
  if (threads < 1 || threads > MOST_THREADS) die("THREADS");
  direct = !strcmp(arguments[3], "direct");
  if (!direct) {
    int file = open(path, O_RDONLY);
    if (file < 0) die(path);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  long used = ticks(arguments[5]);
  double start = now();
  end = start + atof(arguments[4]);
  pthread_t all[MOST_THREADS];
  for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, read_at_random, (void*)i);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  double each = 1e6 / sysconf(_SC_CLK_TCK);
  printf("%.1f k/s, %.1f us\n", total / (now() - start) / 1e3, (ticks(arguments[5]) - used) * each / total);
}
