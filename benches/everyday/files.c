// Makes or looks at many small files in directories of a thousand, with THREADS threads. Prints the seconds that it took.
// Usage: files make|stat PLACE COUNT [DIRECTORY]; `stat` looks at ten thousand of COUNT, drawn at random. A directory has DIRECTORY
// of them. A thread makes a thousand files that follow one another, and then others.
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef THREADS
#define THREADS 4
#endif
enum { SIZE = 100, DRAWN = 10000, BLOCK = 1000 };

static const char *place;
static long count, per_dir = 1000;
static atomic_long next;
static char content[SIZE];

static void path_of(char *path, long dir, long file) {
    int used = snprintf(path, 4096, "%s/directory %05ld", place, dir);
    if (file >= 0) snprintf(path + used, 4096 - used, "/file %03ld", file);
}

static void *make(void *_) {
    char path[4096];
    for (long first; (first = next++ * BLOCK) < count;)
        for (long file = first; file < first + BLOCK && file < count; file++) {
            if (file == first || file % per_dir == 0) {
                path_of(path, file / per_dir, -1);
                if (mkdir(path, 0777) && errno != EEXIST) err(1, "%s", path);
            }
            path_of(path, file / per_dir, file % per_dir);
            int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0666);
            if (fd < 0 || write(fd, content, SIZE) != SIZE || close(fd)) err(1, "%s", path);
        }
    return _;
}

static void *look(void *_) {
    char path[4096];
    struct stat found;
    unsigned seed = 1 + next++;
    for (int n = 0; n < DRAWN / THREADS; n++) {
        long file = ((long)rand_r(&seed) << 31 | rand_r(&seed)) % count;
        path_of(path, file / per_dir, file % per_dir);
        if (stat(path, &found)) err(1, "%s", path);
        if (found.st_size != SIZE) errx(1, "%s: %ld bytes", path, (long)found.st_size);
    }
    return _;
}

int main(int argc, char **argv) {
    if (argc < 4) errx(2, "usage: files make|stat PLACE COUNT [DIRECTORY]");
    place = argv[2], count = atol(argv[3]);
    if (argc > 4) per_dir = atol(argv[4]);
    memset(content, 'x', SIZE);
    pthread_t threads[THREADS];
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int n = 0; n < THREADS; n++)
        if (pthread_create(&threads[n], NULL, strcmp(argv[1], "make") ? look : make, NULL)) errx(1, "no thread");
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.1f\n", end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
}
