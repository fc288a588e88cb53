// AES by table lookup. One table serves all four rows of a column: the other three are byte rotations of
// it. The memory that holds the tables is a template parameter.
//
// Lookup indices are secret bytes. `AesBanked` keeps one copy per lane, in that lane's own bank, so its
// timing does not depend on the index. With the other placements it does.
#pragma once
#include "aes_tables.cuh"
#include "batch.cuh"

enum Direction { ENCRYPT, DECRYPT };

// One copy of the tables, in constant, global or shared memory.
template <Direction DIRECTION>
struct AesPlain {
  const AesTables* tables;
  DEVICE uint32_t row0(uint32_t word, int byte) const {
    uint32_t x = word >> 8 * byte & 0xff;
    return DIRECTION == ENCRYPT ? tables->encrypt[x] : tables->decrypt[x];
  }
  DEVICE uint32_t row1(uint32_t word, int byte) const { return rotate_bytes(row0(word, byte)); }
};

// Shared memory, 256 rows of 64 words: words x and 32 + x of each row are in lane x's bank. The left
// half holds the table for row 0, the right half the table for row 1. An address takes one byte
// permutation: the index byte above the lane's offset. AGAIN: copied from the tables in constant memory
// instead of those in global memory, so that a flipped bit in one source is not in the other.
template <Direction DIRECTION, bool AGAIN = false>
struct AesBanked {
  static constexpr uint32_t ROWS_BYTES = 65536;
  SharedTable rows;
  uint32_t offset;

  // Fills the rows. Must be called by every thread of the block.
  DEVICE explicit AesBanked(uint8_t* shared) : rows(shared), offset(4 * lane_id()) {
    uint4* quads = reinterpret_cast<uint4*>(rows.start);
    for (uint32_t i = threadIdx.x; i < ROWS_BYTES / 16; i += blockDim.x) {
      uint32_t x = i / 16;
      uint32_t left = entry(x);
      uint32_t word = i & 8 ? rotate_bytes(left) : left;
      quads[i] = make_uint4(word, word, word, word);
    }
    __syncthreads();
    keep_below(offset);
  }
  DEVICE static uint32_t entry(uint32_t x) {
    if (AGAIN) return DIRECTION == ENCRYPT ? AES_TABLES_CONSTANT.encrypt[x] : AES_TABLES_CONSTANT.decrypt[x];
    return __ldg(DIRECTION == ENCRYPT ? &AES_TABLES.encrypt[x] : &AES_TABLES.decrypt[x]);
  }
  DEVICE uint32_t address(uint32_t word, int byte) const { return __byte_perm(word, offset, 0x5504 | byte << 4); }
  DEVICE uint32_t row0(uint32_t word, int byte) const { return rows.template word<0>(address(word, byte)); }
  DEVICE uint32_t row1(uint32_t word, int byte) const { return rows.template word<128>(address(word, byte)); }
};

// Source column for byte `row` of column `j` in a round: `row` columns ahead for encryption, behind for
// decryption.
template <Direction DIRECTION>
DEVICE constexpr int aes_column(int j, int row) {
  return (DIRECTION == ENCRYPT ? j + row : j + 4 - row) % 4;
}

template <Direction DIRECTION, class Tables>
DEVICE void aes_round(const Tables& tables, uint32_t (&s)[4], uint4 key) {
  const uint32_t keys[4] = {key.x, key.y, key.z, key.w};
  uint32_t next[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32_t upper = tables.row0(s[j], 0) ^ tables.row1(s[aes_column<DIRECTION>(j, 1)], 1);
    uint32_t lower = tables.row0(s[aes_column<DIRECTION>(j, 2)], 2) ^ tables.row1(s[aes_column<DIRECTION>(j, 3)], 3);
    next[j] = upper ^ keys[j] ^ rotate_halves(lower);
  }
#pragma unroll
  for (int j = 0; j < 4; j++) s[j] = next[j];
}

// Extracts the plain substitution from four lookups, given in row order. The encryption tables contain
// it in two bytes of every word. In the decryption tables it is the sum of all four bytes, since 14, 9,
// 13 and 11 sum to 1.
template <Direction DIRECTION>
DEVICE uint32_t aes_substituted(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if (DIRECTION == ENCRYPT) return __byte_perm(__byte_perm(a, b, 0x0061), __byte_perm(c, d, 0x7200), 0x7610);
  uint32_t upper = __byte_perm(a, b, 0x5140) ^ __byte_perm(a, b, 0x7362);
  uint32_t lower = __byte_perm(c, d, 0x5140) ^ __byte_perm(c, d, 0x7362);
  return __byte_perm(upper, lower, 0x5410) ^ __byte_perm(upper, lower, 0x7632);
}

template <Direction DIRECTION, class Tables>
DEVICE uint4 aes_last_round(const Tables& tables, const uint32_t (&s)[4], uint4 key) {
  uint32_t out[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    out[j] = aes_substituted<DIRECTION>(tables.row0(s[j], 0), tables.row1(s[aes_column<DIRECTION>(j, 1)], 1),
                                        tables.row0(s[aes_column<DIRECTION>(j, 2)], 2),
                                        tables.row1(s[aes_column<DIRECTION>(j, 3)], 3));
  }
  return make_uint4(out[0], out[1], out[2], out[3]) ^ key;
}

// Rounds `first` through the last, for N blocks. `keys` has rounds + 1 entries.
template <Direction DIRECTION, int N, class Tables, class Keys>
DEVICE void aes_rounds(const Tables& tables, Keys keys, uint32_t first, uint32_t rounds, uint32_t (&s)[N][4],
                       uint4 (&out)[N]) {
#pragma unroll 1
  for (uint32_t round = first; round < rounds; round++) {
    uint4 key = keys[round];
#pragma unroll
    for (int n = 0; n < N; n++) aes_round<DIRECTION>(tables, s[n], key);
  }
  uint4 key = keys[rounds];
#pragma unroll
  for (int n = 0; n < N; n++) out[n] = aes_last_round<DIRECTION>(tables, s[n], key);
}

// ECB of N blocks in place.
template <Direction DIRECTION, class Tables>
struct AesEcb {
  Tables tables;
  GlobalKeys keys;
  uint32_t rounds;
  template <int N>
  DEVICE void blocks(uint4 (&x)[N]) const {
    uint4 key = keys[0];
    uint32_t s[N][4];
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint4 start = x[n] ^ key;
      s[n][0] = start.x, s[n][1] = start.y, s[n][2] = start.z, s[n][3] = start.w;
    }
    aes_rounds<DIRECTION>(tables, keys, 1, rounds, s, x);
  }
};

// Keystream for up to 256 blocks whose counters differ only in the last byte. That byte affects one
// column in round 1 and one byte of each column in round 2. Everything else in those two rounds is
// computed once (the caching of Bernstein and Schwabe, "New AES software speed records", section 4).
template <class Tables, class Keys = GlobalKeys>
struct AesStream {
  Tables tables;
  Keys keys;
  uint32_t rounds;
  uint32_t last;       // last word of the whitened counter
  uint32_t column;     // column 0 after round 1, without the last byte's contribution
  uint32_t shared[4];  // columns after round 2, without column 0's contribution

  DEVICE AesStream(const Tables& tables, Keys keys, uint32_t rounds, uint4 counter)
      : tables(tables), keys(keys), rounds(rounds) {
    uint4 s = counter ^ keys[0], k = keys[1];
    const Tables& t = tables;
    last = s.w;
    column = t.row0(s.x, 0) ^ t.row1(s.y, 1) ^ k.x ^ rotate_halves(t.row0(s.z, 2));
    uint32_t w1 = t.row0(s.y, 0) ^ t.row1(s.z, 1) ^ k.y ^ rotate_halves(t.row0(s.w, 2) ^ t.row1(s.x, 3));
    uint32_t w2 = t.row0(s.z, 0) ^ t.row1(s.w, 1) ^ k.z ^ rotate_halves(t.row0(s.x, 2) ^ t.row1(s.y, 3));
    uint32_t w3 = t.row0(s.w, 0) ^ t.row1(s.x, 1) ^ k.w ^ rotate_halves(t.row0(s.y, 2) ^ t.row1(s.z, 3));
    k = keys[2];
    shared[0] = t.row1(w1, 1) ^ k.x ^ rotate_halves(t.row0(w2, 2) ^ t.row1(w3, 3));
    shared[1] = t.row0(w1, 0) ^ t.row1(w2, 1) ^ k.y ^ rotate_halves(t.row0(w3, 2));
    shared[2] = t.row0(w2, 0) ^ t.row1(w3, 1) ^ k.z ^ rotate_halves(t.row1(w1, 3));
    shared[3] = t.row0(w3, 0) ^ k.w ^ rotate_halves(t.row0(w1, 2) ^ t.row1(w2, 3));
  }

  template <int N>
  DEVICE void blocks(const uint32_t (&number)[N], uint4 (&out)[N]) const {
    uint32_t s[N][4];
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint32_t w = column ^ rotate_halves(tables.row1(last ^ number[n] << 24, 3));
      s[n][0] = shared[0] ^ tables.row0(w, 0);
      s[n][1] = shared[1] ^ rotate_halves(tables.row1(w, 3));
      s[n][2] = shared[2] ^ rotate_halves(tables.row0(w, 2));
      s[n][3] = shared[3] ^ tables.row1(w, 1);
    }
    aes_rounds<ENCRYPT>(tables, keys, 3, rounds, s, out);
  }
};
