// Experiments with Kuznyechik in ECB mode. After A. Borisov and E. Myasnikov's comparison on a GeForce GTX 850M (2019).
//
// All take the same parameters. keys: ten round keys in the order of use; for decryption the inverse of L of K_10
// to K_2, then K_1. `blocks` is below 2^31; `in` and `out`, aligned to 16 bytes, are the same place or do not
// overlap. `texture`: KUZNYECHIK_BY_TABLE as 128-bit elements. Any grid of one dimension, multiples of 32 threads up to
// 1024. Dynamic shared memory: 256 bytes for the round keys, 1 KiB more for decryption, 64 KiB more for
// tables there. `kuznyechik_tables` runs once after the module was loaded.
#include "kuznyechik_variants.cuh"

// The substitution in constant memory, KUZNYECHIK_PI_WORDS once more; the host copies it there.
extern "C" __constant__ uint32_t KUZNYECHIK_PI_CONSTANT[256];
__constant__ uint32_t KUZNYECHIK_PI_CONSTANT[256];

// Fills the tables in the module's memory. 8192 threads in all, up to 256 a block; no dynamic shared memory.
KERNEL(256) kuznyechik_tables() { kuznyechik_fill_both(blockIdx.x * blockDim.x + threadIdx.x); }

#define PI_CONSTANT Constants{nullptr, KUZNYECHIK_PI_CONSTANT}
#define ENCRYPT_BY(name, place)                                                        \
  VARIANT(kuznyechik_##name##_1, PI_CONSTANT, place, GLOBAL, 1, IN_ORDER, FORWARD)     \
  VARIANT(kuznyechik_##name##_2, PI_CONSTANT, place, GLOBAL, 2, IN_ORDER, FORWARD)     \
  VARIANT(kuznyechik_##name##_4, PI_CONSTANT, place, GLOBAL, 4, IN_ORDER, FORWARD)     \
  VARIANT(kuznyechik_##name##_halves, PI_CONSTANT, place, GLOBAL, 1, EVEN_ODD, FORWARD)
ENCRYPT_BY(global, GLOBAL)
ENCRYPT_BY(texture, TEXTURE)
ENCRYPT_BY(shared, SHARED)
ENCRYPT_BY(spread, SPREAD)

#define DECRYPT_BY(name, place)                                                                  \
  VARIANT(kuznyechik_##name##_pi_global, PI_CONSTANT, place, GLOBAL, 1, IN_ORDER, BACKWARD)     \
  VARIANT(kuznyechik_##name##_pi_constant, PI_CONSTANT, place, CONSTANT, 1, IN_ORDER, BACKWARD) \
  VARIANT(kuznyechik_##name##_pi_shared, PI_CONSTANT, place, SHARED, 1, IN_ORDER, BACKWARD)
DECRYPT_BY(global, GLOBAL)
DECRYPT_BY(spread, SPREAD)
