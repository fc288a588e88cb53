// CTR and ECB (SP 800-38A) for any of the ciphers: the assignment of blocks to threads.
#pragma once
#include "aes.cuh"
#include "kuznyechik.cuh"

constexpr uint32_t UNIT_BLOCKS = 256;

// Encrypts or decrypts bytes 16 * begin to end - 1 of a unit: 256 blocks whose counters differ only in
// the last byte. Block 0 is at `source` and `target`. Runs on one warp, with N blocks per lane at a
// time; adjacent lanes take adjacent blocks. Bytes of the last block past the end are written as zeros.
template <int N, class Stream>
DEVICE void ctr_unit(const Stream& stream, const uint8_t* source, uint8_t* target, uint32_t begin, uint32_t end) {
  const uint4* from = reinterpret_cast<const uint4*>(source);
  uint4* to = reinterpret_cast<uint4*>(target);
#pragma unroll 1
  for (uint32_t base = begin + lane_id(); base * BLOCK_BYTES < end; base += N * WARP) {
    uint32_t number[N];
    uint4 data[N], keystream[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
      number[n] = base + n * WARP;
      data[n] = number[n] * BLOCK_BYTES < end ? from[number[n]] : make_uint4(0, 0, 0, 0);
    }
    stream.blocks(number, keystream);
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint32_t start = number[n] * BLOCK_BYTES;
      if (start >= end) continue;
      uint4 out = data[n] ^ keystream[n];
      to[number[n]] = end - start >= BLOCK_BYTES ? out : cut(out, end - start);
    }
  }
}

// Whether two texts of `length` bytes differ by anything other than a unit's keystream, in this lane's
// blocks. Both buffers reach to the next multiple of 16. `see(number, block)` receives the blocks of
// `other` that are compared.
template <int N, class Stream, class See>
DEVICE bool ctr_differs(const Stream& stream, const uint8_t* text, const uint8_t* other, uint32_t length,
                        const See& see) {
  const uint4 *from = reinterpret_cast<const uint4*>(text), *to = reinterpret_cast<const uint4*>(other);
  uint32_t difference = 0;
#pragma unroll 1
  for (uint32_t base = lane_id(); base * BLOCK_BYTES < length; base += N * WARP) {
    uint32_t number[N];
    uint4 data[N], keystream[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
      number[n] = base + n * WARP;
      data[n] = make_uint4(0, 0, 0, 0);
      if (number[n] * BLOCK_BYTES >= length) continue;
      const uint4 block = to[number[n]];
      see(number[n], block);
      data[n] = from[number[n]] ^ block;
    }
    stream.blocks(number, keystream);
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint32_t start = number[n] * BLOCK_BYTES;
      if (start >= length) continue;
      uint4 rest = cut(data[n] ^ keystream[n], length - start);
      difference |= rest.x | rest.y | rest.z | rest.w;
    }
  }
  return difference != 0;
}

// Returns counter + 256 * units with the last byte cleared. Counters are big-endian numbers that wrap at
// 2^128.
DEVICE uint4 unit_counter(uint4 counter, uint64_t units) {
  uint64_t low = uint64_t(swap_bytes(counter.z)) << 32 | swap_bytes(counter.w);
  uint64_t high = uint64_t(swap_bytes(counter.x)) << 32 | swap_bytes(counter.y);
  uint64_t sum = low + (units << 8);
  high += (units >> 56) + (sum < low);
  return make_uint4(swap_bytes(uint32_t(high >> 32)), swap_bytes(uint32_t(high)), swap_bytes(uint32_t(sum >> 32)),
                    swap_bytes(uint32_t(sum) & ~0xffu));
}

// CTR over `bytes` bytes, starting at `counter`. `make(counter)` returns the stream of one unit. Units
// are aligned to the counter, so the first one may start at any of its blocks.
template <int N, class Make>
DEVICE void ctr(const Make& make, uint4 counter, const uint8_t* source, uint8_t* target, uint64_t bytes) {
  uint32_t skipped = counter.w >> 24;
  uint64_t end = skipped * BLOCK_BYTES + bytes;
  for (uint64_t unit = warp_id(); unit * CHUNK_BYTES < end; unit += warp_count()) {
    int64_t start = int64_t(unit * CHUNK_BYTES) - skipped * BLOCK_BYTES;
    uint64_t rest = end - unit * CHUNK_BYTES;
    ctr_unit<N>(make(unit_counter(counter, unit)), source + start, target + start, unit == 0 ? skipped : 0,
                rest < CHUNK_BYTES ? uint32_t(rest) : CHUNK_BYTES);
  }
}

// ECB over whole blocks, N per thread at a time.
template <int N, class Cipher>
DEVICE void ecb(const Cipher& cipher, const uint4* source, uint4* target, uint64_t blocks) {
  for (uint64_t base = warp_id() * (N * WARP) + lane_id(); base < blocks; base += warp_count() * (N * WARP)) {
    uint4 x[N];
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = base + n * WARP < blocks ? source[base + n * WARP] : make_uint4(0, 0, 0, 0);
    cipher.blocks(x);
#pragma unroll
    for (int n = 0; n < N; n++) {
      if (base + n * WARP < blocks) target[base + n * WARP] = x[n];
    }
  }
}
