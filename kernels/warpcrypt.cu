// The entry points. Their common contract:
//
// - Geometry: any one-dimensional grid; a multiple of 32 threads per block, up to the stated launch
//   bound. The work is spread over all warps of the launch.
// - Counts of chunks and states: below 2^31.
// - Memory: device memory. Chunks, input, output and results of the wide kernels may instead be in
//   page-locked, mapped host memory.
// - Alignment: 16 bytes for every pointer. Lengths are in bytes unless stated in blocks. Where a length
//   is not a multiple of 16, the buffers reach to the next multiple. The rest of the output is written
//   with zeros, except by the wide kernels, which leave it alone.
// - Aliasing: input and output of a launch are identical or disjoint, and so are a chunk's source and
//   target. Nothing else overlaps, and chunks do not overlap each other.
// - Dynamic shared memory: TABLES = 68 KiB, unless another size is given. More than 48 KiB must be
//   allowed with cuFuncSetAttribute. A wide kernel takes DESK = 5104 bytes more for each warp of a
//   block.
// - `kuznyechik_tables` must run once after the module is loaded, before any other Kuznyechik kernel.
#include "check.cuh"
#include "seal.cuh"
#include "wide.cuh"

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

// AES-128, -192 or -256 with 10, 12 or 14 rounds. `keys` holds rounds + 1 round keys in order of use.
// CTR: `counter` is one block, a 128-bit big-endian number that wraps. Up to 1024 threads. The variants
// differ in the number of blocks that a thread processes at once: 4, or the number in the name.
#define AES_CTR(name, n)                                                                                            \
  KERNEL(1024, 1)                                                                                                   \
  name(const uint4* keys, uint32_t rounds, const uint4* counter, const uint8_t* in, uint8_t* out, uint64_t bytes) { \
    DYNAMIC_SHARED(shared);                                                                                         \
    const AesBanked<ENCRYPT> tables(shared);                                                                        \
    auto make = [&](uint4 c) { return AesStream<AesBanked<ENCRYPT>>(tables, keys, rounds, c); };                    \
    ctr<n>(make, __ldg(counter), in, out, bytes);                                                                   \
  }
AES_CTR(aes_ctr_1, 1)
AES_CTR(aes_ctr_2, 2)
AES_CTR(aes_ctr, 4)

// CTR with one copy of the tables in constant memory, two blocks per thread at a time. Up to 1024
// threads, no dynamic shared memory.
KERNEL(1024, 1)
aes_ctr_constant(const uint4* keys, uint32_t rounds, const uint4* counter, const uint8_t* in, uint8_t* out,
                 uint64_t bytes) {
  const AesPlain<ENCRYPT> tables{&AES_TABLES_CONSTANT};
  auto make = [&](uint4 c) { return AesStream<AesPlain<ENCRYPT>>(tables, keys, rounds, c); };
  ctr<2>(make, __ldg(counter), in, out, bytes);
}

// CTR with one copy of the tables in shared memory, so that lookups have bank conflicts, two blocks per
// thread at a time. Up to 1024 threads, 2 KiB of dynamic shared memory.
KERNEL(1024, 1)
aes_ctr_shared(const uint4* keys, uint32_t rounds, const uint4* counter, const uint8_t* in, uint8_t* out,
               uint64_t bytes) {
  DYNAMIC_SHARED(shared);
  const uint32_t* from = reinterpret_cast<const uint32_t*>(&AES_TABLES);
  for (uint32_t i = threadIdx.x; i < sizeof(AesTables) / 4; i += blockDim.x)
    reinterpret_cast<uint32_t*>(shared)[i] = __ldg(from + i);
  __syncthreads();
  const AesPlain<ENCRYPT> tables{reinterpret_cast<const AesTables*>(shared)};
  auto make = [&](uint4 c) { return AesStream<AesPlain<ENCRYPT>>(tables, keys, rounds, c); };
  ctr<2>(make, __ldg(counter), in, out, bytes);
}

// ECB. Decryption takes the round keys of the equivalent inverse cipher (FIPS 197, section 5.3.5). Up to
// 1024 threads.
KERNEL(1024, 1) aes_ecb_encrypt(const uint4* keys, uint32_t rounds, const uint4* in, uint4* out, uint64_t blocks) {
  DYNAMIC_SHARED(shared);
  const AesBanked<ENCRYPT> tables(shared);
  ecb<4>(AesEcb<ENCRYPT, AesBanked<ENCRYPT>>{tables, keys, rounds}, in, out, blocks);
}
KERNEL(1024, 1) aes_ecb_decrypt(const uint4* keys, uint32_t rounds, const uint4* in, uint4* out, uint64_t blocks) {
  DYNAMIC_SHARED(shared);
  const AesBanked<DECRYPT> tables(shared);
  ecb<4>(AesEcb<DECRYPT, AesBanked<DECRYPT>>{tables, keys, rounds}, in, out, blocks);
}

// Fills the Kuznyechik tables in the module's memory. 12288 threads in total, up to 256 per block; no
// dynamic shared memory.
KERNEL(256, 1) kuznyechik_tables() { kuznyechik_fill(blockIdx.x * blockDim.x + threadIdx.x); }

// Kuznyechik. `keys` holds ten round keys (kuznyechik.cuh). Up to 512 threads. Decryption from shared
// memory takes 96 KiB of it, and the variants with tables in global memory take none. A thread processes
// two blocks at once, or the number in the name, or one in kuznyechik_ctr_global.
#define KUZNYECHIK_CTR(name, placement, n)                                                         \
  KERNEL(512, 2)                                                                                   \
  name(const uint4* keys, const uint4* counter, const uint8_t* in, uint8_t* out, uint64_t bytes) { \
    DYNAMIC_SHARED(shared);                                                                        \
    const placement<ENCRYPT> tables(shared);                                                       \
    auto make = [&](uint4 c) { return KuznyechikStream<placement<ENCRYPT>>(tables, keys, c); };    \
    ctr<n>(make, __ldg(counter), in, out, bytes);                                                  \
  }
#define KUZNYECHIK_ECB(name, placement, direction)                                         \
  KERNEL(512, 2) name(const uint4* keys, const uint4* in, uint4* out, uint64_t blocks) {   \
    DYNAMIC_SHARED(shared);                                                                \
    const placement<direction> tables(shared);                                             \
    ecb<2>(KuznyechikEcb<direction, placement<direction>>{tables, keys}, in, out, blocks); \
  }
KUZNYECHIK_CTR(kuznyechik_ctr_1, KuznyechikShared, 1)
KUZNYECHIK_CTR(kuznyechik_ctr, KuznyechikShared, 2)
KUZNYECHIK_CTR(kuznyechik_ctr_4, KuznyechikShared, 4)
KUZNYECHIK_CTR(kuznyechik_ctr_global, KuznyechikGlobal, 1)
KUZNYECHIK_ECB(kuznyechik_ecb_encrypt, KuznyechikShared, ENCRYPT)
KUZNYECHIK_ECB(kuznyechik_ecb_decrypt, KuznyechikShared, DECRYPT)
KUZNYECHIK_ECB(kuznyechik_ecb_encrypt_global, KuznyechikGlobal, ENCRYPT)
KUZNYECHIK_ECB(kuznyechik_ecb_decrypt_global, KuznyechikGlobal, DECRYPT)

// Keccak-f[1600] of `count` states of 25 lanes each, in place; 8-byte alignment. One thread per state,
// up to 128 threads: a loop of single rounds, or all rounds unrolled. No dynamic shared memory.
#define KECCAK(name, unroll)                                                              \
  KERNEL(128, 4) name(uint64_t* states, uint32_t count) {                                 \
    uint32_t stride = gridDim.x * blockDim.x;                                             \
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {    \
      uint64_t a[25];                                                                     \
      _Pragma("unroll") for (int k = 0; k < 25; k++) a[k] = states[uint64_t(i) * 25 + k]; \
      keccak_permute<24, unroll>(a);                                                      \
      _Pragma("unroll") for (int k = 0; k < 25; k++) states[uint64_t(i) * 25 + k] = a[k]; \
    }                                                                                     \
  }
KECCAK(keccak_f1600_loop, 1)
KECCAK(keccak_f1600_unrolled, 24)

// Keccak-f[1600] with one warp per state, 25 of its threads holding a lane each. Up to 512 threads. The
// shuffle variant takes no dynamic shared memory, the other one 256 bytes per warp.
#define KECCAK_WIDE(name, exchange)                              \
  KERNEL(512, 1) name(uint64_t* states, uint32_t count) {        \
    DYNAMIC_SHARED(shared);                                      \
    KeccakWide<24, exchange> keccak{exchange(shared)};           \
    for (uint64_t i = warp_id(); i < count; i += warp_count()) { \
      uint64_t* lane = states + i * 25 + lane_id();              \
      uint64_t a = lane_id() < 25 ? *lane : 0;                   \
      keccak.permute(a);                                         \
      if (lane_id() < 25) *lane = a;                             \
    }                                                            \
  }
KECCAK_WIDE(keccak_f1600_shuffle, ByShuffle)
KECCAK_WIDE(keccak_f1600_shared, ByShared)

// Tags of the chunks found at their `source` in `in`; tags[i] belongs to chunks[i]. One or four threads
// per tag, up to 128 threads, no dynamic shared memory. Wide: one warp per tag, up to 256 threads, DESK
// bytes per warp.
#define TAGS(name, integrity)                                                                                  \
  KERNEL(128, 4)                                                                                               \
  name##_tags(const KeySlot* keys, const Chunk* chunks, uint32_t count, const uint8_t* in, uint4* tags) {      \
    tags_by_threads<integrity>(keys, chunks, count, in, tags);                                                 \
  }                                                                                                            \
  KERNEL(256, 2)                                                                                               \
  name##_tags_wide(const KeySlot* keys, const Chunk* chunks, uint32_t count, const uint8_t* in, uint4* tags) { \
    DYNAMIC_SHARED(desks);                                                                                     \
    tags_by_warps<integrity>(desks, keys, chunks, count, in, tags);                                            \
  }
TAGS(kmac128, Kmac128)
TAGS(kmac256, Kmac256)
TAGS(turboshake128x4, TurboShake128x4)

// Seal encrypts `count` chunks from `in` to `out` and computes their tags. Open computes the tags of the
// chunks in `in` and compares them with those in the descriptors. It produces one word per chunk: 1
// along with the plaintext, or 0 along with zeros. In place, a chunk that fails is lost. Wide: one warp
// per chunk. Up to 512 threads. `launch`: launch number, below 2^48 and unique among launches with the
// same `done_by`. Each block records its multiprocessor in `done_by`, which may be null.
static_assert(Desk<Kmac128>::BYTES == 5104, "DESK is part of the contract");
#define BATCH(made)                                                                                                 \
  const KeySlot *keys, const Chunk *chunks, uint32_t count, const uint8_t *in, uint8_t *out, made, uint64_t launch, \
      uint64_t *done_by
#define SEAL_OPEN(name, cipher, integrity)                                                                      \
  KERNEL(512, 1) seal_##name(BATCH(uint4* made)) {                                                              \
    DYNAMIC_SHARED(shared);                                                                                     \
    seal_by_threads<cipher, integrity>(shared, keys, chunks, count, in, out, made, {launch, done_by});          \
  }                                                                                                             \
  KERNEL(512, 1) open_##name(BATCH(uint32_t* made)) {                                                           \
    DYNAMIC_SHARED(shared);                                                                                     \
    open_by_threads<cipher, integrity>(shared, keys, chunks, count, in, out, made, {launch, done_by});          \
  }                                                                                                             \
  KERNEL(512, 1) seal_##name##_wide(BATCH(uint4* made)) {                                                       \
    DYNAMIC_SHARED(shared);                                                                                     \
    seal_by_warps<cipher, integrity>(shared, gridDim.x, keys, chunks, count, in, out, made, {launch, done_by}); \
  }                                                                                                             \
  KERNEL(512, 1) open_##name##_wide(BATCH(uint32_t* made)) {                                                    \
    DYNAMIC_SHARED(shared);                                                                                     \
    open_by_warps<cipher, integrity>(shared, gridDim.x, keys, chunks, count, in, out, made, {launch, done_by}); \
  }

// Checks the results of such a launch (check.cuh). Takes the same parameters; `made` must be in device
// memory. `blocks` and `run`: the geometry of that launch. `claims`: one word for each of its blocks,
// not yet used with this launch number. Results that the host may trust go to `tags` and `verdicts`,
// under `number`. 512 threads, CHECK = 4112 bytes of shared memory more than TABLES, and at least two
// blocks.
static_assert(CheckDesk::BYTES == 4112, "CHECK is part of the contract");
#define CHECK(name, cipher, integrity)                                                                      \
  KERNEL(512, 1)                                                                                            \
  check_##name(BATCH(const void* made), uint64_t* claims, uint32_t number, uint4* tags, uint32_t* verdicts, \
               uint32_t opens, uint32_t blocks, uint32_t run) {                                             \
    DYNAMIC_SHARED(shared);                                                                                 \
    const Launch before{keys, chunks, count, in, out, made, {launch, done_by}, opens, blocks, run};         \
    check_launch<cipher, integrity>(shared, before, claims, {tags, verdicts, number});                      \
  }

// Both in one launch. The first `blocks` blocks seal or open, in the wide variant. The others, at least
// two, check and write the output. The output of a chunk that does not verify or gets no verdict is
// meaningless. `kept_in`: for input in host memory, room in device memory for copies of the chunks, 4096
// bytes each; otherwise null. `kept_out`: the same for the output.
#define CHECKED(op, name, cipher, integrity, opens)                                                                    \
  KERNEL(512, 1)                                                                                                       \
  op##_##name##_checked(BATCH(Progress* progress), uint64_t* claims, uint32_t number, uint4* tags, uint32_t* verdicts, \
                        uint32_t blocks, uint8_t* kept_in, uint8_t* kept_out) {                                        \
    DYNAMIC_SHARED(shared);                                                                                            \
    const Trace trace{launch, done_by, progress, kept_in, kept_out};                                                   \
    if (blockIdx.x < blocks) {                                                                                         \
      op##_by_warps<cipher, integrity>(shared, blocks, keys, chunks, count, in, out, nullptr, trace);                  \
    } else {                                                                                                           \
      const Launch same{keys, chunks, count, in, out, nullptr, trace, opens, blocks, 1};                               \
      check_launch<cipher, integrity>(shared, same, claims, {tags, verdicts, number});                                 \
    }                                                                                                                  \
  }
#define ALL_OF(name, cipher, integrity)     \
  SEAL_OPEN(name, cipher, integrity)        \
  CHECK(name, cipher, integrity)            \
  CHECKED(seal, name, cipher, integrity, 0) \
  CHECKED(open, name, cipher, integrity, 1)
ALL_OF(aes_kmac128, Aes, Kmac128)
ALL_OF(aes_kmac256, Aes, Kmac256)
ALL_OF(aes_turboshake128x4, Aes, TurboShake128x4)
ALL_OF(kuznyechik_kmac128, Kuznyechik, Kmac128)
ALL_OF(kuznyechik_kmac256, Kuznyechik, Kmac256)
ALL_OF(kuznyechik_turboshake128x4, Kuznyechik, TurboShake128x4)
