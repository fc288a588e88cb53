//! The hash functions: selection by name, and the operations on them.

use super::{
    digest::Digest,
    k12, md6,
    md6::Md6,
    sponges::{self, LaneSponge, Serial},
};

/// A hash function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// MD6 (Rivest et al., 2008) in tree mode, without a key, with the default number of rounds.
    Md6(Md6),
    /// SHA3-224, SHA3-256, SHA3-384 or SHA3-512 (FIPS 202), by digest length in bits.
    Sha3(u16),
    /// SHAKE128 (FIPS 202) with 256 bits of output.
    Shake128,
    /// SHAKE256 (FIPS 202) with 512 bits of output.
    Shake256,
    /// KangarooTwelve: KT128 of RFC 9861 without customisation, with 256 bits of output.
    K12,
}

impl Function {
    /// Looks up a function by its name: `md6-N` with N from 1 to 512, `sha3-224`, `sha3-256`, `sha3-384`,
    /// `sha3-512`, `shake128`, `shake256` or `k12`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "k12" => Function::K12,
            "shake128" => Function::Shake128,
            "shake256" => Function::Shake256,
            "sha3-224" => Function::Sha3(224),
            "sha3-256" => Function::Sha3(256),
            "sha3-384" => Function::Sha3(384),
            "sha3-512" => Function::Sha3(512),
            _ => {
                let digits = name.strip_prefix("md6-")?;
                let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
                Function::Md6(Md6::new(digits.parse().ok().filter(|_| canonical)?).ok()?)
            }
        })
    }

    /// The name that `from_name` accepts.
    pub fn name(&self) -> String {
        match self {
            Function::Md6(md6) => format!("md6-{}", md6.bits()),
            Function::Sha3(bits) => format!("sha3-{bits}"),
            Function::Shake128 => "shake128".into(),
            Function::Shake256 => "shake256".into(),
            Function::K12 => "k12".into(),
        }
    }

    /// Length of the digest in bits.
    pub fn bits(&self) -> u16 {
        match self {
            Function::Md6(md6) => md6.bits(),
            Function::Sha3(bits) => *bits,
            Function::Shake256 => 512,
            Function::Shake128 | Function::K12 => 256,
        }
    }

    /// The digest of each message.
    pub fn digests(&self, messages: &[&[u8]]) -> Vec<Digest> {
        match (self, self.sponge()) {
            (_, Some(sponge)) => sponges::digests(&sponge, messages),
            (Function::Md6(md6), _) => md6.digests(messages),
            _ => k12::digests(messages),
        }
    }

    /// Length of a part in bytes, if the function is a tree, whose parts can be hashed in any order. Only
    /// the last part may be shorter; it has at least one byte.
    pub fn part_len(&self) -> Option<usize> {
        match self {
            Function::Md6(_) => Some(md6::PART),
            Function::K12 => Some(k12::PART),
            _ => None,
        }
    }

    /// The input for a `Join` from part number `index` of a message with at least two parts. Empty if the
    /// function is not a tree.
    pub fn part(&self, index: u64, data: &[u8], last: bool) -> Vec<u8> {
        match self {
            Function::Md6(md6) => md6.part(index, data).to_vec(),
            Function::K12 => k12::part(index, data, last),
            _ => Vec::new(),
        }
    }

    /// Starts joining the parts of a message; `None` if the function is not a tree.
    pub fn join(&self) -> Option<Join> {
        match self {
            Function::Md6(md6) => Some(Join::Md6(md6::Md6Join::new(md6.clone()))),
            Function::K12 => Some(Join::K12(k12::K12Join::new())),
            _ => None,
        }
    }

    /// Starts hashing a message sequentially; `None` if the function is a tree.
    pub fn serial(&self) -> Option<Serial> {
        self.sponge().map(Serial::new)
    }

    fn sponge(&self) -> Option<LaneSponge> {
        match self {
            Function::Sha3(bits) => Some(LaneSponge::sha3(*bits)),
            Function::Shake128 => Some(LaneSponge::shake(128, 256)),
            Function::Shake256 => Some(LaneSponge::shake(256, 512)),
            Function::Md6(_) | Function::K12 => None,
        }
    }
}

/// Joins the parts of a message into its digest.
pub enum Join {
    /// Parts of MD6.
    Md6(md6::Md6Join),
    /// Parts of KangarooTwelve.
    K12(k12::K12Join),
}

impl Join {
    /// Adds the next part, in order.
    pub fn push(&mut self, part: &[u8]) {
        match self {
            Join::Md6(join) => join.push(part),
            Join::K12(join) => join.push(part),
        }
    }

    /// The digest of all parts, of which there must be at least two.
    pub fn finish(self) -> Digest {
        match self {
            Join::Md6(join) => join.finish(),
            Join::K12(join) => join.finish(),
        }
    }
}
