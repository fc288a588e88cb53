// Kuznyechik (GOST R 34.12-2015, RFC 7801) by lookups in sixteen tables of 256 blocks, which combine S
// and then L, or their inverses. The memory that holds the tables is a template parameter. Lookup
// indices are secret bytes: timing does not depend on them with tables in shared memory, but does with
// tables in global memory.
#pragma once
#include "aes.cuh"
#include "kuznyechik_tables.cuh"

// Tables in global memory, read through the read-only cache.
template <Direction DIRECTION>
struct KuznyechikGlobal {
  static constexpr uint32_t SHARED_BYTES = 0;
  DEVICE KuznyechikGlobal(uint8_t*) {}

  // XOR of `key` and the table entries of the sixteen bytes.
  DEVICE uint4 pass(uint4 x, uint4 key) const {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    uint4 sum = key;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      sum = sum ^ __ldg(&KUZNYECHIK_TABLES[DIRECTION].entry[words[i / 4] >> 8 * (i % 4) & 0xff][i]);
    }
    return sum;
  }
  // Table entry for the last byte of a block.
  DEVICE uint4 last(uint32_t byte) const { return __ldg(&KUZNYECHIK_TABLES[DIRECTION].entry[byte][15]); }
  DEVICE uint32_t pi_word(uint32_t word, uint32_t shift) const {
    uint32_t out = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) out |= (__ldg(&KUZNYECHIK_PI_WORDS[word >> 8 * i & 0xff]) >> shift & 0xff) << 8 * i;
    return out;
  }
};

// Tables in shared memory, free of bank conflicts without copies. Eight lanes read sixteen bytes each at
// a time, each from a different table, and all blocks of one table are in the same four banks, used by
// no other table of the eight. For that, lane k (its lowest three bits) takes the bytes of its block in
// the order 0 ^ k, 1 ^ k, ... 15 ^ k. Encryption adds a separate copy of the last byte's table, which is
// free of conflicts while the bytes that lanes look up differ in their lowest three bits. TABLE: the
// table that is copied.
template <Direction DIRECTION, int TABLE = DIRECTION>
struct KuznyechikShared {
  static constexpr uint32_t PI_BYTES = DIRECTION == DECRYPT ? 32768 : 0;
  static constexpr uint32_t LAST_BYTES = DIRECTION == ENCRYPT ? 4096 : 0;
  static constexpr uint32_t SHARED_BYTES = 65536 + PI_BYTES + LAST_BYTES;
  const uint8_t* rows;
  uint32_t low, high;    // four address bytes each: offsets in a row for steps 0 to 3 and 4 to 7
  uint32_t selector[4];  // PRMT selectors for an address: a byte of the block above one of those
  bool swapped;          // exchange words 0 and 1, and words 2 and 3

  // Copies the tables. Must be called by every thread of the block.
  DEVICE KuznyechikShared(uint8_t* shared) : rows(shared), low(0), high(0) {
    uint32_t k = lane_id() % 8;
    swapped = k & 4;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
      low |= (c ^ k) * 16 << 8 * c;
      high |= ((c | 4) ^ k) * 16 << 8 * c;
      selector[c] = (4 + c) | (c ^ (k & 3)) << 4 | 0xcc00;
    }
    uint4* to = reinterpret_cast<uint4*>(shared);
    const uint4* from = &KUZNYECHIK_TABLES[TABLE].entry[0][0];
    for (uint32_t i = threadIdx.x; i < 4096; i += blockDim.x) to[i] = __ldg(from + i);
    if constexpr (DIRECTION == ENCRYPT) {
      for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) to[4096 + i] = __ldg(from + 16 * i + 15);
    }
    if constexpr (DIRECTION == DECRYPT) {
      uint32_t* words = reinterpret_cast<uint32_t*>(shared + 65536);
      for (uint32_t i = threadIdx.x; i < PI_BYTES / 4; i += blockDim.x) words[i] = __ldg(&KUZNYECHIK_PI_WORDS[i / 32]);
    }
    __syncthreads();
  }
  DEVICE uint4 pass(uint4 x, uint4 key) const {
    const uint32_t words[4] = {swapped ? x.y : x.x, swapped ? x.x : x.y, swapped ? x.w : x.z, swapped ? x.z : x.w};
    uint4 sum = key;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      uint32_t address = permute_bytes(words[i / 4], i & 4 ? high : low, selector[i % 4]);
      sum = sum ^ *reinterpret_cast<const uint4*>(rows + address + (i & 8 ? 128 : 0));
    }
    return sum;
  }
  // Table entry for the last byte of a block; encryption only.
  DEVICE uint4 last(uint32_t byte) const {
    static_assert(DIRECTION == ENCRYPT, "the table's copy is there");
    return *reinterpret_cast<const uint4*>(rows + 65536 + 16 * byte);
  }
  // Substitutes the bytes of a word. Each lane has a copy of the table in its own bank.
  DEVICE uint32_t pi_word(uint32_t word, uint32_t shift) const {
    const uint8_t* base = rows + 65536 + 4 * lane_id();
    uint32_t out = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out |= (*reinterpret_cast<const uint32_t*>(base + 128 * (word >> 8 * i & 0xff)) >> shift & 0xff) << 8 * i;
    }
    return out;
  }
};

template <class Tables>
DEVICE uint4 kuznyechik_pi(const Tables& tables, uint4 x, uint32_t shift) {
  return make_uint4(tables.pi_word(x.x, shift), tables.pi_word(x.y, shift), tables.pi_word(x.z, shift),
                    tables.pi_word(x.w, shift));
}

// ECB of N blocks in place. `keys`: K_1 to K_10 for encryption. For decryption, in order of use: the
// inverse of L applied to K_10 down to K_2, then K_1.
template <Direction DIRECTION, class Tables, class Keys = GlobalKeys>
struct KuznyechikEcb {
  Tables tables;
  Keys keys;
  template <int N>
  DEVICE void blocks(uint4 (&x)[N]) const {
    uint4 key = keys[0];
#pragma unroll
    for (int n = 0; n < N; n++) {
      // The decryption tables apply the inverse of S first. S cancels it here, where only the inverse of
      // L is needed.
      x[n] = DIRECTION == ENCRYPT ? x[n] ^ key : tables.pass(kuznyechik_pi(tables, x[n], PI_SHIFT), key);
    }
    passes(x, 1);
    if (DIRECTION == DECRYPT) {
      key = keys[9];
#pragma unroll
      for (int n = 0; n < N; n++) x[n] = kuznyechik_pi(tables, x[n], PI_INVERSE_SHIFT) ^ key;
    }
  }
  // Table passes from `first` to the last.
  template <int N>
  DEVICE void passes(uint4 (&x)[N], int first) const {
#pragma unroll 1
    for (int round = first; round < (DIRECTION == ENCRYPT ? 10 : 9); round++) {
      const uint4 key = keys[round];
#pragma unroll
      for (int n = 0; n < N; n++) x[n] = tables.pass(x[n], key);
    }
  }
};

// Keystream for up to 256 blocks whose counters differ only in the last byte. Fifteen of the sixteen
// lookups in the first pass are the same for all blocks and are made once.
template <class Tables, class Keys = GlobalKeys>
struct KuznyechikStream {
  KuznyechikEcb<ENCRYPT, Tables, Keys> cipher;
  uint32_t last;
  uint4 first;  // the first pass without the last byte's contribution
  DEVICE KuznyechikStream(const Tables& tables, Keys keys, uint4 counter) : cipher{tables, keys} {
    const uint4 x = counter ^ keys[0];
    last = x.w >> 24;
    first = tables.pass(x, keys[1]) ^ tables.last(last);
  }
  template <int N>
  DEVICE void blocks(const uint32_t (&number)[N], uint4 (&out)[N]) const {
#pragma unroll
    for (int n = 0; n < N; n++) out[n] = first ^ cipher.tables.last((last ^ number[n]) & 0xff);
    cipher.passes(out, 2);
  }
};
