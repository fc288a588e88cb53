// AES tables (FIPS 197), computed at compile time.
#pragma once
#include "platform.cuh"

// Each word holds a column with row 0 in the lowest byte, which matches a little-endian load of the
// data.
struct AesTables {
  uint32_t encrypt[256];  // MixColumns of S(x) in row 0: 2S, S, S, 3S
  uint32_t decrypt[256];  // InvMixColumns of S^-1(x) in row 0: multiples by 14, 9, 13, 11
};

// Product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1.
constexpr uint32_t aes_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? 0x11b : 0);
  }
  return product;
}

constexpr AesTables make_aes_tables() {
  AesTables tables{};
  // 3 generates the field's multiplicative group and 0xf6 is its inverse, so stepping both visits every
  // pair of inverses.
  uint32_t unit = 1, inverse = 1;
  uint32_t sbox[256]{};
  sbox[0] = 0x63;
  do {
    uint32_t s = inverse | inverse << 8;
    sbox[unit] = (s ^ s >> 4 ^ s >> 5 ^ s >> 6 ^ s >> 7 ^ 0x63) & 0xff;
    unit = aes_multiply(unit, 3);
    inverse = aes_multiply(inverse, 0xf6);
  } while (unit != 1);
  for (uint32_t x = 0; x < 256; x++) {
    uint32_t s = sbox[x];
    tables.encrypt[x] = aes_multiply(s, 2) | s << 8 | s << 16 | aes_multiply(s, 3) << 24;
    tables.decrypt[s] =
        aes_multiply(x, 14) | aes_multiply(x, 9) << 8 | aes_multiply(x, 13) << 16 | aes_multiply(x, 11) << 24;
  }
  return tables;
}

extern "C" __device__ const AesTables AES_TABLES;
__device__ const AesTables AES_TABLES = make_aes_tables();
extern "C" __constant__ const AesTables AES_TABLES_CONSTANT;
__constant__ const AesTables AES_TABLES_CONSTANT = make_aes_tables();
