//! Ciphers, Keccak, MACs and key derivation. No I/O, and no knowledge of files.
//!
//! Each primitive has one portable implementation, in a separate file. `cipher` dispatches to the block
//! ciphers, `keccak::permute` to the permutations and `tags` to the vector widths, so that adding a faster
//! variant does not affect callers.

mod aes;
pub mod aes_keys;
#[cfg(target_arch = "x86_64")]
mod aes_ni;
#[cfg(target_arch = "x86_64")]
mod aes_vaes256;
#[cfg(target_arch = "x86_64")]
mod aes_vaes512;
pub mod allocator;
pub mod chunk;
pub mod cipher;
#[cfg(test)]
mod conformance;
mod ctr;
#[cfg(test)]
mod distinct;
pub mod expanded;
pub mod hash;
pub mod integrity;
pub mod kdf;
pub mod keccak;
#[cfg(target_arch = "x86_64")]
mod keccak_bmi;
#[cfg(target_arch = "x86_64")]
mod keccak_lanes;
#[cfg(target_arch = "x86_64")]
mod keccak_vl;
pub mod kuznyechik;
#[cfg(target_arch = "x86_64")]
mod kuznyechik_avx2;
#[cfg(target_arch = "x86_64")]
mod kuznyechik_avx512;
mod kuznyechik_field;
mod kuznyechik_planes;
mod kuznyechik_sbox;
mod listed;
pub mod mac;
pub mod machine;
mod mlock;
pub mod random;
pub mod secret;
pub mod sha3;
pub mod siv;
pub mod sp800_185;
pub mod sponge;
pub mod tags;
pub mod traces;
pub mod turboshake;
pub mod variants;
#[cfg(target_arch = "x86_64")]
mod x86;

/// A tag did not verify: the bytes were not sealed with this key, or were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct AuthError;
