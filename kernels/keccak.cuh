// Keccak-p[1600] (FIPS 202, section 3): the last ROUNDS of 24 rounds, with one thread or 25 per state.
#pragma once
#include "platform.cuh"

// Rounds per loop iteration of the one-thread permutation. On Hopper, 2 was fastest: 6 is as fast in
// long batches, and 24 no longer fit the instruction cache.
constexpr int KECCAK_UNROLL = 2;

extern "C" __constant__ const uint64_t KECCAK_CONSTANTS[24];
__constant__ const uint64_t KECCAK_CONSTANTS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};

// `amount` must be below 64.
DEVICE uint64_t rotate_left(uint64_t x, uint32_t amount) {
  uint32_t low = uint32_t(x), high = uint32_t(x >> 32);
  if (amount & 32) {
    uint32_t swap = low;
    low = high, high = swap;
  }
  return uint64_t(__funnelshift_l(low, high, amount)) << 32 | __funnelshift_l(high, low, amount);
}

// Rotation offset of rho for lane x + 5 * y.
DEVICE constexpr uint32_t keccak_offset(uint32_t lane) {
  constexpr uint8_t OFFSETS[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                                   25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};
  return OFFSETS[lane];
}

DEVICE void keccak_round(uint64_t (&a)[25], uint64_t constant) {
  uint64_t parity[5], b[25];
#pragma unroll
  for (int x = 0; x < 5; x++) parity[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
#pragma unroll
  for (int x = 0; x < 5; x++) {
    uint64_t right = rotate_left(parity[(x + 1) % 5], 1);
#pragma unroll
    for (int y = 0; y < 5; y++) {
      uint64_t shifted = a[x + 5 * y] ^ parity[(x + 4) % 5] ^ right;
      b[y + 5 * ((2 * x + 3 * y) % 5)] = rotate_left(shifted, keccak_offset(x + 5 * y));
    }
  }
#pragma unroll
  for (int y = 0; y < 25; y += 5) {
#pragma unroll
    for (int x = 0; x < 5; x++) a[x + y] = b[x + y] ^ (~b[(x + 1) % 5 + y] & b[(x + 2) % 5 + y]);
  }
  a[0] ^= constant;
}

// One thread per state. UNROLL divides 12 or is 24.
template <int ROUNDS, int UNROLL = KECCAK_UNROLL>
DEVICE void keccak_permute(uint64_t (&a)[25]) {
  constexpr int STEP = UNROLL < ROUNDS ? UNROLL : ROUNDS;
#pragma unroll 1
  for (int round = 24 - ROUNDS; round < 24; round += STEP) {
#pragma unroll
    for (int i = 0; i < STEP; i++) keccak_round(a, KECCAK_CONSTANTS[round + i]);
  }
}

// How the 25 threads of a state read each other's lanes: by shuffles or through shared memory. Every
// thread shows a value and may then read those of the others, until it shows the next one.
struct ByShuffle {
  uint64_t value = 0;
  DEVICE explicit ByShuffle(uint8_t*) {}
  DEVICE void show(uint64_t shown) { value = shown; }
  DEVICE uint64_t of(uint32_t lane) const { return __shfl_sync(ALL_LANES, value, lane); }
};
struct ByShared {
  static constexpr uint32_t SHARED_BYTES_PER_WARP = 256;
  uint64_t* slots;
  DEVICE explicit ByShared(uint8_t* shared)
      : slots(reinterpret_cast<uint64_t*>(shared + threadIdx.x / WARP * SHARED_BYTES_PER_WARP)) {}
  DEVICE void show(uint64_t shown) {
    __syncwarp();
    slots[lane_id()] = shown;
    __syncwarp();
  }
  DEVICE uint64_t of(uint32_t lane) const { return slots[lane]; }
};

// One warp per state: thread x + 5 * y of the warp holds that lane of the state, and the last seven
// threads hold nothing useful. All 32 must take part. Latency per round matters most: there are three
// dependent exchanges, and a single state's rounds are all unrolled, so that the constants are available
// in time.
template <int ROUNDS, class Exchange>
struct KeccakWide {
  Exchange exchange;
  uint32_t down1, down2, down3, down4, left, right, offset, from0, from1, from2;
  uint64_t origin;  // all ones in lane 0, which takes the round constants; otherwise zero

  DEVICE explicit KeccakWide(Exchange exchange) : exchange(exchange) {
    uint32_t lane = lane_id() < 25 ? lane_id() : 0, x = lane % 5, y = lane / 5;
    auto at = [](uint32_t x, uint32_t y) -> uint32_t { return x % 5 + 5 * (y % 5); };
    // Source lane of pi for lane (x, y).
    auto source = [](uint32_t x, uint32_t y) -> uint32_t { return (x % 5 + 3 * y) % 5 + 5 * (x % 5); };
    down1 = at(x, y + 1), down2 = at(x, y + 2), down3 = at(x, y + 3), down4 = at(x, y + 4);
    left = at(x + 4, y), right = at(x + 1, y);
    from0 = source(x, y), from1 = source(x + 1, y), from2 = source(x + 2, y);
    origin = lane_id() == 0 ? ~0ull : 0;
    offset = 0;
#pragma unroll
    for (uint32_t i = 0; i < 25; i++) offset = lane == i ? keccak_offset(i) : offset;
  }

  DEVICE void permute(uint64_t& a) {
    uint64_t one[1] = {a};
    permute(one);
    a = one[0];
  }

  // Several states, whose exchanges are independent of each other.
  template <int STATES>
  DEVICE void permute(uint64_t (&a)[STATES]) {
    [[maybe_unused]] constexpr int UNROLL = STATES == 1 ? ROUNDS : 2;
#pragma unroll UNROLL
    for (int round = 24 - ROUNDS; round < 24; round++) {
      uint64_t column[STATES], turned[STATES];
#pragma unroll
      for (int i = 0; i < STATES; i++) {
        exchange.show(a[i]);
        uint64_t a1 = exchange.of(down1), a2 = exchange.of(down2), a3 = exchange.of(down3), a4 = exchange.of(down4);
        column[i] = a[i] ^ a1 ^ a2 ^ a3 ^ a4;
      }
#pragma unroll
      for (int i = 0; i < STATES; i++) {
        exchange.show(column[i]);
        uint64_t right_parity = exchange.of(right), left_parity = exchange.of(left);
        turned[i] = rotate_left(a[i] ^ left_parity ^ rotate_left(right_parity, 1), offset);
      }
#pragma unroll
      for (int i = 0; i < STATES; i++) {
        exchange.show(turned[i]);
        uint64_t b0 = exchange.of(from0) ^ (KECCAK_CONSTANTS[round] & origin);
        uint64_t b1 = exchange.of(from1), b2 = exchange.of(from2);
        a[i] = b0 ^ (~b1 & b2);
      }
    }
  }
};
