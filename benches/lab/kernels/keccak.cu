// Experiments with Keccak-f[1600]: how many threads share a state, and how they see each other's lanes. After
// a comparison in OpenCL on a GeForce GTX 650 Ti: I, one thread whose steps are loops over x and y; II, one thread
// whose steps are written out, in a loop of 24 rounds; III, 25 threads through shared memory.
//
// Every entry point but those of KangarooTwelve absorbs one block into each of `count` states of 25 lanes, in place: it
// adds `rate` lanes (0 to 25; none for the permutation alone) of data[i] to the front of state i, and permutes. Any
// grid of one dimension; data and states are aligned to 8 bytes and do not overlap. count is below 2^26.
#include "keccak.cuh"

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define PARAMETERS const uint64_t *data, uint32_t rate, uint64_t *states, uint32_t count

DEVICE uint64_t added(const uint64_t* data, uint32_t rate, uint32_t state, uint32_t lane) {
  return lane < rate ? data[state * rate + lane] : 0;
}

// Arrays of a thread in memory of its own, and in shared memory, where those of all threads of a block lie side by
// side.
struct OwnArrays {
  uint64_t words[60];
  DEVICE explicit OwnArrays(uint8_t*) {}
  DEVICE uint64_t& at(uint32_t i) { return words[i]; }
};
struct SharedArrays {
  static constexpr uint32_t BYTES = 60 * 8;  // a thread
  uint64_t* words;
  DEVICE explicit SharedArrays(uint8_t* shared) : words(reinterpret_cast<uint64_t*>(shared) + threadIdx.x) {}
  DEVICE uint64_t& at(uint32_t i) { return words[i * blockDim.x]; }
};

extern "C" __constant__ const uint32_t KECCAK_OFFSETS[25];
__constant__ const uint32_t KECCAK_OFFSETS[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                                                  25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};

// The paper's first: every step is a loop over x and y, and its arrays A, B, C and D are indexed by them.
template <class Arrays>
DEVICE void keccak_by_loops(Arrays& arrays) {
  auto a = [&](uint32_t x, uint32_t y) -> uint64_t& { return arrays.at(x % 5 + 5 * (y % 5)); };
  auto b = [&](uint32_t x, uint32_t y) -> uint64_t& { return arrays.at(25 + x % 5 + 5 * (y % 5)); };
  auto c = [&](uint32_t x) -> uint64_t& { return arrays.at(50 + x % 5); };
  auto d = [&](uint32_t x) -> uint64_t& { return arrays.at(55 + x % 5); };
#define EACH(i) _Pragma("unroll 1") for (uint32_t i = 0; i < 5; i++)
#pragma unroll 1
  for (uint32_t round = 0; round < 24; round++) {
    EACH(x) {
      c(x) = 0;
      EACH(y) c(x) ^= a(x, y);
      d(x) = rotate_left(c(x), 1);
    }
    EACH(x) EACH(y) a(x, y) ^= d(x + 1) ^ c(x + 4);
    EACH(x) EACH(y) a(x, y) = rotate_left(a(x, y), KECCAK_OFFSETS[x + 5 * y]);
    EACH(x) EACH(y) b(x, y) = a(x, y);
    EACH(x) EACH(y) a(y, 2 * x + 3 * y) = b(x, y);
    EACH(y) {
      EACH(x) c(x) = a(x, y) ^ (~a(x + 1, y) & a(x + 2, y));
      EACH(x) a(x, y) = c(x);
    }
    a(0, 0) ^= KECCAK_CONSTANTS[round];
  }
#undef EACH
}

// Up to 128 threads. In the paper's listing the arrays are declared as shared memory, one for the whole group of
// threads, which would overwrite each other's; so `keccak_arrays` has them in the thread's own memory, and
// `keccak_arrays_shared` in shared memory, a part for each thread: 480 bytes of dynamic shared memory a thread.
#define BY_LOOPS(name, kind)                                                                   \
  KERNEL(128, 1) name(PARAMETERS) {                                                            \
    DYNAMIC_SHARED(shared);                                                                    \
    kind arrays(shared);                                                                       \
    uint32_t stride = gridDim.x * blockDim.x;                                                  \
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {         \
      _Pragma("unroll 1") for (uint32_t k = 0; k < 25; k++) arrays.at(k) =                     \
          states[i * 25 + k] ^ added(data, rate, i, k);                                        \
      keccak_by_loops(arrays);                                                                 \
      _Pragma("unroll 1") for (uint32_t k = 0; k < 25; k++) states[i * 25 + k] = arrays.at(k); \
    }                                                                                          \
  }
BY_LOOPS(keccak_arrays, OwnArrays)
BY_LOOPS(keccak_arrays_shared, SharedArrays)

// One thread a state, its steps written out: 1 round in the loop's body (the paper's second), 2 (what the filesystem
// uses), or all 24. Up to 128 threads.
#define ONE_THREAD(name, unroll)                                                                               \
  KERNEL(128, 4) name(PARAMETERS) {                                                                            \
    uint32_t stride = gridDim.x * blockDim.x;                                                                  \
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {                         \
      uint64_t a[25];                                                                                          \
      _Pragma("unroll") for (uint32_t k = 0; k < 25; k++) a[k] = states[i * 25 + k] ^ added(data, rate, i, k); \
      keccak_permute<24, unroll>(a);                                                                           \
      _Pragma("unroll") for (uint32_t k = 0; k < 25; k++) states[i * 25 + k] = a[k];                           \
    }                                                                                                          \
  }
ONE_THREAD(keccak_loop, 1)
ONE_THREAD(keccak_two, 2)
ONE_THREAD(keccak_unrolled, 24)

// 25 threads a state, packed without gaps, through shared memory with barriers of the whole block: the
// paper's third. Threads are a multiple of 25, up to 800; 16 bytes of dynamic shared memory for each.
KERNEL(800, 1) keccak_block(PARAMETERS) {
  DYNAMIC_SHARED(shared);
  uint32_t lane = threadIdx.x % 25, x = lane % 5, y = lane / 5, in_block = blockDim.x / 25;
  uint64_t* a = reinterpret_cast<uint64_t*>(shared) + (threadIdx.x - lane);
  uint64_t* b = a + blockDim.x;
  uint32_t offset = 0;
#pragma unroll
  for (uint32_t i = 0; i < 25; i++) offset = lane == i ? keccak_offset(i) : offset;
  uint32_t left = (x + 4) % 5, right = (x + 1) % 5, moved = y + 5 * ((2 * x + 3 * y) % 5);
  for (uint32_t base = blockIdx.x * in_block; base < count; base += gridDim.x * in_block) {
    uint32_t i = base + threadIdx.x / 25;
    bool present = i < count;
    uint64_t own = present ? states[i * 25 + lane] ^ added(data, rate, i, lane) : 0;
#pragma unroll 1
    for (int round = 0; round < 24; round++) {
      a[lane] = own;
      __syncthreads();
      uint64_t parities[2];
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const uint64_t* column = a + (side ? right : left);
        parities[side] = column[0] ^ column[5] ^ column[10] ^ column[15] ^ column[20];
      }
      b[moved] = rotate_left(own ^ parities[0] ^ rotate_left(parities[1], 1), offset);
      __syncthreads();
      own = b[lane] ^ (~b[right + 5 * y] & b[(x + 2) % 5 + 5 * y]);
      if (lane == 0) own ^= KECCAK_CONSTANTS[round];
    }
    if (present) states[i * 25 + lane] = own;
  }
}

// One warp a state, 25 of its threads at work: the filesystem's way with short batches. Up to 512 threads. By
// shuffles: no dynamic shared memory; through shared memory: 256 bytes a warp.
#define ONE_WARP(name, exchange)                                        \
  KERNEL(512, 1) name(PARAMETERS) {                                     \
    DYNAMIC_SHARED(shared);                                             \
    KeccakWide<24, exchange> keccak{exchange(shared)};                  \
    for (uint32_t i = warp_id(); i < count; i += warp_count()) {        \
      uint32_t lane = lane_id();                                        \
      uint64_t* place = states + i * 25 + lane;                         \
      uint64_t a = lane < 25 ? *place ^ added(data, rate, i, lane) : 0; \
      keccak.permute(a);                                                \
      if (lane < 25) *place = a;                                        \
    }                                                                   \
  }
ONE_WARP(keccak_warp_shuffle, ByShuffle)
ONE_WARP(keccak_warp_shared, ByShared)

// Moves element (i + by) % 5 to i, for 0 <= by < 5.
DEVICE void turn(uint64_t (&a)[5], uint32_t by) {
#pragma unroll
  for (uint32_t step = 1; step < 5; step *= 2) {
    uint64_t turned[5];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) turned[i] = a[(i + step) % 5];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) a[i] = by & step ? turned[i] : a[i];
  }
}

// Five threads a state, six states a warp: thread x holds the lanes (x, 0) to (x, 4). Up to 256 threads; no dynamic
// shared memory.
KERNEL(256, 2) keccak_five(PARAMETERS) {
  uint32_t x = lane_id() % 5, first = lane_id() - x, group = lane_id() / 5;
  uint32_t left = first + (x + 4) % 5, right = first + (x + 1) % 5, after = first + (x + 2) % 5;
  uint32_t offset[5];
#pragma unroll
  for (uint32_t y = 0; y < 5; y++) {
    offset[y] = 0;
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) offset[y] = x == i ? keccak_offset(i + 5 * y) : offset[y];
  }
  // Every lane takes part in the shuffles; the last two belong to no state.
  auto from = [](uint64_t value, uint32_t lane) { return __shfl_sync(ALL_LANES, value, lane % WARP); };
  for (uint32_t base = warp_id() * 6; base < count; base += warp_count() * 6) {
    uint32_t i = base + group;
    bool present = group < 6 && i < count;
    uint64_t a[5];
#pragma unroll
    for (uint32_t y = 0; y < 5; y++) {
      uint32_t lane = x + 5 * y;
      a[y] = present ? states[i * 25 + lane] ^ added(data, rate, i, lane) : 0;
    }
#pragma unroll 1
    for (int round = 0; round < 24; round++) {
      uint64_t parity = a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4];
      uint64_t effect = from(parity, left) ^ rotate_left(from(parity, right), 1);
#pragma unroll
      for (uint32_t y = 0; y < 5; y++) a[y] = rotate_left(a[y] ^ effect, offset[y]);
      // Pi: lane (x, y) comes from thread x + 3y, which holds it at x; so thread s sends at step y what it holds
      // at s + 2y.
      turn(a, x);
      uint64_t b[5];
#pragma unroll
      for (uint32_t y = 0; y < 5; y++) b[y] = from(a[2 * y % 5], first + (x + 3 * y) % 5);
#pragma unroll
      for (uint32_t y = 0; y < 5; y++) a[y] = b[y] ^ (~from(b[y], right) & from(b[y], after));
      if (x == 0) a[0] ^= KECCAK_CONSTANTS[round];
    }
    if (!present) continue;
#pragma unroll
    for (uint32_t y = 0; y < 5; y++) states[i * 25 + x + 5 * y] = a[y];
  }
}

// The leaves of KangarooTwelve (RFC 9861, section 3): `leaves` chunks of 8 KiB, one after the other in `data`, which is
// aligned to 8 bytes; a hash of 32 bytes of each goes to `hashes`. Any grid of one dimension.
constexpr uint32_t K12_WORDS = 1024, K12_RATE = 21, K12_REST = K12_WORDS % K12_RATE;

// What lane `lane` absorbs with block `block` of a leaf: 48 whole blocks, then 16 lanes, the domain's byte and the end.
DEVICE uint64_t k12_word(const uint64_t* leaf, uint32_t block, uint32_t lane) {
  if (lane >= K12_RATE) return 0;
  uint32_t i = block * K12_RATE + lane;
  if (i < K12_WORDS) return leaf[i];
  return (lane == K12_REST ? 0x0b : 0) ^ (lane == K12_RATE - 1 ? 0x80ull << 56 : 0);
}

// A thread a leaf. Up to 128 threads.
KERNEL(128, 4) k12_leaves(const uint64_t* data, uint32_t leaves, uint64_t* hashes) {
  uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < leaves; i += stride) {
    const uint64_t* leaf = data + uint64_t(i) * K12_WORDS;
    uint64_t a[25] = {};
#pragma unroll 1
    for (uint32_t block = 0; block <= K12_WORDS / K12_RATE; block++) {
#pragma unroll
      for (uint32_t lane = 0; lane < K12_RATE; lane++) a[lane] ^= k12_word(leaf, block, lane);
      keccak_permute<12>(a);
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) hashes[uint64_t(i) * 4 + k] = a[k];
  }
}

// A warp a leaf, by shuffles. Up to 512 threads, a multiple of 32.
KERNEL(512, 1) k12_leaves_warp(const uint64_t* data, uint32_t leaves, uint64_t* hashes) {
  KeccakWide<12, ByShuffle> keccak{ByShuffle(nullptr)};
  for (uint32_t i = warp_id(); i < leaves; i += warp_count()) {
    const uint64_t* leaf = data + uint64_t(i) * K12_WORDS;
    uint64_t a = 0, next = k12_word(leaf, 0, lane_id());
#pragma unroll 1
    for (uint32_t block = 0; block <= K12_WORDS / K12_RATE; block++) {
      a ^= next;
      // The next block is on its way while this one is permuted.
      if (block < K12_WORDS / K12_RATE) next = k12_word(leaf, block + 1, lane_id());
      keccak.permute(a);
    }
    if (lane_id() < 4) hashes[uint64_t(i) * 4 + lane_id()] = a;
  }
}
