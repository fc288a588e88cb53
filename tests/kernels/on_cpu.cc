// Runs the filesystem and hashing kernels on the CPU.
#include "warpcrypt.cu"
#include "hash.cu"
#include "cpu_runner.h"

#define SEAL_OPEN_ENTRIES(name)                                                                                      \
  ENTRY(seal_##name), ENTRY(open_##name), ENTRY(seal_##name##_wide), ENTRY(open_##name##_wide), ENTRY(check_##name), \
      ENTRY(seal_##name##_checked), ENTRY(open_##name##_checked)
const std::map<std::string, Kernel> KERNELS = {
    ENTRY(aes_ctr),
    ENTRY(aes_ctr_1),
    ENTRY(aes_ctr_2),
    ENTRY(aes_ctr_constant),
    ENTRY(aes_ctr_shared),
    ENTRY(aes_ecb_encrypt),
    ENTRY(aes_ecb_decrypt),
    ENTRY(kuznyechik_tables),
    ENTRY(kuznyechik_ctr),
    ENTRY(kuznyechik_ctr_1),
    ENTRY(kuznyechik_ctr_4),
    ENTRY(kuznyechik_ctr_global),
    ENTRY(kuznyechik_ecb_encrypt),
    ENTRY(kuznyechik_ecb_decrypt),
    ENTRY(kuznyechik_ecb_encrypt_global),
    ENTRY(kuznyechik_ecb_decrypt_global),
    ENTRY(keccak_f1600_unrolled),
    ENTRY(keccak_f1600_loop),
    ENTRY(keccak_f1600_shuffle),
    ENTRY(keccak_f1600_shared),
    ENTRY(kmac128_tags),
    ENTRY(kmac128_tags_wide),
    ENTRY(kmac256_tags),
    ENTRY(kmac256_tags_wide),
    ENTRY(turboshake128x4_tags),
    ENTRY(turboshake128x4_tags_wide),
    SEAL_OPEN_ENTRIES(aes_kmac128),
    SEAL_OPEN_ENTRIES(aes_kmac256),
    SEAL_OPEN_ENTRIES(aes_turboshake128x4),
    SEAL_OPEN_ENTRIES(kuznyechik_kmac128),
    SEAL_OPEN_ENTRIES(kuznyechik_kmac256),
    SEAL_OPEN_ENTRIES(kuznyechik_turboshake128x4),
    ENTRY(md6_nodes),
    ENTRY(md6_nodes_shared),
};
