// Seal and open of long batches: cipher and tag in one launch.
//
// A warp takes a group of 32 chunks: one after another for the cipher, its lanes side by side over the blocks,
// and one thread a chunk for the tags, which is the most work that the device does in a time.
#pragma once
#include "ciphers.cuh"
#include "tag.cuh"

template <class Cipher>
DEVICE void crypt_chunk(const typename Cipher::Tables& tables, const KeySlot* keys, const Chunk& chunk,
                        const uint8_t* input, uint8_t* output) {
  const KeySlot& slot = keys[chunk.key];
  auto stream = Cipher::stream(tables, GlobalKeys(slot.round_keys), __ldg(&slot.rounds), first_counter(chunk));
  ctr_unit<Cipher::BLOCKS>(stream, input + chunk.source, output + chunk.target, 0, chunk.length);
}

DEVICE void clear_chunk(const Chunk& chunk, uint8_t* output) {
  uint4* to = reinterpret_cast<uint4*>(output + chunk.target);
  for (uint32_t i = lane_id(); i * BLOCK_BYTES < chunk.length; i += WARP) to[i] = make_uint4(0, 0, 0, 0);
}

template <class Cipher, class Integrity>
DEVICE void seal_by_threads(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                            const uint8_t* input, uint8_t* output, uint4* tags) {
  const typename Cipher::Tables tables(shared);
  for (uint64_t first = warp_id() * WARP; first < count; first += warp_count() * WARP) {
    for (uint64_t at = first; at < count && at < first + WARP; at++)
      crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
    __syncwarp();  // the tags read what other lanes wrote
    if (first + lane_id() < count) {
      const Chunk& chunk = chunks[first + lane_id()];
      tags[first + lane_id()] = tag_by_thread<Integrity>(keys, chunk, output + chunk.target);
    }
  }
}

template <class Cipher, class Integrity>
DEVICE void open_by_threads(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                            const uint8_t* input, uint8_t* output, uint32_t* verified) {
  const typename Cipher::Tables tables(shared);
  for (uint64_t first = warp_id() * WARP; first < count; first += warp_count() * WARP) {
    uint32_t good = 0;
    if (first + lane_id() < count) {
      const Chunk& chunk = chunks[first + lane_id()];
      good = same_tag(tag_by_thread<Integrity>(keys, chunk, input + chunk.source), chunk);
      verified[first + lane_id()] = good;
    }
    __syncwarp();  // every tag is computed before, in place, its input is overwritten
    for (uint64_t at = first; at < count && at < first + WARP; at++) {
      if (__shfl_sync(ALL_LANES, good, uint32_t(at - first))) {
        crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
      } else {
        clear_chunk(chunks[at], output);
      }
    }
  }
}
