// Runs the experiments' kernels on the CPU. Entry points named `*_to_constant` replace the host's writes
// to constant memory by copying a buffer there.
#include "aes.cu"
#undef KERNEL
#undef VARIANT
#include "keccak.cu"
#undef KERNEL
#undef PARAMETERS
#include "md6.cu"
#undef PARAMETERS
#undef SHARED
#include "kuznyechik.cu"
#include "kuznyechik_constant.cu"
#undef KERNEL
#undef BY_LOOPS
#include "opencl_on_cpu.h"
#include "cpu_runner.h"

static void aes_keys_to_constant(const uint8_t* from) { memcpy(AES_EXPERIMENT_KEYS, from, sizeof AES_EXPERIMENT_KEYS); }
static void kuznyechik_to_constant() {
  memcpy(KUZNYECHIK_TABLES_CONSTANT, KUZNYECHIK_BY_TABLE, sizeof KUZNYECHIK_TABLES_CONSTANT);
  memcpy(KUZNYECHIK_PI_CONSTANT, KUZNYECHIK_PI_WORDS, sizeof KUZNYECHIK_PI_CONSTANT);
}
static void aes_table(AesExperimentTables* to) { *to = AES_EXPERIMENT_TABLES; }
static void kuznyechik_table(uint4* to) { memcpy(to, KUZNYECHIK_BY_TABLE, sizeof KUZNYECHIK_BY_TABLE); }

#define MODES(name) ENTRY(name##_ctr), ENTRY(name##_encrypt), ENTRY(name##_decrypt)
#define ENCRYPTIONS(name) ENTRY(name##_1), ENTRY(name##_2), ENTRY(name##_4), ENTRY(name##_halves)
#define DECRYPTIONS(name) ENTRY(name##_pi_global), ENTRY(name##_pi_constant), ENTRY(name##_pi_shared)
const std::map<std::string, Kernel> KERNELS = {
    ENTRY(keccak_arrays),
    ENTRY(keccak_arrays_shared),
    ENTRY(keccak_loop),
    ENTRY(keccak_two),
    ENTRY(keccak_unrolled),
    ENTRY(keccak_block),
    ENTRY(keccak_warp_shuffle),
    ENTRY(keccak_warp_shared),
    ENTRY(keccak_five),
    ENTRY(opencl::keccak_arrays),
    ENTRY(opencl::keccak_arrays_local),
    ENTRY(opencl::keccak_loop),
    ENTRY(opencl::keccak_block),
    ENTRY(k12_leaves),
    ENTRY(k12_leaves_warp),
    ENTRY(md6_alone_64),
    ENTRY(md6_shared_64),
    ENTRY(md6_shared_128),
    ENTRY(md6_shared_192),
    ENTRY(md6_shared_256),
    ENTRY(md6_pack),
    ENTRY(md6_rounds),
    ENTRY(md6_rewrite),
    MODES(aes_global),
    MODES(aes_constant),
    MODES(aes_texture),
    MODES(aes_shared),
    MODES(aes_spread),
    MODES(aes_spread_keys_global),
    MODES(aes_spread_keys_constant),
    MODES(aes_spread_keys_registers),
    MODES(aes_constant_4),
    MODES(aes_constant_16),
    MODES(aes_shared_4),
    MODES(aes_shared_16),
    MODES(aes_spread_4),
    MODES(aes_spread_16),
    MODES(aes_constant_rows),
    MODES(aes_shared_rows),
    MODES(aes_constant_rows_4),
    MODES(aes_shared_rows_4),
    MODES(aes_shared_rows_staged_4),
    MODES(aes_shared_staged),
    MODES(aes_constant_rows_state),
    MODES(aes_shared_rows_state),
    MODES(aes_bits),
    ENTRY(kuznyechik_tables),
    ENCRYPTIONS(kuznyechik_global),
    ENCRYPTIONS(kuznyechik_texture),
    ENCRYPTIONS(kuznyechik_shared),
    ENCRYPTIONS(kuznyechik_spread),
    ENCRYPTIONS(kuznyechik_constant),
    DECRYPTIONS(kuznyechik_global),
    DECRYPTIONS(kuznyechik_spread),
    ENTRY(aes_keys_to_constant),
    ENTRY(aes_table),
    ENTRY(kuznyechik_to_constant),
    ENTRY(kuznyechik_table),
};
