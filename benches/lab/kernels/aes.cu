// Experiments with AES: threads that share a block, where the tables lie, where the round keys lie, and bit
// slices instead of tables. After Ma Mengqi's comparison on a GeForce 9800 GT and the project of Waloschek and others
// on a GeForce 8800.
//
// All take the same parameters. ECB: `counter` is not used. CTR: `counter` is one block, a 128-bit big-endian
// number whose last 64 bits do not wrap within the data. `blocks` is below 2^31; `in` and `out`, aligned to 16
// bytes, are the same place or do not overlap. keys: rounds + 1 round keys in the order of use; for decryption those
// of the equivalent inverse cipher (FIPS 197, section 5.3.5). `texture`: AES_EXPERIMENT_TABLES as 32-bit elements. Any
// grid of one dimension, up to 1024 threads a block unless it says less; where four threads share a block the grid is
// such that its threads are below 2^32. Dynamic shared memory: 256 bytes for the round keys; for tables there 1 KiB
// each, of which there are one or four, and 1 KiB more for decryption; 65 KiB for 32 copies; for what is staged 16
// bytes for each block of data that the threads hold; for a state there 32 bytes a thread; for bit slices 7680 in all.
#include "aes_bits.cuh"
#include "aes_variants.cuh"

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

#define VARIANT(name, threads, place, tables, keys_at, share, text, mode)                                       \
  KERNEL(threads)                                                                                               \
  name(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out, uint32_t blocks,  \
       uint64_t texture) {                                                                                      \
    aes_experiment<place, tables, keys_at, share, text, mode>(keys, rounds, counter, in, out, blocks, texture); \
  }
#define ALL_MODES(name, threads, place, tables, keys_at, share, text)                \
  VARIANT(name##_ctr, threads, place, tables, keys_at, share, text, CTR)             \
  VARIANT(name##_encrypt, threads, place, tables, keys_at, share, text, ECB_ENCRYPT) \
  VARIANT(name##_decrypt, threads, place, tables, keys_at, share, text, ECB_DECRYPT)

// By the tables' place; one thread a block, round keys in shared memory.
ALL_MODES(aes_global, 1024, GLOBAL, 1, KEYS_SHARED, 1, TEXT_DIRECT)
ALL_MODES(aes_constant, 1024, CONSTANT, 1, KEYS_SHARED, 1, TEXT_DIRECT)
ALL_MODES(aes_texture, 1024, TEXTURE, 1, KEYS_SHARED, 1, TEXT_DIRECT)
ALL_MODES(aes_shared, 1024, SHARED, 1, KEYS_SHARED, 1, TEXT_DIRECT)
ALL_MODES(aes_spread, 1024, SPREAD, 1, KEYS_SHARED, 1, TEXT_DIRECT)
// The same with a table for each row.
ALL_MODES(aes_constant_rows, 1024, CONSTANT, 4, KEYS_SHARED, 1, TEXT_DIRECT)
ALL_MODES(aes_shared_rows, 1024, SHARED, 4, KEYS_SHARED, 1, TEXT_DIRECT)
// By the round keys' place. In registers: up to 512 threads.
ALL_MODES(aes_spread_keys_global, 1024, SPREAD, 1, KEYS_GLOBAL, 1, TEXT_DIRECT)
ALL_MODES(aes_spread_keys_constant, 1024, SPREAD, 1, KEYS_CONSTANT, 1, TEXT_DIRECT)
ALL_MODES(aes_spread_keys_registers, 512, SPREAD, 1, KEYS_REGISTERS, 1, TEXT_DIRECT)
// By the threads that share a block: a column each, or a byte each.
ALL_MODES(aes_constant_4, 1024, CONSTANT, 1, KEYS_SHARED, 4, TEXT_DIRECT)
ALL_MODES(aes_constant_16, 1024, CONSTANT, 1, KEYS_SHARED, 16, TEXT_DIRECT)
ALL_MODES(aes_shared_4, 1024, SHARED, 1, KEYS_SHARED, 4, TEXT_DIRECT)
ALL_MODES(aes_shared_16, 1024, SHARED, 1, KEYS_SHARED, 16, TEXT_DIRECT)
ALL_MODES(aes_spread_4, 1024, SPREAD, 1, KEYS_SHARED, 4, TEXT_DIRECT)
ALL_MODES(aes_spread_16, 1024, SPREAD, 1, KEYS_SHARED, 16, TEXT_DIRECT)
// The publication of 2012: four tables, four threads a block; at first tables in constant memory, then tables, keys and
// data in shared memory.
ALL_MODES(aes_constant_rows_4, 1024, CONSTANT, 4, KEYS_SHARED, 4, TEXT_DIRECT)
ALL_MODES(aes_shared_rows_4, 1024, SHARED, 4, KEYS_SHARED, 4, TEXT_DIRECT)
ALL_MODES(aes_shared_rows_staged_4, 1024, SHARED, 4, KEYS_SHARED, 4, TEXT_STAGED)
ALL_MODES(aes_shared_staged, 1024, SHARED, 1, KEYS_SHARED, 1, TEXT_STAGED)
// The project of 2010: tables in constant memory, the state in shared memory; and both there.
ALL_MODES(aes_constant_rows_state, 1024, CONSTANT, 4, KEYS_SHARED, 1, TEXT_STATE)
ALL_MODES(aes_shared_rows_state, 1024, SHARED, 4, KEYS_SHARED, 1, TEXT_STATE)

// Bit slices: 32 blocks a thread, 1024 a warp, no tables; whole multiples of 1024 blocks and a counter that is a
// multiple of 1024. Threads are a multiple of 32, up to 256.
#define BITS(name, mode)                                                                                       \
  KERNEL(256)                                                                                                  \
  name(const uint4* keys, uint32_t rounds, const uint4* counter, const uint4* in, uint4* out, uint32_t blocks, \
       uint64_t) {                                                                                             \
    aes_bits<mode>(keys, rounds, counter, in, out, blocks);                                                    \
  }
BITS(aes_bits_ctr, CTR)
BITS(aes_bits_encrypt, ECB_ENCRYPT)
BITS(aes_bits_decrypt, ECB_DECRYPT)
