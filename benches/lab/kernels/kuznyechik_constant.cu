// The experiments of kuznyechik.cu with the tables in constant memory: those of one direction fill all of it, so
// these are a module of their own. Encryption only; the same parameters and contract.
#include "kuznyechik_variants.cuh"

// The tables of encryption; the host copies them there.
extern "C" __constant__ uint4 KUZNYECHIK_TABLES_CONSTANT[TABLE_BLOCKS];
__constant__ uint4 KUZNYECHIK_TABLES_CONSTANT[TABLE_BLOCKS];

// As kuznyechik_tables of kuznyechik.cu: this module has tables of its own.
KERNEL(256) kuznyechik_tables_too() { kuznyechik_fill_both(blockIdx.x * blockDim.x + threadIdx.x); }

#define TABLES_CONSTANT Constants{KUZNYECHIK_TABLES_CONSTANT, nullptr}
VARIANT(kuznyechik_constant_1, TABLES_CONSTANT, CONSTANT, GLOBAL, 1, IN_ORDER, FORWARD)
VARIANT(kuznyechik_constant_2, TABLES_CONSTANT, CONSTANT, GLOBAL, 2, IN_ORDER, FORWARD)
VARIANT(kuznyechik_constant_4, TABLES_CONSTANT, CONSTANT, GLOBAL, 4, IN_ORDER, FORWARD)
VARIANT(kuznyechik_constant_halves, TABLES_CONSTANT, CONSTANT, GLOBAL, 1, EVEN_ODD, FORWARD)
