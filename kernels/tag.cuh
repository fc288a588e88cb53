// Tags of chunks: KMAC128, KMAC256 (SP 800-185) and the keyed TurboSHAKE128, from a sponge whose key is
// already absorbed. The input is header (30 bytes) || ciphertext || right_encode(128), the output 16 bytes.
#pragma once
#include "batch.cuh"
#include "keccak.cuh"

struct Kmac128 {
  static constexpr uint32_t RATE = 168, ROUNDS = 24, SUFFIX = 0x04;
};
struct Kmac256 {
  static constexpr uint32_t RATE = 136, ROUNDS = 24, SUFFIX = 0x04;
};
struct TurboShake128 {
  static constexpr uint32_t RATE = 168, ROUNDS = 12, SUFFIX = 0x4d;
};

// Blocks of a tag's input with their padding: right_encode takes two bytes, and padding one at least.
template <class Integrity>
DEVICE constexpr uint32_t message_blocks(uint32_t length) {
  return (HEADER_BYTES + length + 2) / Integrity::RATE + 1;
}

// The input of one tag, as a stream of little-endian words: the header, then the data with right_encode(128)
// and the suffix behind it. The header has 30 bytes, so the data lies two bytes off the words.
template <class Integrity>
struct Message {
  const Chunk& chunk;
  const uint8_t* data;
  uint32_t length, whole;  // whole: words of the data that end before it does
  uint32_t end0, end1;     // the two words after those: the data's last bytes, and what follows

  DEVICE Message(const Chunk& chunk, const uint8_t* data)
      : chunk(chunk), data(data), length(chunk.length), whole(length / 4) {
    constexpr uint32_t TRAILER = 0x80 | 0x01 << 8 | Integrity::SUFFIX << 16;
    uint32_t bits = 8 * (length % 4);
    end0 = TRAILER << bits | (bits ? load(whole) & ((1u << bits) - 1) : 0);
    end1 = bits ? TRAILER >> (32 - bits) : 0;
  }
  DEVICE uint32_t blocks() const { return message_blocks<Integrity>(length); }
  DEVICE uint32_t load(uint32_t word) const { return reinterpret_cast<const uint32_t*>(data)[word]; }
  // Any word of the data and what follows it; zero beyond.
  DEVICE uint32_t data_word(uint32_t word) const {
    uint32_t value = word < whole ? load(word) : 0;
    value = word == whole ? end0 : value;
    return word == whole + 1 ? end1 : value;
  }
  // A word of the input: `before` and `data` are words at - 8 and at - 7 of the data, as far as there are such.
  DEVICE uint32_t word(uint32_t at, uint32_t before, uint32_t data) const {
    return at < 7 ? header_word(chunk, at) : (at == 7 ? header_word(chunk, 7) : before >> 16) | data << 16;
  }
};

// One thread a tag.
template <class Integrity>
DEVICE uint4 tag_by_thread(const KeySlot* keys, const Chunk& chunk, const uint8_t* data) {
  constexpr uint32_t WORDS = Integrity::RATE / 4;
  const Message<Integrity> message(chunk, data);
  const KeySlot& slot = keys[chunk.key];
  uint64_t a[25];
#pragma unroll
  for (int i = 0; i < 25; i++) a[i] = __ldg(&slot.keyed[i]);

  uint32_t blocks = message.blocks();
#pragma unroll 1
  for (uint32_t block = 0; block < blocks; block++) {
    uint32_t first = block * WORDS;
    if (block > 0 && 4 * (first - 7 + WORDS) <= message.length) {
      // Nothing but data, and the two words on either side of the block are data as well.
      const uint2* pairs = reinterpret_cast<const uint2*>(data + 4 * (first - 8));
      uint2 pair = pairs[0];
#pragma unroll
      for (int i = 0; i < int(WORDS) / 2; i++) {
        uint2 next = pairs[i + 1];
        a[i] ^= __byte_perm(pair.x, pair.y, 0x5432) | uint64_t(__byte_perm(pair.y, next.x, 0x5432)) << 32;
        pair = next;
      }
    } else {
      uint32_t before = block > 0 ? message.data_word(first - 8) : 0;
#pragma unroll
      for (int i = 0; i < int(WORDS); i++) {
        uint32_t at = first + i, data = at >= 7 ? message.data_word(at - 7) : 0;
        a[i / 2] ^= uint64_t(message.word(at, before, data)) << 32 * (i % 2);
        before = data;
      }
      if (block + 1 == blocks) a[WORDS / 2 - 1] ^= uint64_t(0x80) << 56;
    }
    keccak_permute<Integrity::ROUNDS>(a);
  }
  return make_uint4(uint32_t(a[0]), uint32_t(a[0] >> 32), uint32_t(a[1]), uint32_t(a[1] >> 32));
}

// Without a branch that depends on where they differ.
DEVICE bool same_tag(uint4 tag, const Chunk& chunk) {
  uint4 difference = tag ^ *reinterpret_cast<const uint4*>(chunk.tag);
  return (difference.x | difference.y | difference.z | difference.w) == 0;
}
