// MD6 (Rivest et al., 2008): compression of tree nodes, with one thread or 16 per node. WORDS is the
// size of a node in words of 8 bytes: 64 in MD6 itself, other multiples of 16 in experiments.
#pragma once
#include "platform.cuh"

constexpr uint32_t MD6_ROUND = 16;   // words computed per round, and words of a node's value
constexpr uint32_t MD6_KEY = 15;     // offset of the key in a node's input, after the constant
constexpr uint32_t MD6_PREFIX = 25;  // offset of a node's data: after constant, key, index and control word
constexpr uint64_t MD6_FIRST = 0x0123456789abcdef, MD6_MASK = 0x7311c2812425cfa0;

extern "C" __constant__ const uint64_t MD6_Q[MD6_KEY];
__constant__ const uint64_t MD6_Q[MD6_KEY] = {
    0x7311c2812425cfa0, 0x6432286434aac8e7, 0xb60450e9ef68b7c1, 0xe8fb23908d9f06f1, 0xdd2e76cba691e5bf,
    0x0cd0d63b2c30bc41, 0x1f8ccf6823058f8a, 0x54e5ed5b88e3775d, 0x4ad12aae0a6d6031, 0x3e7f16bb88222e0d,
    0x8af8671d3fb50c2c, 0x995ad1178bd25c31, 0xc878c1dd04c4b633, 0x3b72066c7a1552ac, 0x0d6f3522631effcb};

// Parameters shared by all nodes of a hash: the key, and the control word without the root flag and the
// padding.
struct Md6Hash {
  uint64_t key[8];
  uint64_t control;
};
static_assert(sizeof(Md6Hash) == 72, "the host writes these");

// Consecutive nodes of one level of one tree.
struct Md6Layer {
  uint64_t data;   // offset of their data in bytes, a multiple of 16
  uint64_t bits;   // length of their data in bits
  uint64_t first;  // index of the first node in its level
  uint32_t start;  // number of nodes in the layers before this one
  uint32_t value;  // position of the first node's value, counted in values
  uint32_t whole;  // 1 if the layer is its whole level: a single node is then the root
  uint32_t unused;
};
static_assert(sizeof(Md6Layer) == 40, "the host writes these");

// A node to compress.
struct Md6Node {
  const uint8_t* data;
  uint32_t bits;  // bits of data present; the rest count as zeros
  uint64_t id, control;
  uint8_t* value;
};

// One level of trees, as passed to the entry points.
struct Md6Level {
  const Md6Hash* hash;
  const Md6Layer* layers;
  uint32_t count, level;
  const uint8_t* data;
  uint8_t* values;
};

template <uint32_t WORDS>
DEVICE Md6Node md6_node(const Md6Level& level, uint32_t number) {
  // Find the last layer that starts at or before this node.
  uint32_t low = 0, high = level.count;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    bool before = level.layers[middle].start <= number;
    low = before ? middle : low, high = before ? high : middle;
  }
  const Md6Layer layer = level.layers[low];
  uint32_t index = number - layer.start;
  constexpr uint64_t SIZE = WORDS * 64;
  uint64_t before = index * SIZE, left = layer.bits > before ? layer.bits - before : 0;
  uint32_t bits = uint32_t(left < SIZE ? left : SIZE);
  bool root = layer.whole && layer.bits <= SIZE;
  Md6Node node;
  node.data = level.data + layer.data + uint64_t(index) * (WORDS * 8);
  node.bits = bits;
  node.id = uint64_t(level.level) << 56 | (layer.first + index);
  node.control = level.hash->control | uint64_t(root) << 36 | (SIZE - bits) << 20;
  node.value = level.values + (uint64_t(layer.value) + index) * (MD6_ROUND * 8);
  return node;
}

// Converts a word to memory byte order, or back.
DEVICE uint64_t md6_swap(uint32_t low, uint32_t high) { return uint64_t(swap_bytes(low)) << 32 | swap_bytes(high); }
DEVICE uint64_t md6_swap(uint64_t word) { return md6_swap(uint32_t(word), uint32_t(word >> 32)); }

// Keeps the first `bits` bits of a word and zeroes the rest: keeps none if `bits` <= 0, all if `bits` >=
// 64.
DEVICE uint64_t md6_keep(uint64_t word, int32_t bits) {
  return bits <= 0 ? 0 : bits >= 64 ? word : word & ~uint64_t(0) << (64 - bits);
}

// Shift amounts of each step of a round.
DEVICE constexpr uint32_t md6_right(uint32_t step) {
  constexpr uint8_t SHIFTS[MD6_ROUND] = {10, 5, 13, 10, 11, 12, 2, 7, 14, 15, 7, 13, 11, 7, 6, 12};
  return SHIFTS[step];
}
DEVICE constexpr uint32_t md6_left(uint32_t step) {
  constexpr uint8_t SHIFTS[MD6_ROUND] = {11, 24, 9, 16, 15, 9, 27, 15, 6, 2, 29, 8, 15, 5, 31, 9};
  return SHIFTS[step];
}

DEVICE uint64_t md6_mix(uint64_t x, uint32_t right, uint32_t left) {
  x ^= x >> right;
  return x ^ x << left;
}

// The round constant that follows `constant`.
DEVICE uint64_t md6_next(uint64_t constant) { return (constant << 1 | constant >> 63) ^ (constant & MD6_MASK); }

// One thread per node of 64 words. The shift register is a ring of six rounds in the thread's registers.
struct Md6Alone {
  static constexpr uint32_t WORDS = 64, N = MD6_PREFIX + WORDS, RING = 96;
  uint64_t a[RING];

  // Ring slot of word i. Rounds begin at multiples of 16.
  DEVICE static constexpr uint32_t slot(uint32_t i) { return (i + RING - N) % RING; }

  DEVICE void load(const Md6Hash& hash, const Md6Node& node) {
#pragma unroll
    for (uint32_t i = 0; i < MD6_KEY; i++) a[slot(i)] = MD6_Q[i];
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) a[slot(MD6_KEY + i)] = hash.key[i];
    a[slot(23)] = node.id;
    a[slot(24)] = node.control;
    const uint4* data = reinterpret_cast<const uint4*>(node.data);
#pragma unroll
    for (uint32_t i = 0; i < WORDS; i += 2) {
      uint4 two = make_uint4(0, 0, 0, 0);
      if (64 * i < node.bits) two = data[i / 2];
      a[slot(MD6_PREFIX + i)] = md6_swap(two.x, two.y);
      a[slot(MD6_PREFIX + i + 1)] = md6_swap(two.z, two.w);
    }
    if (node.bits == 64 * WORDS) return;
#pragma unroll
    for (uint32_t i = 0; i < WORDS; i++) {
      uint64_t& word = a[slot(MD6_PREFIX + i)];
      word = md6_keep(word, int32_t(node.bits - 64 * i));
    }
  }

  template <uint32_t PHASE>
  DEVICE void round(uint64_t constant) {
    constexpr uint32_t AT = PHASE * MD6_ROUND + RING;
#pragma unroll
    for (uint32_t t = 0; t < MD6_ROUND; t++) {
      uint64_t x = constant ^ a[(AT + t - N) % RING] ^ a[(AT + t - 17) % RING];
      x ^= a[(AT + t - 18) % RING] & a[(AT + t - 21) % RING];
      x ^= a[(AT + t - 31) % RING] & a[(AT + t - 67) % RING];
      a[(AT + t) % RING] = md6_mix(x, md6_right(t), md6_left(t));
    }
  }

  // Stores the value if the round before PHASE was the last one.
  template <uint32_t PHASE>
  DEVICE void store(uint8_t* value) const {
    uint4* out = reinterpret_cast<uint4*>(value);
#pragma unroll
    for (uint32_t i = 0; i < MD6_ROUND; i += 2) {
      uint64_t even = md6_swap(a[(PHASE * MD6_ROUND + RING - MD6_ROUND + i) % RING]);
      uint64_t odd = md6_swap(a[(PHASE * MD6_ROUND + RING - MD6_ROUND + i + 1) % RING]);
      out[i / 2] = make_uint4(uint32_t(even), uint32_t(even >> 32), uint32_t(odd), uint32_t(odd >> 32));
    }
  }

  DEVICE void compress(const Md6Hash& hash, const Md6Node& node) {
    load(hash, node);
    uint64_t constant = MD6_FIRST;
    uint32_t left = uint32_t(hash.control >> 48);
#define MD6_PHASE(phase)                            \
  if (left-- == 0) return store<phase>(node.value); \
  round<phase>(constant);                           \
  constant = md6_next(constant)
#pragma unroll 1
    for (;;) {
      MD6_PHASE(0);
      MD6_PHASE(1);
      MD6_PHASE(2);
      MD6_PHASE(3);
      MD6_PHASE(4);
      MD6_PHASE(5);
    }
#undef MD6_PHASE
  }
};

// 16 threads per node, each of which computes one step of every round: the steps of a round do not
// depend on one another. The shift register is a ring in shared memory, long enough that no thread
// overwrites a word that another still reads. Every word is stored twice, RING words apart, so that a
// round's words are contiguous wherever the round begins.
template <uint32_t WORDS>
struct Md6Shared {
  static constexpr uint32_t N = MD6_PREFIX + WORDS;
  static constexpr uint32_t RING = (N + 2 * MD6_ROUND - 1) / MD6_ROUND * MD6_ROUND;
  static constexpr uint32_t BYTES = 2 * RING * 8;  // shared memory per node
  uint64_t* a;
  uint32_t step;

  DEVICE void put(uint32_t slot, uint64_t word) const { a[slot] = a[slot + RING] = word; }

  // Every thread of the warp must take part. Stores the value if `stores` is set.
  DEVICE void compress(const Md6Hash& hash, const Md6Node& node, bool stores) const {
    const uint64_t* data = reinterpret_cast<const uint64_t*>(node.data);
    constexpr uint32_t FIRST = RING - N;  // slot of word 0; rounds begin at multiples of 16
    __syncwarp();
#pragma unroll
    for (uint32_t i = step; i < MD6_PREFIX; i += MD6_ROUND) {
      uint64_t word = i < MD6_KEY ? MD6_Q[i] : i < 23 ? hash.key[i - MD6_KEY] : i == 23 ? node.id : node.control;
      put(FIRST + i, word);
    }
#pragma unroll
    for (uint32_t i = step; i < WORDS; i += MD6_ROUND) {
      uint64_t word = 64 * i < node.bits ? md6_swap(data[i]) : 0;
      put(FIRST + MD6_PREFIX + i, md6_keep(word, int32_t(node.bits - 64 * i)));
    }
    uint32_t right = 0, left = 0;
#pragma unroll
    for (uint32_t i = 0; i < MD6_ROUND; i++) {
      right = step == i ? md6_right(i) : right;
      left = step == i ? md6_left(i) : left;
    }
    uint64_t constant = MD6_FIRST;
    uint32_t at = 0;
#pragma unroll 1
    for (uint32_t round = uint32_t(hash.control >> 48); round > 0; round--) {
      __syncwarp();
      const uint64_t* w = a + at + RING + step;
      uint64_t x = constant ^ w[-int32_t(N)] ^ w[-17] ^ (w[-18] & w[-21]) ^ (w[-31] & w[-67]);
      put(at + step, md6_mix(x, right, left));
      at = at + MD6_ROUND == RING ? 0 : at + MD6_ROUND;
      constant = md6_next(constant);
    }
    __syncwarp();
    if (stores) reinterpret_cast<uint64_t*>(node.value)[step] = md6_swap(a[at + RING - MD6_ROUND + step]);
  }
};

// Compresses `nodes` nodes of a level, with one thread per node.
DEVICE void md6_alone(const Md6Level& level, uint32_t nodes) {
  Md6Alone alone;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += gridDim.x * blockDim.x)
    alone.compress(*level.hash, md6_node<Md6Alone::WORDS>(level, i));
}

// As `md6_alone`, with 16 threads per node. `shared` has Md6Shared::BYTES for each node of the block.
template <uint32_t WORDS>
DEVICE void md6_shared(const Md6Level& level, uint32_t nodes, uint8_t* shared) {
  uint32_t own = threadIdx.x / MD6_ROUND, in_block = blockDim.x / MD6_ROUND;
  uint64_t* ring = reinterpret_cast<uint64_t*>(shared) + own * (Md6Shared<WORDS>::BYTES / 8);
  Md6Shared<WORDS> group{ring, threadIdx.x % MD6_ROUND};
  for (uint32_t base = blockIdx.x * in_block; base < nodes; base += gridDim.x * in_block) {
    // Groups without a node repeat the last one, because barriers need whole warps.
    uint32_t i = base + own;
    group.compress(*level.hash, md6_node<WORDS>(level, i < nodes ? i : nodes - 1), i < nodes);
  }
}
