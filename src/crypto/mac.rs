//! Keyed Keccak: the MACs of the format, their keyed state computed once.

/// The function behind every tag and digest of a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// KMAC128 (SP 800-185).
    Kmac128,
    /// KMAC256 (SP 800-185).
    Kmac256,
    /// TurboSHAKE128 (RFC 9861), keyed as `docs/format.md` defines.
    TurboShake128,
}

impl Integrity {
    /// Every integrity function.
    pub const ALL: [Integrity; 3] = [Integrity::Kmac128, Integrity::Kmac256, Integrity::TurboShake128];
}

/// A key and a customisation string, absorbed: each MAC starts from the saved sponge state.
#[derive(Clone)]
pub struct MacKey {
    _todo: (),
}

impl MacKey {
    /// Absorbs `key` and the customisation string `custom`.
    pub fn new(_integrity: Integrity, _key: &[u8], _custom: &[u8]) -> Self {
        todo!()
    }

    /// MAC of the concatenated `parts`, `out.len()` bytes long (the length is part of the input, as in KMAC).
    pub fn mac(&self, _parts: &[&[u8]], _out: &mut [u8]) {
        todo!()
    }

    /// 128-bit tag.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut out = [0; 16];
        self.mac(parts, &mut out);
        out
    }

    /// 256-bit digest.
    pub fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut out = [0; 32];
        self.mac(parts, &mut out);
        out
    }
}
