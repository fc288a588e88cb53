// AES by fused tables, over the place of the tables, the place of the round keys, and the threads that share a
// block. Look-ups are indexed by secret bytes: measurements, not for keys that matter.
#pragma once
#include "aes_modes.cuh"
#include "aes_tables.cuh"
#include "place.cuh"

enum KeysAt { KEYS_GLOBAL, KEYS_CONSTANT, KEYS_SHARED, KEYS_REGISTERS };

constexpr uint32_t MOST_ROUND_KEYS = 15;
// Round keys in constant memory; the host writes them before a launch.
extern "C" __constant__ uint4 AES_EXPERIMENT_KEYS[MOST_ROUND_KEYS];
__constant__ uint4 AES_EXPERIMENT_KEYS[MOST_ROUND_KEYS];

// What look-ups go to: as AesTables, and the inverse S-box.
struct AesExperimentTables {
  uint32_t encrypt[256], decrypt[256], inverse_sbox[256];
};

constexpr AesExperimentTables make_aes_experiment_tables() {
  AesExperimentTables tables{};
  AesTables mixed = make_aes_tables();
  for (uint32_t x = 0; x < 256; x++) {
    tables.encrypt[x] = mixed.encrypt[x], tables.decrypt[x] = mixed.decrypt[x];
    tables.inverse_sbox[mixed.encrypt[x] >> 8 & 0xff] = x;
  }
  return tables;
}

extern "C" __device__ const AesExperimentTables AES_EXPERIMENT_TABLES;
__device__ const AesExperimentTables AES_EXPERIMENT_TABLES = make_aes_experiment_tables();
extern "C" __constant__ const AesExperimentTables AES_EXPERIMENT_CONSTANT;
__constant__ const AesExperimentTables AES_EXPERIMENT_CONSTANT = make_aes_experiment_tables();

// The table of a direction's row 0, and the inverse S-box.
template <Place PLACE, Way WAY>
struct AesLookup {
  const uint32_t* table;
  const uint32_t* inverse;
  uint64_t texture;

  // Fills shared memory where the place is there; every thread of the block calls it, and a barrier follows.
  DEVICE AesLookup(uint32_t* shared, uint64_t texture) : texture(texture) {
    const AesExperimentTables& from = PLACE == CONSTANT ? AES_EXPERIMENT_CONSTANT : AES_EXPERIMENT_TABLES;
    table = WAY == FORWARD ? from.encrypt : from.decrypt;
    inverse = from.inverse_sbox;
    constexpr uint32_t COPIES = PLACE == SPREAD ? WARP : 1;
    if constexpr (PLACE == SHARED || PLACE == SPREAD) {
      for (uint32_t i = threadIdx.x; i < 256 * COPIES; i += blockDim.x) {
        shared[i] = __ldg(table + i / COPIES);
        if (WAY == BACKWARD) shared[256 * COPIES + i] = __ldg(inverse + i / COPIES);
      }
      table = shared + (PLACE == SPREAD ? lane_id() : 0);
      inverse = table + 256 * COPIES;
    }
  }
  DEVICE uint32_t at(const uint32_t* from, uint32_t texture_base, uint32_t x) const {
    if (PLACE == GLOBAL) return __ldg(from + x);
    if (PLACE == TEXTURE) return texel(texture, texture_base + x);
    return from[PLACE == SPREAD ? x * WARP : x];
  }
  // What a byte of row 0 becomes, substitution and mixing together.
  DEVICE uint32_t mixed(uint32_t x) const { return at(table, WAY == FORWARD ? 0 : 256, x); }
  // The substitution alone.
  DEVICE uint32_t byte(uint32_t x) const {
    return WAY == FORWARD ? mixed(x) >> 8 & 0xff : at(inverse, 512, x) & 0xff;
  }
};

DEVICE uint32_t byte_of(uint32_t word, int i) { return word >> 8 * i & 0xff; }
// Left by `rows` bytes: what a byte of row 0 becomes, moved to another row.
DEVICE uint32_t to_row(uint32_t word, uint32_t rows) { return __funnelshift_l(word, word, 8 * rows); }

// The column that row `row` of column `j` comes from.
template <Way WAY>
DEVICE constexpr uint32_t column_of(uint32_t j, uint32_t row) {
  return (WAY == FORWARD ? j + row : j + 4 - row) % 4;
}

// One thread a block.
template <Way WAY, class Lookup, class Keys>
DEVICE uint4 aes_block(const Lookup& lookup, const Keys& keys, uint32_t rounds, uint4 block) {
  block = block ^ keys.at(0);
  uint32_t s[4] = {block.x, block.y, block.z, block.w}, next[4];
  auto round = [&](uint4 key) {
    const uint32_t k[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      next[j] = k[j];
#pragma unroll
      for (int row = 0; row < 4; row++)
        next[j] ^= to_row(lookup.mixed(byte_of(s[column_of<WAY>(j, row)], row)), row);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] = next[j];
  };
  keys.each(rounds, round);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    next[j] = 0;
#pragma unroll
    for (int row = 0; row < 4; row++)
      next[j] |= lookup.byte(byte_of(s[column_of<WAY>(j, row)], row)) << 8 * row;
  }
  return make_uint4(next[0], next[1], next[2], next[3]) ^ keys.last(rounds);
}

// Four threads a block, a column each: `lane` is this thread's place among all of its warp.
template <Way WAY, class Lookup>
DEVICE uint32_t aes_column(const Lookup& lookup, const uint32_t* keys, uint32_t rounds, uint32_t s) {
  uint32_t j = lane_id() % 4, first = lane_id() - j;
  s ^= keys[j];
#pragma unroll 1
  for (uint32_t round = 1; round <= rounds; round++) {
    uint32_t next = keys[4 * round + j];
#pragma unroll
    for (uint32_t row = 0; row < 4; row++) {
      uint32_t x = byte_of(__shfl_sync(ALL_LANES, s, first + column_of<WAY>(j, row)), row);
      next ^= round < rounds ? to_row(lookup.mixed(x), row) : lookup.byte(x) << 8 * row;
    }
    s = next;
  }
  return s;
}

// Sixteen threads a block, a byte each: thread 4 * j + row holds that row of column j.
template <Way WAY, class Lookup>
DEVICE uint32_t aes_byte(const Lookup& lookup, const uint32_t* keys, uint32_t rounds, uint32_t s) {
  uint32_t place = lane_id() % 16, first = lane_id() - place, j = place / 4, row = place % 4;
  auto key = [&](uint32_t round) { return byte_of(keys[4 * round + j], row); };
  uint32_t source = first + 4 * column_of<WAY>(j, row) + row;
  s ^= key(0);
#pragma unroll 1
  for (uint32_t round = 1; round < rounds; round++) {
    uint32_t word = to_row(lookup.mixed(__shfl_sync(ALL_LANES, s, source)), row);
    word ^= __shfl_sync(ALL_LANES, word, lane_id() ^ 1);
    word ^= __shfl_sync(ALL_LANES, word, lane_id() ^ 2);
    s = byte_of(word, row) ^ key(round);
  }
  return lookup.byte(__shfl_sync(ALL_LANES, s, source)) ^ key(rounds);
}

// Round keys that are read where they lie.
struct KeysInMemory {
  const uint4* keys;
  bool global;
  DEVICE uint4 at(uint32_t round) const { return global ? __ldg(keys + round) : keys[round]; }
  DEVICE uint4 last(uint32_t rounds) const { return at(rounds); }
  template <class Round>
  DEVICE void each(uint32_t rounds, const Round& round) const {
#pragma unroll 1
    for (uint32_t i = 1; i < rounds; i++) round(at(i));
  }
};

// Round keys in registers: every index is known to the compiler.
struct KeysInRegisters {
  uint4 keys[MOST_ROUND_KEYS];
  DEVICE KeysInRegisters(const uint4* from, uint32_t rounds) {
#pragma unroll
    for (uint32_t i = 0; i < MOST_ROUND_KEYS; i++) keys[i] = __ldg(from + (i < rounds ? i : rounds));
  }
  DEVICE uint4 at(uint32_t) const { return keys[0]; }
  // Those from the last one on are copies of it.
  DEVICE uint4 last(uint32_t) const { return keys[MOST_ROUND_KEYS - 1]; }
  template <class Round>
  DEVICE void each(uint32_t rounds, const Round& round) const {
#pragma unroll
    for (uint32_t i = 1; i < MOST_ROUND_KEYS - 1; i++) {
      if (i < rounds) round(keys[i]);
    }
  }
};

template <Place PLACE, KeysAt KEYS, int SHARE, Mode MODE>
DEVICE void aes_experiment(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out,
                           uint32_t blocks, uint64_t texture) {
  constexpr Way WAY = MODE == ECB_DECRYPT ? BACKWARD : FORWARD;
  DYNAMIC_SHARED(shared);
  uint4* own_keys = reinterpret_cast<uint4*>(shared);
  const AesLookup<PLACE, WAY> lookup(reinterpret_cast<uint32_t*>(shared + 16 * 16), texture);
  for (uint32_t i = threadIdx.x; i <= rounds; i += blockDim.x) own_keys[i] = __ldg(keys + i);
  __syncthreads();
  uint4 start = __ldg(counter);
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;

  if constexpr (SHARE == 1) {
    auto work = [&](const auto& keys) {
      for (uint32_t i = thread; i < blocks; i += threads) {
        if (MODE == CTR) {
          out[i] = in[i] ^ aes_block<WAY>(lookup, keys, rounds, counter_block(start, i));
        } else {
          out[i] = aes_block<WAY>(lookup, keys, rounds, in[i]);
        }
      }
    };
    if constexpr (KEYS == KEYS_REGISTERS) {
      work(KeysInRegisters(keys, rounds));
    } else {
      const uint4* from = KEYS == KEYS_SHARED ? own_keys : KEYS == KEYS_CONSTANT ? AES_EXPERIMENT_KEYS : keys;
      work(KeysInMemory{from, KEYS == KEYS_GLOBAL});
    }
  } else {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(own_keys);
    constexpr uint32_t PART = 16 / SHARE;
    // The whole warp goes on while any of its threads has a part: all take part in the shuffles.
    for (uint64_t base = thread - lane_id(); base < uint64_t(blocks) * SHARE; base += threads) {
      uint64_t part = base + lane_id();
      uint32_t i = uint32_t(part / SHARE), place = part % SHARE;
      bool present = i < blocks;
      uint4 block = counter_block(start, i);
      const uint32_t counters[4] = {block.x, block.y, block.z, block.w};
      uint32_t column = place * PART / 4, read = 0, input = 0, result;
#pragma unroll
      for (uint32_t j = 0; j < 4; j++) input = column == j ? counters[j] : input;
      if constexpr (SHARE == 4) {
        if (present) read = reinterpret_cast<const uint32_t*>(in)[part];
        result = aes_column<WAY>(lookup, words, rounds, MODE == CTR ? input : read);
      } else {
        if (present) read = reinterpret_cast<const uint8_t*>(in)[part];
        result = aes_byte<WAY>(lookup, words, rounds, MODE == CTR ? byte_of(input, place % 4) : read);
      }
      if (MODE == CTR) result ^= read;
      if (!present) continue;
      if constexpr (SHARE == 4) {
        reinterpret_cast<uint32_t*>(out)[part] = result;
      } else {
        reinterpret_cast<uint8_t*>(out)[part] = uint8_t(result);
      }
    }
  }
}
