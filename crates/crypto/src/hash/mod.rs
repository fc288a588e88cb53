//! Hashes many messages at once: SHA-3, SHAKE, KangarooTwelve and MD6. The lanes of the processor's
//! vectors are filled from different messages, and from different parts of long ones. Keeps no secret
//! except MD6's key.
//!
//! `Function` selects the hash function. `digests` hashes whole messages. A long message is hashed in
//! parts: with `Serial` sequentially, or, if the function is a tree, with `part` in any order and `join`.

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
