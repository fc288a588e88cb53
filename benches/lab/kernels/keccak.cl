// The three kernels of the comparison in OpenCL that keccak.cu is after, in OpenCL C 1.2. Each permutes states of 25 lanes
// in place by Keccak-f[1600]. Of the groups of threads there are as many as `count` states need; what goes beyond it is
// left alone. States are aligned to 8 bytes. It is C++ as well, for the tests.
//
// In the listings, I and II declare one local array for a whole group, whose threads would overwrite each other's states.
// And III has no barriers within a round. Here threads have arrays of their own, and III has its barriers.

#define KERNEL(x, y) __kernel __attribute__((reqd_work_group_size(x, y, 1))) void
#define PARAMETERS __global ulong *states, uint count

__constant ulong CONSTANTS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};
__constant ulong OFFSETS[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                                25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};

// I: one thread a state. Every step is a loop over x and y, and its arrays A, B, C and D are indexed by them. WORD says
// where they lie.
#define A(x, y) WORD((x) % 5 + 5 * ((y) % 5))
#define B(x, y) WORD(25 + (x) % 5 + 5 * ((y) % 5))
#define C(x) WORD(50 + (x) % 5)
#define D(x) WORD(55 + (x) % 5)
#define EACH(i, end) _Pragma("unroll 1") for (uint i = 0; i < end; i++)
#define BY_LOOPS(place)                                                  \
  EACH(i, 25) WORD(i) = place[i];                                        \
  EACH(round, 24) {                                                      \
    EACH(x, 5) {                                                         \
      C(x) = 0;                                                          \
      EACH(y, 5) C(x) ^= A(x, y);                                        \
      D(x) = rotate(C(x), (ulong)1);                                     \
    }                                                                    \
    EACH(x, 5) EACH(y, 5) A(x, y) ^= D(x + 1) ^ C(x + 4);                \
    EACH(x, 5) EACH(y, 5) A(x, y) = rotate(A(x, y), OFFSETS[x + 5 * y]); \
    EACH(x, 5) EACH(y, 5) B(x, y) = A(x, y);                             \
    EACH(x, 5) EACH(y, 5) A(y, 2 * x + 3 * y) = B(x, y);                 \
    EACH(y, 5) {                                                         \
      EACH(x, 5) C(x) = A(x, y) ^ (~A(x + 1, y) & A(x + 2, y));          \
      EACH(x, 5) A(x, y) = C(x);                                         \
    }                                                                    \
    A(0, 0) ^= CONSTANTS[round];                                         \
  }                                                                      \
  EACH(i, 25) place[i] = WORD(i);

// In the thread's own memory; 128 threads a group.
#define WORD(i) own[i]
KERNEL(128, 1) keccak_arrays(PARAMETERS) {
  if (get_global_id(0) >= count) return;
  __global ulong *place = states + get_global_id(0) * 25;
  ulong own[60];
  BY_LOOPS(place)
}
#undef WORD

// In local memory, where the arrays of a group of 64 threads lie side by side.
#define WORD(i) arrays[(i) * 64 + get_local_id(0)]
KERNEL(64, 1) keccak_arrays_local(PARAMETERS) {
  __local ulong arrays[60 * 64];
  if (get_global_id(0) >= count) return;
  __global ulong *place = states + get_global_id(0) * 25;
  BY_LOOPS(place)
}

// II: one thread a state, every step written out; 128 threads a group.
#define PARITY(x) (a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20])
#define MOVE(x, y, offset) b[y + 5 * ((2 * x + 3 * y) % 5)] = rotate(a[x + 5 * y] ^ d, (ulong)offset);
#define COLUMN(x, left, right, o0, o1, o2, o3, o4) \
  d = left ^ rotate(right, (ulong)1);              \
  MOVE(x, 0, o0) MOVE(x, 1, o1) MOVE(x, 2, o2) MOVE(x, 3, o3) MOVE(x, 4, o4)
#define CHI(x, y) a[x + y] = b[x + y] ^ (~b[(x + 1) % 5 + y] & b[(x + 2) % 5 + y]);
#define ROW(y) CHI(0, y) CHI(1, y) CHI(2, y) CHI(3, y) CHI(4, y)
KERNEL(128, 1) keccak_loop(PARAMETERS) {
  if (get_global_id(0) >= count) return;
  __global ulong *place = states + get_global_id(0) * 25;
  ulong a[25], b[25], d;
#pragma unroll
  for (uint i = 0; i < 25; i++) a[i] = place[i];
#pragma unroll 1
  for (uint round = 0; round < 24; round++) {
    ulong c0 = PARITY(0), c1 = PARITY(1), c2 = PARITY(2), c3 = PARITY(3), c4 = PARITY(4);
    COLUMN(0, c4, c1, 0, 36, 3, 41, 18)
    COLUMN(1, c0, c2, 1, 44, 10, 45, 2)
    COLUMN(2, c1, c3, 62, 6, 43, 15, 61)
    COLUMN(3, c2, c4, 28, 55, 25, 21, 56)
    COLUMN(4, c3, c0, 27, 20, 39, 8, 14)
    ROW(0) ROW(5) ROW(10) ROW(15) ROW(20)
    a[0] ^= CONSTANTS[round];
  }
#pragma unroll
  for (uint i = 0; i < 25; i++) place[i] = a[i];
}

// III: 25 threads a state, 5 by 5, through local memory: a group a state.
KERNEL(5, 5) keccak_block(PARAMETERS) {
  __local ulong a[25], b[25];
  uint x = get_local_id(0), y = get_local_id(1), lane = x + 5 * y;
  uint left = (x + 4) % 5, right = (x + 1) % 5, after = (x + 2) % 5;
  if (get_group_id(0) >= count) return;
  __global ulong *place = states + get_group_id(0) * 25 + lane;
  ulong own = *place;
#pragma unroll 1
  for (uint round = 0; round < 24; round++) {
    a[lane] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    ulong before = a[left] ^ a[left + 5] ^ a[left + 10] ^ a[left + 15] ^ a[left + 20];
    ulong behind = a[right] ^ a[right + 5] ^ a[right + 10] ^ a[right + 15] ^ a[right + 20];
    b[y + 5 * ((2 * x + 3 * y) % 5)] = rotate(own ^ before ^ rotate(behind, (ulong)1), OFFSETS[lane]);
    barrier(CLK_LOCAL_MEM_FENCE);
    own = b[lane] ^ (~b[right + 5 * y] & b[after + 5 * y]);
    if (lane == 0) own ^= CONSTANTS[round];
  }
  *place = own;
}
