//! Hashes of many messages at once: SHA-3, SHAKE, KangarooTwelve and MD6, with the lanes of the processor's
//! vectors filled from different messages, and from different parts of long ones. Holds no secret but MD6's
//! key.
//!
//! `Function` says which hash, `digests` hashes whole messages. A long message is hashed in parts: by
//! `Serial` one after the other, or, where the function is a tree, by `part` in any order and `join`.

mod digest;
mod function;
pub mod k12;
pub(super) mod lanes;
#[cfg(target_arch = "x86_64")]
pub(super) mod lanes_avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod lanes_avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod lanes_vl;
pub mod md6;
mod sponges;
#[cfg(test)]
mod tests;

pub use digest::Digest;
pub use function::{Function, Join};
pub use lanes::permute_all;
pub use sponges::{Piece, Serial};
