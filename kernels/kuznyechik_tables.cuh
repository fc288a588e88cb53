// Kuznyechik tables. They take 192 KiB, so the device computes them, once after the module is loaded.
#pragma once
#include "platform.cuh"

// entry[b][i] is a whole block: the image of byte b at position i of the input.
struct KuznyechikTable {
  uint4 entry[256][16];
};

// For encryption (L after S), for decryption (the inverse of L after the inverse of S), and a second
// copy for encryption.
constexpr int KUZNYECHIK_AGAIN = 2;
extern "C" __device__ KuznyechikTable KUZNYECHIK_TABLES[3];
__device__ KuznyechikTable KUZNYECHIK_TABLES[3];
// pi in the lowest byte, its inverse in the next.
extern "C" __device__ uint32_t KUZNYECHIK_PI_WORDS[256];
__device__ uint32_t KUZNYECHIK_PI_WORDS[256];
constexpr uint32_t PI_SHIFT = 0, PI_INVERSE_SHIFT = 8;

// The substitution pi (RFC 7801, section 4.1.1).
extern "C" __device__ const uint8_t KUZNYECHIK_PI[256];
__device__ const uint8_t KUZNYECHIK_PI[256] = {
    252, 238, 221, 17,  207, 110, 49,  22,  251, 196, 250, 218, 35,  197, 4,   77,  233, 119, 240, 219, 147, 46,
    153, 186, 23,  54,  241, 187, 20,  205, 95,  193, 249, 24,  101, 90,  226, 92,  239, 33,  129, 28,  60,  66,
    139, 1,   142, 79,  5,   132, 2,   174, 227, 106, 143, 160, 6,   11,  237, 152, 127, 212, 211, 31,  235, 52,
    44,  81,  234, 200, 72,  171, 242, 42,  104, 162, 253, 58,  206, 204, 181, 112, 14,  86,  8,   12,  118, 18,
    191, 114, 19,  71,  156, 183, 93,  135, 21,  161, 150, 41,  16,  123, 154, 199, 243, 145, 120, 111, 157, 158,
    178, 177, 50,  117, 25,  61,  255, 53,  138, 126, 109, 84,  198, 128, 195, 189, 13,  87,  223, 245, 36,  169,
    62,  168, 67,  201, 215, 121, 214, 246, 124, 34,  185, 3,   224, 15,  236, 222, 122, 148, 176, 188, 220, 232,
    40,  80,  78,  51,  10,  74,  167, 151, 96,  115, 30,  0,   98,  68,  26,  184, 56,  130, 100, 159, 38,  65,
    173, 69,  70,  146, 39,  94,  85,  47,  140, 163, 165, 125, 105, 213, 149, 59,  7,   88,  179, 64,  134, 172,
    29,  247, 48,  55,  107, 228, 136, 217, 231, 137, 225, 27,  131, 73,  76,  63,  248, 254, 141, 83,  170, 144,
    202, 216, 133, 97,  32,  113, 103, 164, 45,  43,  9,   91,  203, 155, 37,  208, 190, 229, 108, 82,  89,  166,
    116, 210, 230, 244, 180, 192, 209, 102, 175, 194, 57,  75,  99,  182,
};

// Product in GF(2^8) modulo x^8 + x^7 + x^6 + x + 1.
DEVICE uint8_t kuznyechik_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? 0x1c3 : 0);
  }
  return uint8_t(product);
}

// The linear function l (section 4.1.2), applied to a block in memory order.
DEVICE uint8_t kuznyechik_combine(const uint8_t (&block)[16]) {
  constexpr uint8_t COEFFICIENTS[16] = {148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1};
  uint8_t sum = 0;
  for (int i = 0; i < 16; i++) sum ^= kuznyechik_multiply(COEFFICIENTS[i], block[i]);
  return sum;
}

// Applies L or its inverse to a block: sixteen steps of R or of its inverse (section 4.2).
DEVICE void kuznyechik_linear(uint8_t (&block)[16], bool inverse) {
  for (int step = 0; step < 16; step++) {
    if (inverse) {
      uint8_t first = block[0];
      for (int i = 0; i < 15; i++) block[i] = block[i + 1];
      block[15] = first;
      block[15] = kuznyechik_combine(block);
    } else {
      uint8_t first = kuznyechik_combine(block);
      for (int i = 15; i > 0; i--) block[i] = block[i - 1];
      block[0] = first;
    }
  }
}

DEVICE uint8_t kuznyechik_pi_inverse(uint32_t x) {
  uint32_t i = 0;
  while (KUZNYECHIK_PI[i] != x) i++;
  return uint8_t(i);
}

// Computes entry `i` of 12288. Those at position 0 of the first table also write the substitution words.
DEVICE void kuznyechik_fill(uint32_t i) {
  uint32_t byte = i / 16 % 256, place = i % 16, table = i / 4096;
  if (table > KUZNYECHIK_AGAIN) return;
  bool inverse = table == 1;
  uint8_t substitute = KUZNYECHIK_PI[byte], restored = kuznyechik_pi_inverse(byte);
  uint8_t block[16] = {};
  block[place] = inverse ? restored : substitute;
  kuznyechik_linear(block, inverse);
  uint32_t words[4] = {};
  for (int k = 0; k < 16; k++) words[k / 4] |= uint32_t(block[k]) << 8 * (k % 4);
  KUZNYECHIK_TABLES[table].entry[byte][place] = make_uint4(words[0], words[1], words[2], words[3]);
  if (table == 0 && place == 0) KUZNYECHIK_PI_WORDS[byte] = substitute << PI_SHIFT | restored << PI_INVERSE_SHIFT;
}
