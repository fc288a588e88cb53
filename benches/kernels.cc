// Throughput of the CUDA kernels over data that is on the device already: real input and output, no transfers.
//
//   g++ -std=c++17 -O2 -Itests/kernels benches/kernels.cc -o kernels-bench -ldl
//   ./kernels-bench kernels/warpcrypt.fatbin [MIB [RUNS [PREFIX]]] > benches/results/NAME.csv
//
// Each line is the median of RUNS launches (21 unless given, after one that does not count) over MIB (2048
// unless given) of 4 KiB chunks or of one stream, at full occupancy, timed with events. GB/s count the data once
// and are 10^9 bytes. With PREFIX, only entry points whose names begin so. Short batches follow: their
// fastest geometry counts, and their median too.
#include <string.h>
#include <time.h>

#include <algorithm>

#include "cuda_driver.h"

static constexpr unsigned TABLES = 69632, DECRYPTION_TABLES = 98304, DESK = 5104;
static constexpr size_t CHUNK = 4096;

struct Bench {
  cuda::Module module;
  size_t bytes;
  int runs;
  std::string prefix;
  cuda::Memory input, output, keys, chunks, tags;

  Bench(const char* fatbin, size_t bytes, int runs, const char* prefix)
      : module(fatbin),
        bytes(bytes),
        runs(runs),
        prefix(prefix),
        input(bytes),
        output(bytes),
        keys(656),
        chunks(bytes / CHUNK * 64),
        tags(bytes / CHUNK * 16) {
    std::vector<uint8_t> slot(656);
    for (size_t i = 0; i < slot.size(); i++) slot[i] = uint8_t(i * 167 >> 3);
    set_rounds(slot, 14);
    std::vector<uint8_t> descriptors(chunks.length);
    for (size_t i = 0; i < bytes / CHUNK; i++) {
      uint8_t* chunk = &descriptors[i * 64];
      uint64_t at = i * CHUNK, index = i;
      uint16_t length = CHUNK;
      memcpy(chunk, &at, 8), memcpy(chunk + 8, &at, 8), memcpy(chunk + 16, &index, 8), memcpy(chunk + 42, &length, 2);
    }
    chunks.upload(descriptors);
    module.launch("kuznyechik_tables", 192, 64, 0, {});
    // Something that does not compress, and neither repeats.
    module.launch("aes_ctr", 128, 512, TABLES, {keys.address, 10, keys.address, output.address, input.address, bytes});
    cuda::synchronize();
  }
  void set_rounds(std::vector<uint8_t>& slot, uint32_t rounds) {
    memcpy(&slot[240], &rounds, 4);
    keys.upload(slot);
  }

  // Seals the input into the output and puts the tags into the descriptors, so that every chunk verifies.
  void seal_for_opening(const std::string& name) {
    module.launch(name, cuda::processors(), 512, TABLES,
                  {keys.address, chunks.address, bytes / CHUNK, input.address, output.address, tags.address, 0, 0});
    cuda::synchronize();
    std::vector<uint8_t> descriptors = chunks.download(), made = tags.download();
    for (size_t i = 0; i < bytes / CHUNK; i++) memcpy(&descriptors[i * 64 + 48], &made[i * 16], 16);
    chunks.upload(descriptors);
  }
  void check_verdicts(const std::string& name) {
    if (("open_" + name).compare(0, prefix.size(), prefix) != 0) return;
    std::vector<uint8_t> verdicts = tags.download();
    for (size_t i = 0; i < bytes / CHUNK; i++) {
      if (verdicts[i * 4] == 1) continue;
      fprintf(stderr, "open_%s: chunk %zu does not verify\n", name.c_str(), i);
      exit(1);
    }
  }

  static bool is_wide(const std::string& name) { return name.find("_wide") != std::string::npos; }

  // Median milliseconds of a launch.
  double time(const std::string& name, unsigned blocks, unsigned threads, unsigned shared,
              const std::vector<uint64_t>& values) {
    void *start, *stop;
    CUDA(cuEventCreate, &start, 0);
    CUDA(cuEventCreate, &stop, 0);
    std::vector<float> times;
    for (int run = 0; run <= runs; run++) {
      float milliseconds;
      CUDA(cuEventRecord, start, nullptr);
      module.launch(name, blocks, threads, shared, values);
      CUDA(cuEventRecord, stop, nullptr);
      CUDA(cuEventSynchronize, stop);
      CUDA(cuEventElapsedTime_v2, &milliseconds, start, stop);
      if (run) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  void line(const std::string& name, const std::string& what, unsigned blocks, unsigned threads, size_t size,
            double milliseconds) {
    printf("%s,%s,%u,%u,%.6g,%.4f,%.1f\n", name.c_str(), what.c_str(), blocks, threads, size / 1048576.0, milliseconds,
           size / milliseconds / 1e6);
    fflush(stdout);
  }

  // As many blocks as the device holds. Those of a wide kernel take a desk a warp besides.
  void full(const std::string& name, const std::string& what, unsigned tables, std::vector<unsigned> sizes,
            const std::vector<uint64_t>& values) {
    if (name.compare(0, prefix.size(), prefix) != 0) return;
    for (unsigned threads : sizes) {
      unsigned shared = tables + (is_wide(name) ? threads / 32 * DESK : 0);
      unsigned blocks = cuda::processors() * module.occupancy(name, threads, shared);
      if (blocks == 0) continue;  // more threads than the kernel is compiled for
      line(name, what, blocks, threads, bytes, time(name, blocks, threads, shared, values));
    }
  }
  // A thread for each of `count` items.
  void one_each(const std::string& name, size_t count, std::vector<unsigned> sizes, const std::vector<uint64_t>& values,
                size_t size) {
    if (name.compare(0, prefix.size(), prefix) != 0) return;
    for (unsigned threads : sizes) {
      if (module.occupancy(name, threads, 0) == 0) continue;
      unsigned blocks = (count + threads - 1) / threads;
      line(name, "", blocks, threads, size, time(name, blocks, threads, 0, values));
    }
  }
  // The best of several block sizes, just enough warps for the batch.
  void batch(const std::string& name, size_t size) {
    if (name.compare(0, prefix.size(), prefix) != 0) return;
    size_t count = size / CHUNK, warps = is_wide(name) ? count : (count + 31) / 32;
    double best = 1e9;
    unsigned best_blocks = 0, best_threads = 0;
    for (unsigned threads : {32, 64, 128, 256, 512}) {
      unsigned shared = TABLES + (is_wide(name) ? threads / 32 * DESK : 0);
      unsigned most = cuda::processors() * module.occupancy(name, threads, shared);
      if (most == 0) continue;
      // Warps without a chunk help to fill the tables.
      size_t wanted = is_wide(name) ? count : (warps + threads / 32 - 1) / (threads / 32);
      unsigned blocks = std::min<size_t>(wanted, most);
      double milliseconds = time(name, blocks, threads, shared,
                                 {keys.address, chunks.address, count, input.address, output.address, tags.address, 0, 0});
      if (milliseconds < best) best = milliseconds, best_blocks = blocks, best_threads = threads;
    }
    line(name, "batch", best_blocks, best_threads, size, best);
  }

  void all() {
    const uint64_t in = input.address, out = output.address, key = keys.address, counter = keys.address + 256;
    const std::vector<unsigned> sizes = {256, 384, 512, 1024};
    for (const char* name : {"aes_ctr", "aes_ctr_2", "aes_ctr_1", "aes_ctr_constant", "aes_ctr_shared"}) {
      unsigned shared = strstr(name, "constant") ? 0 : strstr(name, "shared") ? 2048 : TABLES;
      for (uint64_t rounds : {10, 12, 14})
        full(name, "AES-" + std::to_string(rounds * 32 - 192), shared, sizes, {key, rounds, counter, in, out, bytes});
    }
    for (uint64_t rounds : {10, 12, 14}) {
      full("aes_ecb_encrypt", "AES-" + std::to_string(rounds * 32 - 192), TABLES, {512, 1024},
           {key, rounds, in, out, bytes / 16});
      full("aes_ecb_decrypt", "AES-" + std::to_string(rounds * 32 - 192), TABLES, {512, 1024},
           {key, rounds, in, out, bytes / 16});
    }
    for (const char* name : {"kuznyechik_ctr", "kuznyechik_ctr_1", "kuznyechik_ctr_4", "kuznyechik_ctr_global"}) {
      full(name, "", strstr(name, "global") ? 0 : TABLES, sizes, {key, counter, in, out, bytes});
    }
    full("kuznyechik_ecb_encrypt", "", TABLES, sizes, {key, in, out, bytes / 16});
    full("kuznyechik_ecb_decrypt", "", DECRYPTION_TABLES, sizes, {key, in, out, bytes / 16});
    full("kuznyechik_ecb_encrypt_global", "", 0, {512}, {key, in, out, bytes / 16});
    full("kuznyechik_ecb_decrypt_global", "", 0, {512}, {key, in, out, bytes / 16});

    const size_t states = bytes / 200, count = bytes / CHUNK;
    for (const char* name : {"keccak_f1600_unrolled", "keccak_f1600_loop"})
      one_each(name, states, {64, 128}, {out, states}, states * 200);
    full("keccak_f1600_shuffle", "", 0, {128, 512}, {out, states});
    full("keccak_f1600_shared", "", 4096, {512}, {out, states});
    for (const char* name : {"kmac128_tags", "kmac256_tags", "turboshake128x4_tags"}) {
      one_each(name, count, {32, 64, 128}, {key, chunks.address, count, in, tags.address}, bytes);
      full(std::string(name) + "_wide", "", 0, {128, 256}, {key, chunks.address, count, in, tags.address});
    }
    for (const char* cipher : {"aes", "kuznyechik"}) {
      for (const char* integrity : {"kmac128", "kmac256", "turboshake128x4"}) {
        const std::string name = std::string(cipher) + "_" + integrity, what = *cipher == 'a' ? "AES-256" : "";
        full("seal_" + name, what, TABLES, {128, 256, 384, 512}, {key, chunks.address, count, in, out, tags.address, 0, 0});
        seal_for_opening("seal_" + name);
        full("open_" + name, what, TABLES, {128, 256, 384, 512}, {key, chunks.address, count, out, in, tags.address, 0, 0});
        check_verdicts(name);
        full("seal_" + name + "_wide", what, TABLES, {256, 512}, {key, chunks.address, count, in, out, tags.address, 0, 0});
      }
    }
    for (const char* name : {"seal_aes_kmac128", "seal_kuznyechik_kmac128", "seal_aes_turboshake128x4"}) {
      for (size_t mib : {1, 4, 16, 64}) {
        batch(name, std::min(bytes, mib << 20));
        batch(std::string(name) + "_wide", std::min(bytes, mib << 20));
      }
    }
  }
};

int main(int count, char** arguments) {
  std::string reason = cuda::start();
  if (!reason.empty() || count < 2) {
    fprintf(stderr, "%s\n", reason.empty() ? "which fatbin?" : reason.c_str());
    return 1;
  }
  char day[32];
  time_t now = time(nullptr);
  strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
  int driver;
  CUDA(cuDriverGetVersion, &driver);
  printf("# %s, %s, CUDA driver %d.%d, command:", day, cuda::device_name().c_str(), driver / 1000, driver % 1000 / 10);
  for (int i = 0; i < count; i++) printf(" %s", arguments[i]);
  printf("\nentry point,variant,blocks,threads,MiB,median ms,GB/s\n");
  size_t mib = count > 2 ? strtoull(arguments[2], nullptr, 10) : 2048;
  Bench(arguments[1], mib << 20, count > 3 ? atoi(arguments[3]) : 21, count > 4 ? arguments[4] : "").all();
}
