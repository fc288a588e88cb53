// Seal and open: cipher and tag of a batch in one launch.
//
// A warp takes a group of chunks, one after another for the cipher (its 32 lanes side by side over the
// blocks), and for the tags either one thread a chunk (groups of 32: long batches) or the whole warp for
// one chunk (groups of 1: batches too short to fill the device).
#pragma once
#include "modes.cuh"
#include "tag.cuh"

struct Aes {
  using Tables = AesBanked<ENCRYPT>;
  static constexpr int BLOCKS = 4;
  DEVICE static AesStream<Tables> stream(const Tables& tables, const KeySlot& slot, uint4 counter) {
    return AesStream<Tables>(tables, slot.round_keys, __ldg(&slot.rounds), counter);
  }
};
struct Kuznyechik {
  using Tables = KuznyechikShared<ENCRYPT>;
  static constexpr int BLOCKS = 2;
  DEVICE static KuznyechikStream<Tables> stream(const Tables& tables, const KeySlot& slot, uint4 counter) {
    return KuznyechikStream<Tables>{{tables, slot.round_keys}, counter};
  }
};

template <class Cipher>
DEVICE void crypt_chunk(const typename Cipher::Tables& tables, const KeySlot* keys, const Chunk& chunk,
                        const uint8_t* input, uint8_t* output) {
  auto stream = Cipher::stream(tables, keys[chunk.key], first_counter(chunk));
  ctr_unit<Cipher::BLOCKS>(stream, input + chunk.source, output + chunk.target, 0, chunk.length);
}

DEVICE void clear_chunk(const Chunk& chunk, uint8_t* output) {
  uint4* to = reinterpret_cast<uint4*>(output + chunk.target);
  for (uint32_t i = lane_id(); i * BLOCK_BYTES < chunk.length; i += WARP) to[i] = make_uint4(0, 0, 0, 0);
}

// Without a branch that depends on where they differ.
DEVICE bool same_tag(uint4 tag, const Chunk& chunk) {
  uint4 difference = tag ^ *reinterpret_cast<const uint4*>(chunk.tag);
  return (difference.x | difference.y | difference.z | difference.w) == 0;
}

template <class Cipher, class Integrity, bool WIDE>
DEVICE void seal(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count, const uint8_t* input,
                 uint8_t* output, uint4* tags) {
  constexpr uint32_t GROUP = WIDE ? 1 : WARP;
  const typename Cipher::Tables tables(shared);
  for (uint64_t first = warp_id() * GROUP; first < count; first += warp_count() * GROUP) {
    for (uint64_t at = first; at < count && at < first + GROUP; at++)
      crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
    __syncwarp();  // the tags read what other lanes wrote
    if (WIDE) {
      uint4 tag = tag_by_warp<Integrity>(keys, chunks[first], output + chunks[first].target);
      if (lane_id() == 0) tags[first] = tag;
    } else if (first + lane_id() < count) {
      const Chunk& chunk = chunks[first + lane_id()];
      tags[first + lane_id()] = tag_by_thread<Integrity>(keys, chunk, output + chunk.target);
    }
  }
}

template <class Cipher, class Integrity, bool WIDE>
DEVICE void open(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count, const uint8_t* input,
                 uint8_t* output, uint32_t* verified) {
  constexpr uint32_t GROUP = WIDE ? 1 : WARP;
  const typename Cipher::Tables tables(shared);
  for (uint64_t first = warp_id() * GROUP; first < count; first += warp_count() * GROUP) {
    uint32_t good = 0;
    if (WIDE) {
      good = same_tag(tag_by_warp<Integrity>(keys, chunks[first], input + chunks[first].source), chunks[first]);
      if (lane_id() == 0) verified[first] = good;
    } else if (first + lane_id() < count) {
      const Chunk& chunk = chunks[first + lane_id()];
      good = same_tag(tag_by_thread<Integrity>(keys, chunk, input + chunk.source), chunk);
      verified[first + lane_id()] = good;
    }
    __syncwarp();  // every tag is computed before, in place, its input is overwritten
    for (uint64_t at = first; at < count && at < first + GROUP; at++) {
      if (__shfl_sync(ALL_LANES, good, uint32_t(at - first))) {
        crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
      } else {
        clear_chunk(chunks[at], output);
      }
    }
  }
}
