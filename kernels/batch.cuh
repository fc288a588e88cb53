// Data passed from the host: key slots and chunk descriptors. Little-endian; the layout is part of the
// contract.
#pragma once
#include "platform.cuh"

constexpr uint32_t CHUNK_BYTES = 4096;
constexpr uint32_t BLOCK_BYTES = 16;

// Keys of one file, expanded by the host. 656 bytes, 16-byte aligned.
struct KeySlot {
  uint4 round_keys[15];  // for encryption, in order of use
  uint32_t rounds;       // AES: 10, 12 or 14; ignored by Kuznyechik, which always has ten keys
  uint32_t unused[3];
  uint64_t keyed[25];  // sponge state after absorbing the MAC key's prefix, at position 0
  uint64_t lane[25];   // the same for the lanes, if the integrity function uses any
};
static_assert(sizeof(KeySlot) == 656, "the host builds key slots of this size");

// Round keys in global memory, which must not be written while a kernel runs. Round keys in shared
// memory are passed as a plain pointer.
struct GlobalKeys {
  const uint4* start;
  DEVICE GlobalKeys(const uint4* start) : start(start) {}
  DEVICE uint4 operator[](uint32_t round) const { return __ldg(start + round); }
};

// One chunk of a batch. 64 bytes, 16-byte aligned.
//
// `source` and `target` are multiples of 16. A chunk owns the bytes of both buffers up to the next
// multiple of 16 after its length: kernels may read them, and may zero them in the output.
struct Chunk {
  uint64_t source;  // byte offset in the input
  uint64_t target;  // byte offset in the output
  uint64_t index;   // chunk index in the file, below 2^40
  uint64_t epoch;   // below 2^48
  uint8_t nonce[10];
  uint16_t length;  // 1 to 4096 bytes
  uint32_t key;     // index of the key slot
  uint8_t tag[16];  // open: the expected tag
};
static_assert(sizeof(Chunk) == 64, "the host builds descriptors of this size");

// Progress of a launch on one chunk, read by those of its blocks that check the work of others. 40
// bytes.
struct Progress {
  uint64_t text;  // the launch number, once plaintext and ciphertext are in device memory
  // Four 32-bit words, each stored below the lower half of the launch number, so that they need no
  // ordering among themselves. Seal: the tag. Open: the first one says whether the chunk verified.
  uint64_t made[4];

  DEVICE void make(uint64_t launch, int i, uint32_t word) { put_word(&made[i], launch << 32 | word); }
  DEVICE bool has(uint64_t launch, int i) const { return get_word(&made[i]) >> 32 == (launch & 0xffffffff); }
  DEVICE uint32_t word(int i) const { return uint32_t(get_word(&made[i])); }
};
static_assert(sizeof(Progress) == 40, "the host has room for this size");

// Records that a seal or open launch leaves for its check (check.cuh). Pointers may be null.
struct Trace {
  uint64_t launch;    // launch number, below 2^48
  uint64_t* done_by;  // per block: the launch number, with the multiprocessor in the lower 16 bits
  Progress* progress = nullptr;
  // Copies of the chunks in device memory, for launches whose buffers are in host memory. Chunk i is at
  // i * CHUNK_BYTES.
  uint8_t *kept_in = nullptr, *kept_out = nullptr;
  static constexpr uint32_t NOWHERE = 0xffffffff;

  // Records this block's multiprocessor. Called once by every block.
  DEVICE void sign() const {
    if (done_by && threadIdx.x == 0) put_word(&done_by[blockIdx.x], launch << 16 | multiprocessor());
  }
  // Multiprocessor of a block, or NOWHERE if the block has not started.
  DEVICE uint32_t place_of(uint32_t block) const {
    const uint64_t word = get_word(&done_by[block]);
    return word >> 16 == launch ? uint32_t(word & 0xffff) : NOWHERE;
  }
};

DEVICE uint32_t nonce_word(const Chunk& chunk, int word) {
  return reinterpret_cast<const uint32_t*>(chunk.nonce)[word];
}
DEVICE uint32_t nonce_end(const Chunk& chunk) { return reinterpret_cast<const uint16_t*>(chunk.nonce)[4]; }

// Counter of the chunk's first block: nonce || BE48(256 * index). Its last byte is 0, and counting
// through the chunk's 256 blocks changes only that byte.
DEVICE uint4 first_counter(const Chunk& chunk) {
  uint32_t number = swap_bytes(uint32_t(chunk.index << 8));
  uint32_t top = swap_bytes(uint32_t(chunk.index >> 24)) & 0xffff0000u;
  return make_uint4(nonce_word(chunk, 0), nonce_word(chunk, 1), nonce_end(chunk) | top, number);
}

// Word `at` (0 to 7) of the header in a tag's input: nonce, BE64 index, BE64 epoch, BE32 length. Word 7
// has only its lower half set; the upper half belongs to what follows the header.
DEVICE uint32_t header_word(const Chunk& chunk, uint32_t at) {
  uint32_t index_high = swap_bytes(uint32_t(chunk.index >> 32)), index_low = swap_bytes(uint32_t(chunk.index));
  uint32_t epoch_high = swap_bytes(uint32_t(chunk.epoch >> 32)), epoch_low = swap_bytes(uint32_t(chunk.epoch));
  uint32_t length = swap_bytes(chunk.length);
  switch (at) {
    case 0:
      return nonce_word(chunk, 0);
    case 1:
      return nonce_word(chunk, 1);
    case 2:
      return nonce_end(chunk) | index_high << 16;
    case 3:
      return index_high >> 16 | index_low << 16;
    case 4:
      return index_low >> 16 | epoch_high << 16;
    case 5:
      return epoch_high >> 16 | epoch_low << 16;
    case 6:
      return epoch_low >> 16 | length << 16;
    default:
      return length >> 16;
  }
}
constexpr uint32_t HEADER_BYTES = 30;

// Returns `block` with its bytes from `length` on zeroed (length 0 to 16).
DEVICE uint4 cut(uint4 block, uint32_t length) {
  auto word = [length](uint32_t value, uint32_t start) -> uint32_t {
    if (length >= start + 4) return value;
    return length <= start ? 0 : value & ((1u << 8 * (length - start)) - 1);
  };
  return make_uint4(word(block.x, 0), word(block.y, 4), word(block.z, 8), word(block.w, 12));
}
