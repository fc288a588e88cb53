// Seal and open for long batches: cipher and tags in one launch.
//
// Each warp takes a group of chunks. It encrypts or decrypts them one after another, with its lanes side
// by side over the blocks. It computes the tags of all of them at once, with one or several threads per
// chunk, which gives the device's highest throughput.
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

// Computes the tags of the warp's group of chunks that begins at `first`. When all are computed,
// `finish(at, tag)` is called once per chunk, by one of the threads that share its tag.
template <class Integrity, class Data, class Finish>
DEVICE void tags_of_group(const KeySlot* keys, const Chunk* chunks, uint64_t first, uint32_t count, const Data& data,
                          const Finish& finish) {
  const uint64_t at = first + lane_id() / Integrity::THREADS;
  const Chunk& chunk = chunks[at < count ? at : first];
  const uint4 tag = tag_by_threads<Integrity>(keys, chunk, data(chunk));
  if (at < count && lane_id() % Integrity::THREADS == 0) finish(at, tag);
}

template <class Cipher, class Integrity>
DEVICE void seal_by_threads(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                            const uint8_t* input, uint8_t* output, uint4* tags, const Trace& trace) {
  trace.sign();
  const typename Cipher::Tables tables(shared);
  auto data = [&](const Chunk& chunk) { return output + chunk.target; };
  auto finish = [&](uint64_t at, uint4 tag) { tags[at] = tag; };
  for (uint64_t first = warp_id() * GROUP<Integrity>; first < count; first += warp_count() * GROUP<Integrity>) {
    for (uint64_t at = first; at < count && at < first + GROUP<Integrity>; at++)
      crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
    __syncwarp();  // the tags read bytes that other lanes wrote
    tags_of_group<Integrity>(keys, chunks, first, count, data, finish);
  }
}

template <class Cipher, class Integrity>
DEVICE void open_by_threads(uint8_t* shared, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                            const uint8_t* input, uint8_t* output, uint32_t* verified, const Trace& trace) {
  trace.sign();
  const typename Cipher::Tables tables(shared);
  auto data = [&](const Chunk& chunk) { return input + chunk.source; };
  for (uint64_t first = warp_id() * GROUP<Integrity>; first < count; first += warp_count() * GROUP<Integrity>) {
    uint32_t good = 0;
    tags_of_group<Integrity>(keys, chunks, first, count, data, [&](uint64_t at, uint4 tag) {
      good = same_tag(tag, chunks[at]);
      verified[at] = good;
    });
    __syncwarp();  // in place, every tag must be computed before its input is overwritten
    for (uint64_t at = first; at < count && at < first + GROUP<Integrity>; at++) {
      if (__shfl_sync(ALL_LANES, good, uint32_t(at - first) * Integrity::THREADS)) {
        crypt_chunk<Cipher>(tables, keys, chunks[at], input, output);
      } else {
        clear_chunk(chunks[at], output);
      }
    }
  }
}

template <class Integrity>
DEVICE void tags_by_threads(const KeySlot* keys, const Chunk* chunks, uint32_t count, const uint8_t* input,
                            uint4* tags) {
  auto data = [&](const Chunk& chunk) { return input + chunk.source; };
  auto finish = [&](uint64_t at, uint4 tag) { tags[at] = tag; };
  for (uint64_t first = warp_id() * GROUP<Integrity>; first < count; first += warp_count() * GROUP<Integrity>)
    tags_of_group<Integrity>(keys, chunks, first, count, data, finish);
}
