// Experiments with AES: threads that share a block, where the tables lie, where the round keys lie, and bit
// slices instead of tables. After Ma Mengqi's comparison on a GeForce 9800 GT and the project of Waloschek and others
// on a GeForce 8800.
//
// All take the same parameters. ECB: `counter` is not used. CTR: `counter` is one block, a 128-bit big-endian
// number whose last 64 bits do not wrap within the data. `blocks` is below 2^31; `in` and `out`, aligned to 16
// bytes, are the same place or do not overlap. keys: rounds + 1 round keys in the order of use; for decryption those
// of the equivalent inverse cipher (FIPS 197, section 5.3.5). `texture`: AES_EXPERIMENT_TABLES as 32-bit elements. Any
// grid of one dimension, up to 1024 threads a block unless it says less. Dynamic shared memory: 256 bytes for the round
// keys; for the tables 2 KiB more in one copy, 32 KiB more for each of the two in 32 copies (decryption has two); for
// bit slices 7680 in all.
#include "aes_bits.cuh"
#include "aes_variants.cuh"

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

#define VARIANT(name, threads, place, keys_at, share, mode)                                                     \
  KERNEL(threads)                                                                                               \
  name(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out, uint32_t blocks,  \
       uint64_t texture) {                                                                                      \
    aes_experiment<place, keys_at, share, mode>(keys, rounds, counter, in, out, blocks, texture);               \
  }
#define ALL_MODES(name, threads, place, keys_at, share)         \
  VARIANT(name##_ctr, threads, place, keys_at, share, CTR)      \
  VARIANT(name##_encrypt, threads, place, keys_at, share, ECB_ENCRYPT) \
  VARIANT(name##_decrypt, threads, place, keys_at, share, ECB_DECRYPT)

// By the tables' place; one thread a block, round keys in shared memory.
ALL_MODES(aes_global, 1024, GLOBAL, KEYS_SHARED, 1)
ALL_MODES(aes_constant, 1024, CONSTANT, KEYS_SHARED, 1)
ALL_MODES(aes_texture, 1024, TEXTURE, KEYS_SHARED, 1)
ALL_MODES(aes_shared, 1024, SHARED, KEYS_SHARED, 1)
ALL_MODES(aes_spread, 1024, SPREAD, KEYS_SHARED, 1)
// By the round keys' place. In registers: up to 512 threads.
ALL_MODES(aes_spread_keys_global, 1024, SPREAD, KEYS_GLOBAL, 1)
ALL_MODES(aes_spread_keys_constant, 1024, SPREAD, KEYS_CONSTANT, 1)
ALL_MODES(aes_spread_keys_registers, 512, SPREAD, KEYS_REGISTERS, 1)
// By the threads that share a block: a column each, or a byte each.
ALL_MODES(aes_constant_4, 1024, CONSTANT, KEYS_SHARED, 4)
ALL_MODES(aes_constant_16, 1024, CONSTANT, KEYS_SHARED, 16)
ALL_MODES(aes_shared_4, 1024, SHARED, KEYS_SHARED, 4)
ALL_MODES(aes_shared_16, 1024, SHARED, KEYS_SHARED, 16)
ALL_MODES(aes_spread_4, 1024, SPREAD, KEYS_SHARED, 4)
ALL_MODES(aes_spread_16, 1024, SPREAD, KEYS_SHARED, 16)

// Bit slices: 32 blocks a thread, 1024 a warp, no tables; whole multiples of 1024 blocks and a counter that is a
// multiple of 1024. Threads are a multiple of 32, up to 256.
#define BITS(name, mode)                                                                                            \
  KERNEL(256) name(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out,           \
                   uint32_t blocks, uint64_t) {                                                                     \
    aes_bits<mode>(keys, rounds, counter, in, out, blocks);                                                         \
  }
BITS(aes_bits_ctr, CTR)
BITS(aes_bits_encrypt, ECB_ENCRYPT)
BITS(aes_bits_decrypt, ECB_DECRYPT)
