//! AES (FIPS 197), all key sizes: the `aes` crate's block functions, which choose the processor's own AES
//! instructions (VAES, AES-NI, ARMv8) at run time and a bit-sliced constant-time code without them.

pub use ::aes::{Aes128, Aes192, Aes256};
