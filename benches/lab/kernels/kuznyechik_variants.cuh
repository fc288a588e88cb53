// Kuznyechik by sixteen tables of 256 blocks, over the place of the tables, the place of the substitution that
// decryption begins and ends with, the blocks that a thread works on, and the order in which a warp takes its
// blocks. Look-ups are indexed by secret bytes: measurements, not for keys that matter.
#pragma once
#include "kuznyechik_tables.cuh"
#include "place.cuh"

// In what order the lanes of a warp take 32 neighbouring blocks.
enum Order {
  IN_ORDER,
  EVEN_ODD,  // the first half-warp those of even number, the second half those of odd number
};

constexpr uint32_t KUZNYECHIK_KEYS = 10;
constexpr uint32_t TABLE_BLOCKS = 4096;

// The tables once more, one after the other: entry 256 * i + b is what byte b at place i becomes. So neighbouring
// entries are of one table, as in the paper; in the other layout, where a row has all of a byte's entries, every lane that
// looks up byte i meets the others in the same four banks.
extern "C" __device__ uint4 KUZNYECHIK_BY_TABLE[2 * TABLE_BLOCKS];
__device__ uint4 KUZNYECHIK_BY_TABLE[2 * TABLE_BLOCKS];

// Thread i of 8192 fills its part of all tables; there may be more threads.
DEVICE void kuznyechik_fill_both(uint32_t i) {
  if (i >= 2 * TABLE_BLOCKS) return;
  kuznyechik_fill(i);
  uint32_t way = i / TABLE_BLOCKS, byte = i / 16 % 256, place = i % 16;
  KUZNYECHIK_BY_TABLE[way * TABLE_BLOCKS + place * 256 + byte] = KUZNYECHIK_TABLES[way].entry[byte][place];
}

// The sum of what the sixteen bytes look up. Where the tables are in constant memory: `constant`.
template <Place PLACE, Way WAY>
struct KuznyechikLookup {
  const uint4* table;
  uint64_t texture;

  // Fills shared memory where the place is there; every thread of the block calls it, and a barrier follows.
  DEVICE KuznyechikLookup(const uint4* constant, uint4* shared, uint64_t texture)
      : table(PLACE == SPREAD ? &KUZNYECHIK_TABLES[WAY].entry[0][0] : KUZNYECHIK_BY_TABLE + WAY * TABLE_BLOCKS),
        texture(texture) {
    if (PLACE == CONSTANT) table = constant;
    if constexpr (PLACE == SHARED || PLACE == SPREAD) {
      for (uint32_t i = threadIdx.x; i < TABLE_BLOCKS; i += blockDim.x) shared[i] = __ldg(table + i);
      table = shared;
    }
  }
  DEVICE uint4 at(uint32_t index) const {
    if (PLACE == GLOBAL) return __ldg(table + index);
    if (PLACE == TEXTURE) return wide_texel(texture, WAY * TABLE_BLOCKS + index);
    return table[index];
  }
  DEVICE uint4 pass(uint4 x, uint4 sum) const {
    // Spread: eight lanes are served at a time, and lane k begins at byte k of its block, k = 0 to 7, so they use
    // eight different tables, which lie in different banks.
    uint32_t turn = PLACE == SPREAD ? lane_id() % 8 : 0;
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
    if (PLACE == SPREAD && turn & 4) words[0] = x.y, words[1] = x.x, words[2] = x.w, words[3] = x.z;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
      uint32_t byte = words[i / 4] >> 8 * (i % 4 ^ (turn & 3)) & 0xff;
      sum = sum ^ at(PLACE == SPREAD ? byte * 16 + (i ^ turn) : i * 256 + byte);
    }
    return sum;
  }
};

// The substitution of every byte, or its inverse, from words that hold both.
template <Place PLACE>
struct Substitution {
  const uint32_t* pi;
  DEVICE Substitution(const uint32_t* constant, uint32_t* shared) : pi(KUZNYECHIK_PI_WORDS) {
    if (PLACE == CONSTANT) pi = constant;
    if constexpr (PLACE == SHARED) {
      for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) shared[i] = __ldg(pi + i);
      pi = shared;
    }
  }
  DEVICE uint32_t word(uint32_t word, uint32_t shift) const {
    uint32_t out = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t* place = pi + (word >> 8 * i & 0xff);
      out |= ((PLACE == GLOBAL ? __ldg(place) : *place) >> shift & 0xff) << 8 * i;
    }
    return out;
  }
  DEVICE uint4 block(uint4 x, uint32_t shift) const {
    return make_uint4(word(x.x, shift), word(x.y, shift), word(x.z, shift), word(x.w, shift));
  }
};

// Constant memory that a kernel of this kind may use: the tables of its direction, and the substitution.
struct Constants {
  const uint4* tables;
  const uint32_t* pi;
};

template <Place PLACE, Place PI_PLACE, int N, Order ORDER, Way WAY>
DEVICE void kuznyechik_experiment(Constants constants, const uint4* keys, const uint4* in, uint4* out, uint32_t blocks,
                                  uint64_t texture) {
  DYNAMIC_SHARED(shared);
  uint4* own_keys = reinterpret_cast<uint4*>(shared);
  uint32_t* own_pi = reinterpret_cast<uint32_t*>(own_keys + 16);
  uint4* own_tables = reinterpret_cast<uint4*>(own_pi + (WAY == BACKWARD ? 256 : 0));
  const KuznyechikLookup<PLACE, WAY> lookup(constants.tables, own_tables, texture);
  const Substitution<PI_PLACE> pi(constants.pi, own_pi);
  for (uint32_t i = threadIdx.x; i < KUZNYECHIK_KEYS; i += blockDim.x) own_keys[i] = __ldg(keys + i);
  __syncthreads();

  uint32_t lane = lane_id();
  if (ORDER == EVEN_ODD) lane = lane % 16 * 2 + lane / 16;
  for (uint64_t base = warp_id() * (N * WARP) + lane; base < blocks; base += warp_count() * (N * WARP)) {
    uint4 x[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
      x[n] = base + n * WARP < blocks ? in[base + n * WARP] : make_uint4(0, 0, 0, 0);
      // The tables of decryption begin with the inverse of S; S cancels it where L's inverse stands alone.
      x[n] = WAY == FORWARD ? x[n] ^ own_keys[0] : lookup.pass(pi.block(x[n], PI_SHIFT), own_keys[0]);
    }
#pragma unroll 1
    for (uint32_t round = 1; round < (WAY == FORWARD ? KUZNYECHIK_KEYS : KUZNYECHIK_KEYS - 1); round++) {
      uint4 key = own_keys[round];
#pragma unroll
      for (int n = 0; n < N; n++) x[n] = lookup.pass(x[n], key);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
      if (WAY == BACKWARD) x[n] = pi.block(x[n], PI_INVERSE_SHIFT) ^ own_keys[KUZNYECHIK_KEYS - 1];
      if (base + n * WARP < blocks) out[base + n * WARP] = x[n];
    }
  }
}

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define VARIANT(name, constants, place, pi, n, order, way)                                              \
  KERNEL(1024) name(const uint4* keys, const uint4* in, uint4* out, uint32_t blocks, uint64_t texture) { \
    kuznyechik_experiment<place, pi, n, order, way>(constants, keys, in, out, blocks, texture);          \
  }
