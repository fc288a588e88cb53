// Seal, open and tags with one warp per chunk. This has the lowest latency for batches too short to fill
// the device. It makes so few memory accesses that input and output may be in host memory.
//
// Each warp has a desk in shared memory: the ciphertext of its chunk, laid out as the input of the tag,
// the descriptor and the key. Every input byte is read once and every output byte is written once,
// except for the zeros over chunks that do not verify. While the sponge works on one chunk, the next one
// is being loaded.
#pragma once
#include "ciphers.cuh"
#include "tag.cuh"

// One warp's part of shared memory.
template <class Integrity>
struct Desk {
  // Offset of the input of a KMAC tag, chosen so that the data after its header is aligned.
  static constexpr uint32_t MESSAGE = 2;
  static constexpr uint32_t DATA = MESSAGE + HEADER_BYTES;
  // Leaves room for the longest padded input: that of KMAC at either rate, or the lanes and the final
  // input.
  static constexpr uint32_t CHUNK_AT = 4368;
  static constexpr uint32_t KEY_AT = CHUNK_AT + sizeof(Chunk);
  static constexpr uint32_t TAIL_AT = KEY_AT + sizeof(KeySlot);
  static constexpr uint32_t BYTES = TAIL_AT + BLOCK_BYTES;
  static constexpr uint32_t WORDS = Integrity::RATE / 8;
  static constexpr uint32_t LANES_MOST = LANES * LANE_BYTES;
  static_assert(DATA % BLOCK_BYTES == 0 && CHUNK_AT % BLOCK_BYTES == 0, "blocks are read and written whole");
  static_assert(MESSAGE + message_blocks<Integrity>(CHUNK_BYTES) * Integrity::RATE <= CHUNK_AT, "the longest fits");
  static_assert(DATA + LANES_MOST + final_blocks(CHUNK_BYTES) * Integrity::RATE <= CHUNK_AT, "the longest fits");

  uint8_t* start;

  // `desks`: start of the block's desks.
  DEVICE explicit Desk(uint8_t* desks) : start(desks + threadIdx.x / WARP * BYTES) {}
  DEVICE uint4* blocks() const { return reinterpret_cast<uint4*>(start + DATA); }
  DEVICE Chunk& chunk() const { return *reinterpret_cast<Chunk*>(start + CHUNK_AT); }
  DEVICE KeySlot& key() const { return *reinterpret_cast<KeySlot*>(start + KEY_AT); }
  // Last block of the output, if it is incomplete.
  DEVICE uint4* tail() const { return reinterpret_cast<uint4*>(start + TAIL_AT); }

  // The header byte at this lane's position.
  DEVICE uint8_t header_byte() const {
    const Chunk& described = chunk();
    uint32_t lane = lane_id();
    uint8_t byte = described.nonce[lane < 10 ? lane : 0];
    if (lane >= 10) byte = uint8_t(described.index >> 8 * ((17 - lane) % 8));
    if (lane >= 18) byte = uint8_t(described.epoch >> 8 * ((25 - lane) % 8));
    if (lane >= 26) byte = uint8_t(uint32_t(described.length) >> 8 * ((29 - lane) % 4));
    return byte;
  }

  // Zeroes the bytes after the data, up to `end`. The last block of the data is already padded with
  // zeros.
  DEVICE void clear_to(uint32_t end) const {
    uint32_t filled = DATA + (chunk().length + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    for (uint32_t at = filled + 4 * lane_id(); at < end; at += 4 * WARP) *reinterpret_cast<uint32_t*>(start + at) = 0;
    __syncwarp();
  }

  // Writes header and padding around the data.
  DEVICE void frame() const {
    uint32_t length = chunk().length, end = MESSAGE + message_blocks<Integrity>(length) * Integrity::RATE;
    if (lane_id() < HEADER_BYTES) start[MESSAGE + lane_id()] = header_byte();
    clear_to(end);
    if (lane_id() == 0) {
      uint8_t* trailer = start + DATA + length;
      trailer[0] = 0x80, trailer[1] = 0x01, trailer[2] = Integrity::SUFFIX;
      start[end - 1] ^= 0x80;
    }
    __syncwarp();
  }

  // Writes values, header and padding after the data. Word i of lane l's value is values[l] in thread i.
  DEVICE void frame_final(const uint64_t (&values)[LANES]) const {
    uint32_t length = chunk().length, lanes = lanes_of(length);
    uint32_t end = DATA + lanes * LANE_BYTES + final_blocks(length) * Integrity::RATE;
    clear_to(end);
    uint8_t* behind = start + DATA + length;
#pragma unroll
    for (uint32_t i = 0; i < LANES; i++) {
      if (i >= lanes || lane_id() >= VALUE_BYTES / 8) continue;
#pragma unroll
      for (int byte = 0; byte < 8; byte++)
        behind[VALUE_BYTES * i + 8 * lane_id() + byte] = uint8_t(values[i] >> 8 * byte);
    }
    behind += VALUE_BYTES * lanes;
    if (lane_id() < HEADER_BYTES) behind[lane_id()] = header_byte();
    behind += HEADER_BYTES;
    if (lane_id() == 0) {
      behind[0] = uint8_t(lanes), behind[1] = 0x80, behind[2] = 0x01, behind[3] = Integrity::SUFFIX;
      start[end - 1] ^= 0x80;
    }
    __syncwarp();
  }

  // Wipes keys and plaintext.
  DEVICE void wipe() const {
    const uint4 none = make_uint4(0, 0, 0, 0);
    __syncwarp();
    for (uint32_t i = lane_id(); i < sizeof(KeySlot) / 16; i += WARP) reinterpret_cast<uint4*>(&key())[i] = none;
    if (lane_id() == 0) *tail() = none;
  }

  // The word of a message block that this lane of the sponge absorbs.
  DEVICE uint64_t part(uint32_t block) const {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(start + block * Integrity::RATE + 8 * lane_id());
    return __byte_perm(from[0], from[1], 0x5432) | uint64_t(__byte_perm(from[1], from[2], 0x5432)) << 32;
  }
  // As `part`, for input that begins `from` bytes into the data. `from` is a multiple of 8.
  DEVICE uint64_t part_of(uint32_t from, uint32_t block) const {
    return *reinterpret_cast<const uint64_t*>(start + DATA + from + block * Integrity::RATE + 8 * lane_id());
  }

  // The tag of the chunk on the desk, returned to every lane.
  DEVICE uint4 tag() const {
    if constexpr (Integrity::THREADS == 1) {
      frame();
      return squeeze(message_blocks<Integrity>(chunk().length), [&](uint32_t block) { return part(block); });
    } else {
      uint64_t values[LANES] = {};
      if (chunk().length >= LANE_BYTES) values_of_lanes(values);
      frame_final(values);
      const uint32_t rest = lanes_of(chunk().length) * LANE_BYTES;
      return squeeze(final_blocks(chunk().length), [&](uint32_t block) { return part_of(rest, block); });
    }
  }

  // Absorbs `blocks` blocks and returns the tag. `part` returns this lane's word of each block.
  template <class Part>
  DEVICE uint4 squeeze(uint32_t blocks, const Part& part) const {
    KeccakWide<Integrity::ROUNDS, ByShuffle> keccak{ByShuffle(nullptr)};
    uint32_t lane = lane_id();
    uint64_t a = lane < 25 ? key().keyed[lane] : 0, next = lane < WORDS ? part(0) : 0;
#pragma unroll 1
    for (uint32_t block = 1; block <= blocks; block++) {
      a ^= next;
      next = lane < WORDS && block < blocks ? part(block) : 0;
      keccak.permute(a);
    }
    return tag_of(__shfl_sync(ALL_LANES, a, 0), __shfl_sync(ALL_LANES, a, 1));
  }

  // Runs the sponges of all lanes side by side. Lanes that the chunk does not have absorb leftover
  // bytes, and their values are ignored.
  DEVICE void values_of_lanes(uint64_t (&a)[LANES]) const {
    KeccakWide<Integrity::ROUNDS, ByShuffle> keccak{ByShuffle(nullptr)};
    const uint32_t lane = lane_id();
#pragma unroll
    for (int i = 0; i < int(LANES); i++) a[i] = lane < 25 ? key().lane[lane] : 0;
#pragma unroll 1
    for (uint32_t block = 0; block < LANE_BLOCKS; block++) {
      const bool ends = block + 1 == LANE_BLOCKS && lane + 1 == WORDS;
#pragma unroll
      for (int i = 0; i < int(LANES); i++) {
        if (lane < WORDS) a[i] ^= ends ? LANE_END : part_of(i * LANE_BYTES, block);
      }
      keccak.permute(a);
    }
  }
};

// A chunk being loaded from memory. Each thread has every 32nd block of it.
struct Arrival {
  static constexpr int BLOCKS = CHUNK_BYTES / BLOCK_BYTES / WARP;
  static constexpr uint32_t NONE = 0xffffffff;
  // 16-byte blocks of a key slot per thread.
  static constexpr int KEY_BLOCKS = (sizeof(KeySlot) / 16 + WARP - 1) / WARP;
  uint4 described, key[KEY_BLOCKS], data[BLOCKS];
  uint32_t slot = NONE, known = NONE;

  // Starts loading a chunk. A key that is already on the desk is not read again.
  DEVICE void fetch(const KeySlot* keys, const Chunk& chunk, const uint8_t* input) {
    const uint4 none = make_uint4(0, 0, 0, 0);
    described = lane_id() < sizeof(Chunk) / 16 ? reinterpret_cast<const uint4*>(&chunk)[lane_id()] : none;
    uint64_t source = uint64_t(__shfl_sync(ALL_LANES, described.y, 0)) << 32 | __shfl_sync(ALL_LANES, described.x, 0);
    uint32_t length = __shfl_sync(ALL_LANES, described.z, 2) >> 16;
    slot = __shfl_sync(ALL_LANES, described.w, 2);
    if (slot != known) {
#pragma unroll
      for (int i = 0; i < KEY_BLOCKS; i++) {
        if (number(i) < sizeof(KeySlot) / 16) key[i] = reinterpret_cast<const uint4*>(keys + slot)[number(i)];
      }
    }
    const uint4* from = reinterpret_cast<const uint4*>(input + source) + lane_id();
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) data[i] = number(i) * BLOCK_BYTES < length ? from[i * WARP] : none;
  }
  DEVICE static uint32_t number(int i) { return i * WARP + lane_id(); }

  // Copies descriptor and key to the desk.
  template <class Integrity>
  DEVICE void settle(const Desk<Integrity>& desk) {
    if (lane_id() < sizeof(Chunk) / 16) reinterpret_cast<uint4*>(&desk.chunk())[lane_id()] = described;
    if (slot != known) {
#pragma unroll
      for (int i = 0; i < KEY_BLOCKS; i++) {
        if (number(i) < sizeof(KeySlot) / 16) reinterpret_cast<uint4*>(&desk.key())[number(i)] = key[i];
      }
    }
    known = slot;
    __syncwarp();
  }
};

// A warp's first chunk when `blocks` blocks share them; the step to its next one is the total number of
// warps. Adjacent chunks go to different blocks, so that a few chunks spread over the whole device.
DEVICE uint64_t first_of_warp(uint32_t blocks) { return uint64_t(threadIdx.x / WARP) * blocks + blockIdx.x; }
DEVICE uint64_t warps_of(uint32_t blocks) { return uint64_t(blocks) * (blockDim.x / WARP); }

// Encrypts or decrypts the loaded chunk, which is chunk `at` of the launch, in place. The ciphertext
// also goes to the desk, and copies go where the trace asks for them.
template <class Cipher, bool SEAL, class Integrity>
DEVICE void crypt_arrived(const typename Cipher::Tables& tables, const Desk<Integrity>& desk, Arrival& arrival,
                          uint64_t at, const Trace& trace) {
  constexpr int N = Cipher::BLOCKS;
  const KeySlot& slot = desk.key();
  const uint32_t length = desk.chunk().length;
  const uint4* keys = slot.round_keys;
  auto stream = Cipher::stream(tables, keys, slot.rounds, first_counter(desk.chunk()));
  uint4* kept_in = trace.kept_in ? reinterpret_cast<uint4*>(trace.kept_in + at * CHUNK_BYTES) : nullptr;
  uint4* kept_out = trace.kept_out ? reinterpret_cast<uint4*>(trace.kept_out + at * CHUNK_BYTES) : nullptr;
#pragma unroll
  for (int first = 0; first < Arrival::BLOCKS; first += N) {
    if (first * WARP * BLOCK_BYTES >= length) break;
    uint32_t number[N];
    uint4 keystream[N];
#pragma unroll
    for (int n = 0; n < N; n++) number[n] = Arrival::number(first + n);
    stream.blocks(number, keystream);
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint32_t start = number[n] * BLOCK_BYTES;
      if (start >= length) continue;
      uint4 in = arrival.data[first + n], out = in ^ keystream[n];
      desk.blocks()[number[n]] = cut(SEAL ? out : in, length - start);
      if (kept_in) kept_in[number[n]] = in;
      if (kept_out) kept_out[number[n]] = out;
      arrival.data[first + n] = out;
    }
  }
  __syncwarp();
}

// Writes the processed chunk to the output.
template <class Integrity>
DEVICE void deliver(const Desk<Integrity>& desk, const Arrival& arrival, uint8_t* output) {
  const uint32_t length = desk.chunk().length, rest = length % BLOCK_BYTES;
  uint8_t* target = output + desk.chunk().target;
#pragma unroll
  for (int i = 0; i < Arrival::BLOCKS; i++) {
    const uint32_t number = Arrival::number(i), start = number * BLOCK_BYTES;
    if (start >= length) continue;
    uint4* to = length - start >= BLOCK_BYTES ? reinterpret_cast<uint4*>(target) + number : desk.tail();
    *to = arrival.data[i];
  }
  __syncwarp();
  if (lane_id() < rest) target[length - rest + lane_id()] = reinterpret_cast<uint8_t*>(desk.tail())[lane_id()];
}

// Zeroes exactly the chunk's bytes in the output.
DEVICE void clear_exactly(const Chunk& chunk, uint8_t* output) {
  uint4* to = reinterpret_cast<uint4*>(output + chunk.target);
  uint32_t rest = chunk.length % BLOCK_BYTES;
  for (uint32_t i = lane_id(); i < chunk.length / BLOCK_BYTES; i += WARP) to[i] = make_uint4(0, 0, 0, 0);
  if (lane_id() < rest) output[chunk.target + chunk.length - rest + lane_id()] = 0;
}

// Processes all chunks of this warp, which belongs to one of the first `blocks` blocks. `finish(at,
// chunk, tag)` completes each. If progress is traced, the checking blocks deliver the output.
template <class Cipher, class Integrity, bool SEAL, class Finish>
DEVICE void crypt_by_warps(uint8_t* shared, uint32_t blocks, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                           const uint8_t* input, uint8_t* output, const Trace& trace, const Finish& finish) {
  trace.sign();
  const Desk<Integrity> desk(shared + TABLES_BYTES);
  Arrival arrival;
  uint64_t at = first_of_warp(blocks);
  const bool has_any = at < count;
  if (has_any) arrival.fetch(keys, chunks[at], input);
  const typename Cipher::Tables tables(shared);  // filled while the first chunk is being loaded
  for (uint64_t step = warps_of(blocks); at < count; at += step) {
    arrival.settle(desk);
    crypt_arrived<Cipher, SEAL>(tables, desk, arrival, at, trace);
    if (!trace.progress) {
      deliver(desk, arrival, output);
    } else if (lane_id() == 0) {
      publish(&trace.progress[at].text, trace.launch);
    }
    if (at + step < count) arrival.fetch(keys, chunks[at + step], input);
    finish(at, desk.chunk(), desk.tag());
    __syncwarp();  // all lanes are done with the desk
  }
  if (has_any) desk.wipe();
}

template <class Cipher, class Integrity>
DEVICE void seal_by_warps(uint8_t* shared, uint32_t blocks, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                          const uint8_t* input, uint8_t* output, uint4* tags, const Trace& trace) {
  auto finish = [&](uint64_t at, const Chunk&, uint4 tag) {
    if (trace.progress) {
      const uint32_t lane = lane_id();
      const uint32_t word = lane == 0 ? tag.x : lane == 1 ? tag.y : lane == 2 ? tag.z : tag.w;
      if (lane < 4) trace.progress[at].make(trace.launch, lane, word);
    } else if (lane_id() == 0) {
      tags[at] = tag;
    }
  };
  crypt_by_warps<Cipher, Integrity, true>(shared, blocks, keys, chunks, count, input, output, trace, finish);
}

// The plaintext may be in the output before its tag is known. The host does not read it before the
// launch is complete. If progress is traced, plaintext that fails to verify stays there and the host
// clears it.
template <class Cipher, class Integrity>
DEVICE void open_by_warps(uint8_t* shared, uint32_t blocks, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                          const uint8_t* input, uint8_t* output, uint32_t* verified, const Trace& trace) {
  auto finish = [&](uint64_t at, const Chunk& chunk, uint4 tag) {
    const bool good = same_tag(tag, chunk);
    if (lane_id() == 0) {
      if (trace.progress) {
        trace.progress[at].make(trace.launch, 0, good);
      } else {
        verified[at] = good;
      }
    }
    if (!good && !trace.progress) clear_exactly(chunk, output);
  };
  crypt_by_warps<Cipher, Integrity, false>(shared, blocks, keys, chunks, count, input, output, trace, finish);
}

// `desks`: all of the block's dynamic shared memory.
template <class Integrity>
DEVICE void tags_by_warps(uint8_t* desks, const KeySlot* keys, const Chunk* chunks, uint32_t count,
                          const uint8_t* input, uint4* tags) {
  const Desk<Integrity> desk(desks);
  Arrival arrival;
  for (uint64_t at = first_of_warp(gridDim.x); at < count; at += warp_count()) {
    arrival.fetch(keys, chunks[at], input);
    arrival.settle(desk);
    uint32_t length = desk.chunk().length;
#pragma unroll
    for (int i = 0; i < Arrival::BLOCKS; i++) {
      uint32_t number = Arrival::number(i), start = number * BLOCK_BYTES;
      if (start < length) desk.blocks()[number] = cut(arrival.data[i], length - start);
    }
    __syncwarp();
    uint4 tag = desk.tag();
    if (lane_id() == 0) tags[at] = tag;
    __syncwarp();
  }
  desk.wipe();
}
