// AES by fused tables, over the place and the number of the tables, the place of the round keys, the threads that
// share a block, and the way of the data. Look-ups are indexed by secret bytes: measurements, not for keys that matter.
#pragma once
#include "aes_modes.cuh"
#include "aes_tables.cuh"
#include "place.cuh"

enum KeysAt { KEYS_GLOBAL, KEYS_CONSTANT, KEYS_SHARED, KEYS_REGISTERS };

constexpr uint32_t MOST_ROUND_KEYS = 15;
// Round keys in constant memory; the host writes them before a launch.
extern "C" __constant__ uint4 AES_EXPERIMENT_KEYS[MOST_ROUND_KEYS];
__constant__ uint4 AES_EXPERIMENT_KEYS[MOST_ROUND_KEYS];

// What look-ups go to: for each direction the table of row 0, then those of rows 1 to 3, which are its rotations; and
// the inverse S-box.
struct AesExperimentTables {
  uint32_t encrypt[4 * 256], decrypt[4 * 256], inverse_sbox[256];
};

constexpr AesExperimentTables make_aes_experiment_tables() {
  AesExperimentTables tables{};
  AesTables mixed = make_aes_tables();
  for (uint32_t x = 0; x < 256; x++) {
    uint32_t encrypt = mixed.encrypt[x], decrypt = mixed.decrypt[x];
    tables.inverse_sbox[encrypt >> 8 & 0xff] = x;
    for (uint32_t row = 0; row < 4; row++) {
      tables.encrypt[256 * row + x] = encrypt, tables.decrypt[256 * row + x] = decrypt;
      encrypt = encrypt << 8 | encrypt >> 24, decrypt = decrypt << 8 | decrypt >> 24;
    }
  }
  return tables;
}

extern "C" __device__ const AesExperimentTables AES_EXPERIMENT_TABLES;
__device__ const AesExperimentTables AES_EXPERIMENT_TABLES = make_aes_experiment_tables();
extern "C" __constant__ const AesExperimentTables AES_EXPERIMENT_CONSTANT;
__constant__ const AesExperimentTables AES_EXPERIMENT_CONSTANT = make_aes_experiment_tables();

DEVICE uint32_t byte_of(uint32_t word, int i) { return word >> 8 * i & 0xff; }
// Left by `rows` bytes: what a byte of row 0 becomes, moved to another row.
DEVICE uint32_t to_row(uint32_t word, uint32_t rows) { return __funnelshift_l(word, word, 8 * rows); }

// Look-ups of one direction in one table, whose words are rotated for rows 1 to 3, or in four, one for each row.
template <Place PLACE, Way WAY, int TABLES>
struct AesLookup {
  static constexpr uint32_t WORDS = 256 * TABLES;
  // Of dynamic shared memory, at its beginning.
  static constexpr uint32_t BYTES = PLACE == SHARED ? 4 * WORDS + (WAY == BACKWARD ? 1024 : 0) : 0;
  const uint32_t* table;
  const uint32_t* inverse;
  uint64_t texture;

  // Fills shared memory where the place is there; every thread of the block calls it, and a barrier follows.
  DEVICE AesLookup(uint8_t* start, uint64_t texture) : texture(texture) {
    const AesExperimentTables& from = PLACE == CONSTANT ? AES_EXPERIMENT_CONSTANT : AES_EXPERIMENT_TABLES;
    table = WAY == FORWARD ? from.encrypt : from.decrypt;
    inverse = from.inverse_sbox;
    if constexpr (PLACE == SHARED) {
      uint32_t* shared = reinterpret_cast<uint32_t*>(start);
      for (uint32_t i = threadIdx.x; i < WORDS; i += blockDim.x) shared[i] = __ldg(table + i);
      for (uint32_t i = threadIdx.x; WAY == BACKWARD && i < 256; i += blockDim.x)
        shared[WORDS + i] = __ldg(inverse + i);
      table = shared, inverse = shared + WORDS;
    }
  }
  DEVICE uint32_t at(const uint32_t* from, uint32_t texture_base, uint32_t x) const {
    if (PLACE == GLOBAL) return __ldg(from + x);
    if (PLACE == TEXTURE) return texel(texture, texture_base + x);
    return from[x];
  }
  // What that byte becomes in that row, substitution and mixing together.
  DEVICE uint32_t mixed(uint32_t word, uint32_t byte, uint32_t row) const {
    uint32_t x = byte_of(word, byte), base = WAY == FORWARD ? 0 : 1024;
    return TABLES == 4 ? at(table, base, 256 * row + x) : to_row(at(table, base, x), row);
  }
  // The substitution alone.
  DEVICE uint32_t substituted(uint32_t word, uint32_t byte) const {
    return WAY == FORWARD ? mixed(word, byte, 0) >> 8 & 0xff : at(inverse, 2048, byte_of(word, byte)) & 0xff;
  }
  // A column after a round but for the key: rows 0 to 3 come from `a` to `d`.
  DEVICE uint32_t column(uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
    return mixed(a, 0, 0) ^ mixed(b, 1, 1) ^ mixed(c, 2, 2) ^ mixed(d, 3, 3);
  }
  // The same after the last round.
  DEVICE uint32_t last_column(uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
    return substituted(a, 0) | substituted(b, 1) << 8 | substituted(c, 2) << 16 | substituted(d, 3) << 24;
  }
};

// As the filesystem's kernels have it: 256 rows of 64 words, of which those of number `lane` and 32 + `lane` are in the
// lane's own bank: the tables of rows 0 and 1. One byte permutation makes an address, and two look-ups share
// a rotation. Additions and shifts in their place take more time than the bank conflicts that the copies avoid.
template <Way WAY>
struct AesLookup<SPREAD, WAY, 1> {
  static constexpr uint32_t ROWS_BYTES = 65536, BYTES = SharedTable::ORIGIN + ROWS_BYTES;
  SharedTable rows;
  uint32_t offset;

  DEVICE AesLookup(uint8_t* start, uint64_t) : rows(start), offset(4 * lane_id()) {
    const uint32_t* from = WAY == FORWARD ? AES_EXPERIMENT_TABLES.encrypt : AES_EXPERIMENT_TABLES.decrypt;
    uint4* quads = reinterpret_cast<uint4*>(rows.start);
    for (uint32_t i = threadIdx.x; i < ROWS_BYTES / 16; i += blockDim.x) {
      uint32_t word = __ldg(from + (i & 8 ? 256 : 0) + i / 16);
      quads[i] = make_uint4(word, word, word, word);
    }
    __syncthreads();
    keep_below(offset);
  }
  DEVICE uint32_t address(uint32_t word, uint32_t byte) const { return __byte_perm(word, offset, 0x5504 | byte << 4); }
  DEVICE uint32_t row0(uint32_t word, uint32_t byte) const { return rows.template word<0>(address(word, byte)); }
  DEVICE uint32_t row1(uint32_t word, uint32_t byte) const { return rows.template word<128>(address(word, byte)); }
  DEVICE uint32_t mixed(uint32_t word, uint32_t byte, uint32_t row) const { return to_row(row0(word, byte), row); }
  DEVICE uint32_t substituted(uint32_t word, uint32_t byte) const {
    uint32_t found = row0(word, byte);
    if (WAY == FORWARD) return found >> 8 & 0xff;
    // 14, 9, 13 and 11 times the inverse sum up to it.
    found ^= found >> 16;
    return (found ^ found >> 8) & 0xff;
  }
  DEVICE uint32_t column(uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
    return row0(a, 0) ^ row1(b, 1) ^ rotate_halves(row0(c, 2) ^ row1(d, 3));
  }
  DEVICE uint32_t last_column(uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
    a = row0(a, 0), b = row1(b, 1), c = row0(c, 2), d = row1(d, 3);
    if (WAY == FORWARD) return __byte_perm(__byte_perm(a, b, 0x0061), __byte_perm(c, d, 0x7200), 0x7610);
    uint32_t upper = __byte_perm(a, b, 0x5140) ^ __byte_perm(a, b, 0x7362);
    uint32_t lower = __byte_perm(c, d, 0x5140) ^ __byte_perm(c, d, 0x7362);
    return __byte_perm(upper, lower, 0x5410) ^ __byte_perm(upper, lower, 0x7632);
  }
};

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
      next[j] = k[j] ^ lookup.column(s[j], s[column_of<WAY>(j, 1)], s[column_of<WAY>(j, 2)], s[column_of<WAY>(j, 3)]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] = next[j];
  };
  keys.each(rounds, round);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    next[j] = lookup.last_column(s[j], s[column_of<WAY>(j, 1)], s[column_of<WAY>(j, 2)], s[column_of<WAY>(j, 3)]);
  }
  return make_uint4(next[0], next[1], next[2], next[3]) ^ keys.last(rounds);
}

// The same with the state in shared memory, where every round reads and writes it: eight words a thread, of
// which those of number i of all threads lie side by side.
template <Way WAY, class Lookup>
DEVICE uint4 aes_block_in_memory(const Lookup& lookup, const uint4* keys, uint32_t rounds, uint4 block,
                                 volatile uint32_t* words) {
  auto at = [&](uint32_t i) -> volatile uint32_t& { return words[i * blockDim.x + threadIdx.x]; };
  block = block ^ keys[0];
  at(0) = block.x, at(1) = block.y, at(2) = block.z, at(3) = block.w;
  uint32_t from = 0;
#pragma unroll 1
  for (uint32_t round = 1; round <= rounds; round++) {
    uint4 key = keys[round];
    const uint32_t k[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
      uint32_t a = at(from + j), b = at(from + column_of<WAY>(j, 1));
      uint32_t c = at(from + column_of<WAY>(j, 2)), d = at(from + column_of<WAY>(j, 3));
      at((from ^ 4) + j) = k[j] ^ (round < rounds ? lookup.column(a, b, c, d) : lookup.last_column(a, b, c, d));
    }
    from ^= 4;
  }
  return make_uint4(at(from), at(from + 1), at(from + 2), at(from + 3));
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
      uint32_t word = __shfl_sync(ALL_LANES, s, first + column_of<WAY>(j, row));
      next ^= round < rounds ? lookup.mixed(word, row, row) : lookup.substituted(word, row) << 8 * row;
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
    uint32_t word = lookup.mixed(__shfl_sync(ALL_LANES, s, source), 0, row);
    word ^= __shfl_sync(ALL_LANES, word, lane_id() ^ 1);
    word ^= __shfl_sync(ALL_LANES, word, lane_id() ^ 2);
    s = byte_of(word, row) ^ key(round);
  }
  return lookup.substituted(__shfl_sync(ALL_LANES, s, source), 0) ^ key(rounds);
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

// How a thread comes by its part of the data.
enum Text {
  TEXT_DIRECT,  // from the device's memory and back
  TEXT_STAGED,  // through shared memory, which the whole block of threads fills and empties, word by word
  TEXT_STATE,   // from the device's memory; the state of the cipher lies in shared memory
};

template <Place PLACE, int TABLES, KeysAt KEYS, int SHARE, Text TEXT, Mode MODE>
DEVICE void aes_experiment(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out,
                           uint32_t blocks, uint64_t texture) {
  constexpr Way WAY = MODE == ECB_DECRYPT ? BACKWARD : FORWARD;
  static_assert(TEXT == TEXT_DIRECT || (KEYS == KEYS_SHARED && SHARE < 16), "others are not measured");
  DYNAMIC_SHARED(shared);
  using Lookup = AesLookup<PLACE, WAY, TABLES>;
  const Lookup lookup(shared, texture);
  uint4* own_keys = reinterpret_cast<uint4*>(shared + Lookup::BYTES);
  [[maybe_unused]] uint4* stage = own_keys + 16;
  for (uint32_t i = threadIdx.x; i <= rounds; i += blockDim.x) own_keys[i] = __ldg(keys + i);
  __syncthreads();
  uint4 start = __ldg(counter);
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;

  if constexpr (SHARE == 1 && TEXT == TEXT_DIRECT) {
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
  } else if constexpr (TEXT == TEXT_STATE) {
    uint32_t* words = reinterpret_cast<uint32_t*>(stage);
    for (uint32_t i = thread; i < blocks; i += threads) {
      uint4 input = in[i], block = MODE == CTR ? counter_block(start, i) : input;
      block = aes_block_in_memory<WAY>(lookup, own_keys, rounds, block, words);
      out[i] = MODE == CTR ? input ^ block : block;
    }
  } else if constexpr (SHARE == 1) {
    uint32_t* words = reinterpret_cast<uint32_t*>(stage);
    const KeysInMemory memory{own_keys, false};
    for (uint64_t base = blockIdx.x * blockDim.x; base < blocks; base += threads) {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(in + base);
      uint32_t* to = reinterpret_cast<uint32_t*>(out + base);
      uint32_t present = blocks - base < blockDim.x ? uint32_t(blocks - base) : blockDim.x;
      for (uint32_t i = threadIdx.x; i < 4 * present; i += blockDim.x) words[i] = from[i];
      __syncthreads();
      if (threadIdx.x < present) {
        uint4 input = stage[threadIdx.x];
        uint4 block = MODE == CTR ? counter_block(start, uint32_t(base) + threadIdx.x) : input;
        block = aes_block<WAY>(lookup, memory, rounds, block);
        stage[threadIdx.x] = MODE == CTR ? input ^ block : block;
      }
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < 4 * present; i += blockDim.x) to[i] = words[i];
      __syncthreads();
    }
  } else {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(own_keys);
    [[maybe_unused]] uint32_t* own = reinterpret_cast<uint32_t*>(stage) + threadIdx.x;
    constexpr uint32_t PART = 16 / SHARE;
    // All threads of the block go on while any of them has a part: they take part in shuffles and barriers.
    for (uint64_t base = blockIdx.x * blockDim.x; base < uint64_t(blocks) * SHARE; base += threads) {
      uint64_t part = base + threadIdx.x;
      uint32_t i = uint32_t(part / SHARE), place = part % SHARE;
      bool present = i < blocks;
      uint4 block = counter_block(start, i);
      const uint32_t counters[4] = {block.x, block.y, block.z, block.w};
      uint32_t column = place * PART / 4, read = 0, input = 0, result;
#pragma unroll
      for (uint32_t j = 0; j < 4; j++) input = column == j ? counters[j] : input;
      if constexpr (SHARE == 4) {
        if (present) read = reinterpret_cast<const uint32_t*>(in)[part];
        if (TEXT == TEXT_STAGED) {
          *own = read;
          __syncthreads();
          read = *own;
        }
        result = aes_column<WAY>(lookup, words, rounds, MODE == CTR ? input : read);
      } else {
        if (present) read = reinterpret_cast<const uint8_t*>(in)[part];
        result = aes_byte<WAY>(lookup, words, rounds, MODE == CTR ? byte_of(input, place % 4) : read);
      }
      if (MODE == CTR) result ^= read;
      if (TEXT == TEXT_STAGED) {
        *own = result;
        __syncthreads();
        result = *own;
      }
      if (!present) continue;
      if constexpr (SHARE == 4) {
        reinterpret_cast<uint32_t*>(out)[part] = result;
      } else {
        reinterpret_cast<uint8_t*>(out)[part] = uint8_t(result);
      }
    }
  }
}
