//! Ciphers, Keccak, MACs and key derivation. Knows no I/O and no files.

pub mod chunk;
pub mod cipher;
pub mod kdf;
pub mod mac;
pub mod random;
pub mod secret;
pub mod siv;

/// A tag did not verify: the bytes are not what the key's owner sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct AuthError;
