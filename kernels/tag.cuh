// Chunk tags: KMAC128 and KMAC256 (SP 800-185) over the whole input, and TurboSHAKE128 (RFC 9861) over
// lanes, from sponges that have already absorbed the key. docs/format.md defines them. The output is 16
// bytes.
#pragma once
#include "batch.cuh"
#include "keccak.cuh"

// THREADS: how many threads share a tag when a warp computes many.
struct Kmac128 {
  static constexpr uint32_t RATE = 168, ROUNDS = 24, SUFFIX = 0x04, THREADS = 1;
};
struct Kmac256 {
  static constexpr uint32_t RATE = 136, ROUNDS = 24, SUFFIX = 0x04, THREADS = 1;
};
struct TurboShake128x4 {
  static constexpr uint32_t RATE = 168, ROUNDS = 12, SUFFIX = 0x4d, THREADS = 4;
};

// Tags that a warp computes at once.
template <class Integrity>
constexpr uint32_t GROUP = WARP / Integrity::THREADS;

// KMAC: the input is header (30 bytes) || ciphertext || right_encode(128).

// Blocks of a tag's input with padding: right_encode takes two bytes, and the padding takes at least
// one.
template <class Integrity>
DEVICE constexpr uint32_t message_blocks(uint32_t length) {
  return (HEADER_BYTES + length + 2) / Integrity::RATE + 1;
}

// The input of one tag as a stream of little-endian words: the header, then the data, followed by
// right_encode(128) and the suffix. The header is 30 bytes long, so the data is two bytes off the word
// boundaries.
template <class Integrity>
struct Message {
  const Chunk& chunk;
  const uint8_t* data;
  uint32_t length, whole;  // whole: number of complete words in the data
  uint32_t end0, end1;     // the two words after those: the last data bytes and what follows them

  DEVICE Message(const Chunk& chunk, const uint8_t* data)
      : chunk(chunk), data(data), length(chunk.length), whole(length / 4) {
    constexpr uint32_t TRAILER = 0x80 | 0x01 << 8 | Integrity::SUFFIX << 16;
    uint32_t bits = 8 * (length % 4);
    end0 = TRAILER << bits | (bits ? load(whole) & ((1u << bits) - 1) : 0);
    end1 = bits ? TRAILER >> (32 - bits) : 0;
  }
  DEVICE uint32_t blocks() const { return message_blocks<Integrity>(length); }
  DEVICE uint32_t load(uint32_t word) const { return reinterpret_cast<const uint32_t*>(data)[word]; }
  // Any word of the data and what follows it; zero past the end.
  DEVICE uint32_t data_word(uint32_t word) const {
    uint32_t value = word < whole ? load(word) : 0;
    value = word == whole ? end0 : value;
    return word == whole + 1 ? end1 : value;
  }
  // Word `at` of the input. `before` and `data` are words at - 8 and at - 7 of the data, where those
  // exist.
  DEVICE uint32_t word(uint32_t at, uint32_t before, uint32_t data) const {
    return at < 7 ? header_word(chunk, at) : (at == 7 ? header_word(chunk, 7) : before >> 16) | data << 16;
  }
};

DEVICE uint4 tag_of(uint64_t first, uint64_t second) {
  return make_uint4(uint32_t(first), uint32_t(first >> 32), uint32_t(second), uint32_t(second >> 32));
}

// One thread per tag.
template <class Integrity>
DEVICE uint4 kmac_by_thread(const KeySlot* keys, const Chunk& chunk, const uint8_t* data) {
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
      // The block contains only data, and so do the words that straddle its two ends.
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
  return tag_of(a[0], a[1]);
}

// TurboSHAKE128 over lanes. Up to four lanes of 1000 bytes are cut off the front of the ciphertext. The
// value of each is the 32-byte MAC of the lane || right_encode(256), from the lanes' sponge. The final
// input is the rest of the ciphertext || values || header (30 bytes) || number of lanes ||
// right_encode(128).
constexpr uint32_t LANE_BYTES = 1000, LANES = 4, VALUE_BYTES = 32;

DEVICE constexpr uint32_t lanes_of(uint32_t length) {
  return length / LANE_BYTES < LANES ? length / LANE_BYTES : LANES;
}
// A lane is six blocks. The last one ends with this word: right_encode(256), the suffix, the end of the
// padding.
constexpr uint32_t LANE_BLOCKS = 6;
constexpr uint64_t LANE_END = 0x800000004d020001;
static_assert(LANE_BYTES + 8 == LANE_BLOCKS * TurboShake128x4::RATE, "one word ends a lane");

// Bytes of the final input before its padding. The number of lanes and right_encode(128) follow values
// and header.
DEVICE constexpr uint32_t final_bytes(uint32_t length) {
  return length - lanes_of(length) * (LANE_BYTES - VALUE_BYTES) + HEADER_BYTES + 3;
}
DEVICE constexpr uint32_t final_blocks(uint32_t length) { return final_bytes(length) / TurboShake128x4::RATE + 1; }

// The final input as a stream of words, padded except for the last bit.
struct FinalInput {
  static constexpr uint32_t WORDS = (LANES * VALUE_BYTES + HEADER_BYTES + 4 + 7) / 8;
  const uint64_t* rest;
  uint32_t whole, bits;        // complete words of the rest, and the bits that remain after them
  uint64_t behind[WORDS + 2];  // the rest's last bytes, at the top of word 0; then values, header and end

  // `value(i)` returns word i of the values of all lanes.
  template <class Value>
  DEVICE FinalInput(const Chunk& chunk, const uint8_t* data, const Value& value) {
    const uint32_t lanes = lanes_of(chunk.length), length = chunk.length - lanes * LANE_BYTES;
    rest = reinterpret_cast<const uint64_t*>(data + lanes * LANE_BYTES);
    whole = length / 8, bits = length % 8 * 8;
    behind[0] = bits ? rest[whole] << (64 - bits) : 0;
    for (uint32_t i = 0; i < WORDS + 1; i++) {
      uint32_t at = 2 * (i - VALUE_BYTES / 8 * lanes);  // in 32-bit words
      behind[1 + i] = i < VALUE_BYTES / 8 * lanes
                          ? value(i)
                          : word_behind(chunk, lanes, at) | uint64_t(word_behind(chunk, lanes, at + 1)) << 32;
    }
  }
  // 32-bit words after the values: the header, whose last two bytes share a word with the number of
  // lanes, and the end.
  DEVICE static uint32_t word_behind(const Chunk& chunk, uint32_t lanes, uint32_t at) {
    constexpr uint32_t SUFFIX = TurboShake128x4::SUFFIX;
    if (at < 7) return header_word(chunk, at);
    if (at == 7) return header_word(chunk, 7) | lanes << 16 | 0x80u << 24;
    return at == 8 ? 0x01 | SUFFIX << 8 : 0;
  }
  DEVICE uint64_t word(uint32_t at) const {
    if (at < whole) return rest[at];
    uint32_t i = at - whole;
    if (i > WORDS) return 0;
    return bits ? behind[i] >> (64 - bits) | behind[i + 1] << bits : behind[i + 1];
  }
};

// Four threads per tag, one lane each. All threads of the warp must take part; those that share a tag
// have the same chunk.
DEVICE uint4 tag_by_four(const KeySlot* keys, const Chunk& chunk, const uint8_t* data) {
  constexpr uint32_t WORDS = TurboShake128x4::RATE / 8;
  const KeySlot& slot = keys[chunk.key];
  uint64_t a[25];
#pragma unroll
  for (int i = 0; i < 25; i++) a[i] = __ldg(&slot.lane[i]);
  const uint32_t mine = lane_id() % LANES;
  if (mine < lanes_of(chunk.length)) {
    const uint64_t* words = reinterpret_cast<const uint64_t*>(data + mine * LANE_BYTES);
#pragma unroll 1
    for (uint32_t block = 0; block < LANE_BLOCKS; block++) {
      const bool last = block + 1 == LANE_BLOCKS;
#pragma unroll
      for (int i = 0; i < int(WORDS); i++) {
        a[i] ^= last && i + 1 == int(WORDS) ? LANE_END : words[block * WORDS + i];
      }
      keccak_permute<TurboShake128x4::ROUNDS>(a);
    }
  }
  uint64_t values[LANES * VALUE_BYTES / 8];
#pragma unroll
  for (int i = 0; i < int(LANES * VALUE_BYTES / 8); i++) {
    values[i] = __shfl_sync(ALL_LANES, a[i % 4], lane_id() / LANES * LANES + i / 4);
  }
  const FinalInput input(chunk, data, [&](uint32_t i) -> uint64_t { return values[i % 16]; });
  const uint32_t blocks = final_blocks(chunk.length);
#pragma unroll
  for (int i = 0; i < 25; i++) a[i] = __ldg(&slot.keyed[i]);
#pragma unroll 1
  for (uint32_t block = 0; block < blocks; block++) {
#pragma unroll
    for (int i = 0; i < int(WORDS); i++) a[i] ^= input.word(block * WORDS + i);
    if (block + 1 == blocks) a[WORDS - 1] ^= uint64_t(0x80) << 56;
    keccak_permute<TurboShake128x4::ROUNDS>(a);
  }
  return tag_of(a[0], a[1]);
}

// Computes a chunk's tag with Integrity::THREADS threads. All threads of the warp must take part; those
// that share a tag have the same chunk.
template <class Integrity>
DEVICE uint4 tag_by_threads(const KeySlot* keys, const Chunk& chunk, const uint8_t* data) {
  if constexpr (Integrity::THREADS == 1) {
    return kmac_by_thread<Integrity>(keys, chunk, data);
  } else {
    return tag_by_four(keys, chunk, data);
  }
}

// Compares without a branch that depends on where the tags differ.
DEVICE bool same_tag(uint4 tag, const Chunk& chunk) {
  uint4 difference = tag ^ *reinterpret_cast<const uint4*>(chunk.tag);
  return (difference.x | difference.y | difference.z | difference.w) == 0;
}
