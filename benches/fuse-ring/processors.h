// Which processors there are, and where threads run.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

[[noreturn]] static void die(const char* what) {
  perror(what);
  _exit(1);
}

// How many the kernel may have some day: it wants a queue for each.
static int possible_processors() {
  int first = 0, last = 0;
  FILE* f = fopen("/sys/devices/system/cpu/possible", "r");
  if (!f || fscanf(f, "%d-%d", &first, &last) < 1) die("possible processors");
  fclose(f);
  return std::max(first, last) + 1;
}

// Those that the calling thread may use.
static std::vector<int> available_processors() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> found;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set)) found.push_back(i);
  return found;
}

static void stay_at(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Where a thread ran last; -1 if it has ended.
static int processor_of(unsigned thread) {
  char name[64], text[1024];
  snprintf(name, sizeof name, "/proc/%u/stat", thread);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = 0;
  char* at = strrchr(text, ')');  // the end of field 2
  for (int field = 2; at && field < 39; field++) at = strchr(at + 1, ' ');
  return at ? atoi(at) : -1;
}
