// The two cipher families, in the form that seal and open use.
#pragma once
#include "modes.cuh"

// Dynamic shared memory for the cipher tables, in bytes.
constexpr uint32_t TABLES_BYTES = 68 << 10;

// `keys`: the round keys of a key slot, in global memory (GlobalKeys) or in shared memory. TablesAgain:
// the same tables, copied from another source.
struct Aes {
  using Tables = AesBanked<ENCRYPT>;
  using TablesAgain = AesBanked<ENCRYPT, true>;
  static constexpr int BLOCKS = 4;
  template <class Tables, class Keys>
  DEVICE static AesStream<Tables, Keys> stream(const Tables& tables, Keys keys, uint32_t rounds, uint4 counter) {
    return AesStream<Tables, Keys>(tables, keys, rounds, counter);
  }
};
struct Kuznyechik {
  using Tables = KuznyechikShared<ENCRYPT>;
  using TablesAgain = KuznyechikShared<ENCRYPT, KUZNYECHIK_AGAIN>;
  static constexpr int BLOCKS = 2;
  template <class Tables, class Keys>
  DEVICE static KuznyechikStream<Tables, Keys> stream(const Tables& tables, Keys keys, uint32_t, uint4 counter) {
    return KuznyechikStream<Tables, Keys>(tables, keys, counter);
  }
};
