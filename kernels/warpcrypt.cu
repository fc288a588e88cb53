// The entry points. What holds for all of them:
//
// - Geometry: any grid, of one dimension; blocks of a multiple of 32 threads up to the launch bound
//   stated. The work is spread over the warps that there are.
// - Counts of chunks and states: below 2^31.
// - Memory: the device's. Chunks, input, output and results of the wide kernels may be the host's, page-locked and
// mapped.
// - Alignment: every pointer to 16 bytes. Lengths are in bytes unless they say blocks; where a length is not
//   a multiple of 16, the buffers reach to the next multiple, and the output's rest is written with zeros; by the wide
//   kernels it is left alone.
// - Aliasing: input and output of one launch may be the same place, or they do not overlap; a chunk's
//   source and target likewise. Nothing else overlaps, and chunks do not overlap each other.
// - Dynamic shared memory: TABLES = 68 KiB, unless another number is given; more than 48 KiB has to be
//   allowed with cuFuncSetAttribute. A wide kernel takes DESK = 5104 bytes more for each warp of a block.
// - `kuznyechik_tables` runs once after the module was loaded, before any other kernel of Kuznyechik.
#include "check.cuh"
#include "seal.cuh"
#include "wide.cuh"

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

// AES-128, -192 or -256 with 10, 12 or 14 rounds; `keys` holds rounds + 1 round keys in the order of use.
// CTR: `counter` is one block, a 128-bit big-endian number that wraps. Up to 1024 threads. The variants differ in
// the blocks that a thread works on at once: 4, or the number in the name.
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

// The same with one copy of the tables in constant memory. Up to 1024 threads, no dynamic shared memory.
KERNEL(1024, 1)
aes_ctr_constant(const uint4* keys, uint32_t rounds, const uint4* counter, const uint8_t* in, uint8_t* out,
                 uint64_t bytes) {
  const AesPlain<ENCRYPT> tables{&AES_TABLES_CONSTANT};
  auto make = [&](uint4 c) { return AesStream<AesPlain<ENCRYPT>>(tables, keys, rounds, c); };
  ctr<2>(make, __ldg(counter), in, out, bytes);
}

// The same with one copy in shared memory, bank conflicts and all. Up to 1024 threads, 2 KiB of dynamic
// shared memory.
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

// ECB. For decryption the round keys are those of the equivalent inverse cipher (FIPS 197, section 5.3.5).
// Up to 1024 threads.
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

// Fills the tables of Kuznyechik in the module's memory. 12288 threads in all, up to 256 a block; no
// dynamic shared memory.
KERNEL(256, 1) kuznyechik_tables() { kuznyechik_fill(blockIdx.x * blockDim.x + threadIdx.x); }

// Kuznyechik: `keys` holds ten round keys (kuznyechik.cuh). Up to 512 threads; decryption from shared
// memory takes 96 KiB of it, and nothing in global placement takes any. A thread works on two blocks at once, or on
// as many as the name says.
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

// Keccak-f[1600] of `count` states of 25 lanes each, in place; alignment to 8 bytes. One thread a state, up to
// 128 threads: a loop of single rounds, or all rounds unrolled. No dynamic shared memory.
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

// The same with one warp a state, 25 of its threads holding a lane each. Up to 512 threads. By shuffles: no
// dynamic shared memory; through shared memory: 256 bytes a warp.
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

// Tags of the chunks that lie at their `source` in `in`; tags[i] is that of chunks[i]. One thread a tag or four, up to
// 128 threads, no dynamic shared memory; wide: one warp a tag, up to 256, a DESK a warp.
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

// Seal encrypts `count` chunks from `in` to `out`, and makes their tags. Open computes the tags of the chunks in `in`,
// compares them with those of the descriptors, and makes a word, 1, and the plaintext, or 0 and zeros; in place, a
// chunk that fails is lost. Wide: one warp a chunk. Up to 512 threads. `launch`: its number, below 2^48, which no other
// launch with the same `done_by` has. There each block leaves its multiprocessor; it may be null.
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

// Looks at all that such a launch made (check.cuh), with the same parameters, whose `made` is in the device's memory.
// `blocks` and `run`: its geometry. `claims`: a word for each block, which no launch of that number has used. What the
// host may believe goes to `tags` and `verdicts`, under `number`. 512 threads, CHECK = 4112 bytes of shared memory more
// than TABLES, and two blocks at least.
static_assert(CheckDesk::BYTES == 4112, "CHECK is part of the contract");
#define CHECK(name, cipher, integrity)                                                                      \
  KERNEL(512, 1)                                                                                            \
  check_##name(BATCH(const void* made), uint64_t* claims, uint32_t number, uint4* tags, uint32_t* verdicts, \
               uint32_t opens, uint32_t blocks, uint32_t run) {                                             \
    DYNAMIC_SHARED(shared);                                                                                 \
    const Launch before{keys, chunks, count, in, out, made, {launch, done_by}, opens, blocks, run};         \
    check_launch<cipher, integrity>(shared, before, claims, {tags, verdicts, number});                      \
  }

// Both in one launch: the first `blocks` blocks seal or open, wide, and the others, two at least, check and write the
// output; that of a chunk which does not verify, or gets no verdict, means nothing. `kept_in`: for input in the host's
// memory, room for copies of the chunks in the device's, 4096 bytes for each; or null. `kept_out`: the same for the
// output.
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
