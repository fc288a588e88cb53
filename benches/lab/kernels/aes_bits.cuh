// AES in bit slices: register 8 * p + b holds bit b of byte p of 32 blocks, so a round is logic alone, without
// look-ups, and takes the same time whatever the data.
#pragma once
#include "aes_modes.cuh"

// The S-box as a circuit of 113 gates: J. Boyar and R. Peralta, "A new combinational logic minimization technique
// with applications to cryptology" (2010), figures 1 to 3, with their names. They count bits from the top.
DEVICE void substitute(uint32_t* bits) {
  const uint32_t x0 = bits[7], x1 = bits[6], x2 = bits[5], x3 = bits[4], x4 = bits[3], x5 = bits[2], x6 = bits[1],
                 x7 = bits[0];
  uint32_t y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, u0 = x1 ^ x2;
  uint32_t y1 = u0 ^ x7, y4 = y1 ^ x3, y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8;
  uint32_t u1 = x4 ^ y12, y15 = u1 ^ x5, y20 = u1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ u0, y11 = y20 ^ y9;
  uint32_t y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8, y16 = u0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;

  uint32_t t2 = y12 & y15, t4 = (y3 & y6) ^ t2, t6 = (y4 & x7) ^ t2;
  uint32_t t7 = y13 & y16, t9 = (y5 & y1) ^ t7, t11 = (y2 & y7) ^ t7;
  uint32_t t12 = y9 & y11, t14 = (y14 & y17) ^ t12, t16 = (y8 & y10) ^ t12;
  uint32_t t21 = t4 ^ t14 ^ y20, t22 = t6 ^ t16 ^ y19, t23 = t9 ^ t14 ^ y21, t24 = t11 ^ t16 ^ y18;
  uint32_t t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t29 = (t25 & t27) ^ t22;
  uint32_t t33 = ((t22 ^ t26) & (t23 ^ t24)) ^ t24, t36 = t24 & (t27 ^ t33), t37 = t36 ^ t23 ^ t33;
  uint32_t t40 = t25 ^ (t29 & (t27 ^ t36));
  uint32_t t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41;
  uint32_t z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7;
  uint32_t z6 = t42 & y11, z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4;
  uint32_t z12 = t43 & y13, z13 = t40 & y5, z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;

  uint32_t t46 = z15 ^ z16, t48 = z5 ^ z13, t53 = z0 ^ z3, t54 = z6 ^ z7;
  uint32_t t57 = z2 ^ z12 ^ t53, t58 = z4 ^ t46, t59 = z3 ^ t54, t62 = z7 ^ z8 ^ t58, t63 = z9 ^ z10 ^ t58;
  uint32_t t64 = z4 ^ t59, t65 = z14 ^ t57 ^ t62, t66 = z1 ^ t63, s3 = t53 ^ t66;
  bits[7] = t59 ^ t63;
  bits[6] = ~(t64 ^ s3);
  bits[5] = ~(z16 ^ z17 ^ t64 ^ t65);
  bits[4] = s3;
  bits[3] = z2 ^ z5 ^ t66;
  bits[2] = z10 ^ z11 ^ t65;
  bits[1] = ~(z12 ^ t48 ^ t62);
  bits[0] = ~(t48 ^ t46 ^ t57);
}

// The inverse of the S-box's affine map, its constant included.
DEVICE void undo_affine(uint32_t* bits) {
  uint32_t old[8];
#pragma unroll
  for (int i = 0; i < 8; i++) old[i] = bits[i];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    uint32_t sum = old[(i + 2) % 8] ^ old[(i + 5) % 8] ^ old[(i + 7) % 8];
    // The map of 0x63 is 0x05.
    bits[i] = 0x05 >> i & 1 ? ~sum : sum;
  }
}

template <bool INVERSE>
DEVICE void substitute_all(uint32_t (&s)[128]) {
#pragma unroll
  for (int p = 0; p < 16; p++) {
    // S is an affine map after the inversion, which undoes itself: two inverse maps around S make its inverse.
    if (INVERSE) undo_affine(s + 8 * p);
    substitute(s + 8 * p);
    if (INVERSE) undo_affine(s + 8 * p);
  }
}

// Rows move by their number: column j of row r comes from column j + r, or j - r backwards.
template <bool INVERSE>
DEVICE void shift_rows(uint32_t (&s)[128]) {
#pragma unroll
  for (int row = 1; row < 4; row++) {
#pragma unroll
    for (int b = 0; b < 8; b++) {
      uint32_t old[4];
#pragma unroll
      for (int j = 0; j < 4; j++) old[j] = s[8 * (4 * j + row) + b];
#pragma unroll
      for (int j = 0; j < 4; j++) s[8 * (4 * j + row) + b] = old[(INVERSE ? j + 4 - row : j + row) % 4];
    }
  }
}

// Bit b of 2 * a, where a is in eight registers.
DEVICE uint32_t doubled(const uint32_t* a, int b) {
  uint32_t shifted = b ? a[b - 1] : 0;
  return b == 0 || b == 1 || b == 3 || b == 4 ? shifted ^ a[7] : shifted;
}

template <bool INVERSE>
DEVICE void mix_columns(uint32_t (&s)[128]) {
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32_t* a = s + 32 * j;
    if (INVERSE) {
      // The inverse is the map itself after adding four times the sum of every other row (twice 2x).
#pragma unroll
      for (int side = 0; side < 2; side++) {
        uint32_t sum[8], twice[8];
#pragma unroll
        for (int b = 0; b < 8; b++) sum[b] = a[8 * side + b] ^ a[8 * (side + 2) + b];
#pragma unroll
        for (int b = 0; b < 8; b++) twice[b] = doubled(sum, b);
#pragma unroll
        for (int b = 0; b < 8; b++) {
          a[8 * side + b] ^= doubled(twice, b);
          a[8 * (side + 2) + b] ^= doubled(twice, b);
        }
      }
    }
    uint32_t all[8], old[32];
#pragma unroll
    for (int b = 0; b < 8; b++) all[b] = a[b] ^ a[8 + b] ^ a[16 + b] ^ a[24 + b];
#pragma unroll
    for (int i = 0; i < 32; i++) old[i] = a[i];
#pragma unroll
    for (int row = 0; row < 4; row++) {
      // 2 a + 3 b + c + d = a + (a + b + c + d) + 2 (a + b).
      uint32_t pair[8];
#pragma unroll
      for (int b = 0; b < 8; b++) pair[b] = old[8 * row + b] ^ old[8 * ((row + 1) % 4) + b];
#pragma unroll
      for (int b = 0; b < 8; b++) a[8 * row + b] = old[8 * row + b] ^ all[b] ^ doubled(pair, b);
    }
  }
}

// 32 words become their bits' columns: bit i of word k goes to bit k of word i.
DEVICE void transpose(uint32_t* w) {
  uint32_t mask = 0x0000ffff;
#pragma unroll
  for (int step = 16; step; step /= 2) {
#pragma unroll
    for (int k = 0; k < 32; k++) {
      if (k & step) continue;
      uint32_t swap = (w[k] >> step ^ w[k + step]) & mask;
      w[k] ^= swap << step;
      w[k + step] ^= swap;
    }
    mask ^= mask << step / 2;
  }
}

DEVICE uint32_t word_of(uint4 block, int i) { return i == 0 ? block.x : i == 1 ? block.y : i == 2 ? block.z : block.w; }

// `keys`: in shared memory, for each round 128 words of zeros or ones, one for each bit.
DEVICE void add_key(uint32_t (&s)[128], const uint4* keys) {
#pragma unroll
  for (int i = 0; i < 32; i++) {
    uint4 k = keys[i];
    s[4 * i] ^= k.x, s[4 * i + 1] ^= k.y, s[4 * i + 2] ^= k.z, s[4 * i + 3] ^= k.w;
  }
}

template <Mode MODE>
DEVICE void aes_bits(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out,
                     uint32_t blocks) {
  constexpr bool INVERSE = MODE == ECB_DECRYPT;
  DYNAMIC_SHARED(shared);
  uint32_t* bits = reinterpret_cast<uint32_t*>(shared);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(keys);
  for (uint32_t i = threadIdx.x; i < 128 * (rounds + 1); i += blockDim.x) {
    bits[i] = __ldg(words + i / 32) >> i % 32 & 1 ? ~0u : 0;
  }
  __syncthreads();
  const uint4* masks = reinterpret_cast<const uint4*>(bits);
  uint4 start = __ldg(counter);
#pragma unroll 1
  for (uint64_t base = warp_id() * 1024 + lane_id(); base < blocks; base += warp_count() * 1024) {
    uint32_t s[128];
    if (MODE == CTR) {
      // Bits 5 to 9 of the counter count this thread's blocks; the others are the same for all of them.
      constexpr uint32_t COUNTING[5] = {0xaaaaaaaa, 0xcccccccc, 0xf0f0f0f0, 0xff00ff00, 0xffff0000};
      uint4 first = counter_block(start, uint32_t(base));
#pragma unroll
      for (int i = 0; i < 128; i++) s[i] = word_of(first, i / 32) >> i % 32 & 1 ? ~0u : 0;
#pragma unroll
      for (int i = 0; i < 5; i++) s[i < 3 ? 8 * 15 + 5 + i : 8 * 14 + i - 3] = COUNTING[i];
    } else {
#pragma unroll
      for (int k = 0; k < 32; k++) {
        uint4 block = in[base + k * WARP];
        s[k] = block.x, s[32 + k] = block.y, s[64 + k] = block.z, s[96 + k] = block.w;
      }
#pragma unroll
      for (int i = 0; i < 4; i++) transpose(s + 32 * i);
    }
    add_key(s, masks);
#pragma unroll 1
    for (uint32_t round = 1; round < rounds; round++) {
      substitute_all<INVERSE>(s);
      shift_rows<INVERSE>(s);
      mix_columns<INVERSE>(s);
      add_key(s, masks + 32 * round);
    }
    substitute_all<INVERSE>(s);
    shift_rows<INVERSE>(s);
    add_key(s, masks + 32 * rounds);
#pragma unroll
    for (int i = 0; i < 4; i++) transpose(s + 32 * i);
#pragma unroll
    for (int k = 0; k < 32; k++) {
      uint4 block = make_uint4(s[k], s[32 + k], s[64 + k], s[96 + k]);
      out[base + k * WARP] = MODE == CTR ? block ^ in[base + k * WARP] : block;
    }
  }
}
