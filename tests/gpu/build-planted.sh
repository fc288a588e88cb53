#!/bin/sh
# Builds kernels that can be made to malfunction: build-planted.sh DIRECTORY puts their source there, and
#   with no more arguments  a fake driver that runs them, DIRECTORY/libcuda.so.1 (build-fake.sh)
#   NVCC ARCH               DIRECTORY/planted.fatbin for devices such as sm_90
# PLANTED selects the fault (tests/gpu/planted.rs); 0 means none. Faults of a multiprocessor affect the
# first one, which has work even in the smallest batch (a device gives half of the multiprocessors none
# while the other half has capacity). They occur in every kernel that runs there, including the check.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/kernels"
cp "$here"/../../kernels/*.cu "$here"/../../kernels/*.cuh "$1/kernels"
cd "$1/kernels"

# The original text, which occurs exactly once in each named file, and its replacement.
plant() {
    old=$1 new=$2
    shift 2
    for file; do
        [ "$(grep -cF "$old" "$file")" = 1 ] || { echo "$file: not once there: $old" >&2; exit 1; }
        sed -i "s|$(printf '%s' "$old" | sed 's/[][\.*^$]/\\&/g')|$new|" "$file"
    done
}

cat >> platform.cuh <<'END'
extern "C" __device__ volatile uint32_t PLANTED;
__device__ volatile uint32_t PLANTED = 0;
DEVICE bool planted(uint32_t fault) { return PLANTED == fault; }
DEVICE bool planted_here(uint32_t fault) { return PLANTED == fault && multiprocessor() == 0; }
END
# 1, 2: a bit in a table in memory, in the first computation and in the second.
plant 'return __ldg(DIRECTION == ENCRYPT ? &AES_TABLES.encrypt[x] : &AES_TABLES.decrypt[x]);' \
    'return __ldg(DIRECTION == ENCRYPT ? \&AES_TABLES.encrypt[x] : \&AES_TABLES.decrypt[x]) ^ (planted(1) \&\& x == 83) << 9;' aes.cuh
plant 'if (AGAIN) return DIRECTION == ENCRYPT ? AES_TABLES_CONSTANT.encrypt[x] : AES_TABLES_CONSTANT.decrypt[x];' \
    'if (AGAIN) return AES_TABLES_CONSTANT.encrypt[x] ^ (planted(2) \&\& x == 83) << 9;' aes.cuh
plant 'for (uint32_t i = threadIdx.x; i < 4096; i += blockDim.x) to[i] = __ldg(from + i);' \
    'for (uint32_t i = threadIdx.x; i < 4096; i += blockDim.x) to[i] = __ldg(from + i), to[i].y ^= (planted(1 + (TABLE == KUZNYECHIK_AGAIN)) \&\& i == 777) << 9;' kuznyechik.cuh
# 3: a register of one lane of a multiprocessor, occasionally.
plant 'for (int n = 0; n < N; n++) aes_round<DIRECTION>(tables, s[n], key);' \
    'for (int n = 0; n < N; n++) s[n][2] ^= planted_here(3) \&\& lane_id() == 7 \&\& s[n][0] % 64 == 5, aes_round<DIRECTION>(tables, s[n], key);' aes.cuh
plant 'for (int n = 0; n < N; n++) x[n] = tables.pass(x[n], key);' \
    'for (int n = 0; n < N; n++) x[n].z ^= planted_here(3) \&\& lane_id() == 7 \&\& x[n].x % 64 == 5, x[n] = tables.pass(x[n], key);' kuznyechik.cuh
# 4: one bit of everything that a multiprocessor encrypts.
plant 'uint4 out = data[n] ^ keystream[n];' 'uint4 out = data[n] ^ keystream[n]; out.y ^= planted_here(4) << 3;' modes.cuh
plant 'uint4 rest = cut(data[n] ^ keystream[n], length - start);' \
    'keystream[n].y ^= planted_here(4) << 3; uint4 rest = cut(data[n] ^ keystream[n], length - start);' modes.cuh
plant 'uint4 in = arrival.data[first + n], out = in ^ keystream[n];' \
    'uint4 in = arrival.data[first + n]; keystream[n].y ^= planted_here(4) << 3; uint4 out = in ^ keystream[n];' wide.cuh
# 5: one bit of every tag that a multiprocessor computes.
plant 'return make_uint4(uint32_t(first), uint32_t(first >> 32), uint32_t(second), uint32_t(second >> 32));' \
    'first ^= uint64_t(planted_here(5)) << 40; return make_uint4(uint32_t(first), uint32_t(first >> 32), uint32_t(second), uint32_t(second >> 32));' tag.cuh

if [ $# = 1 ]; then
    "$here/build-fake.sh" .. . -DPLANTED_FAULTS
else
    "$2" -std=c++17 -O3 -fatbin -arch="$3" warpcrypt.cu -o ../planted.fatbin
fi
