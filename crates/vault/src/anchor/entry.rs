//! Entries of an anchor for names and for files' records, as bytes and as types.

use crate::Kind;
use content::{Bound, Mismatch};
use format::{
    dir_id::DirId,
    record::{KeyId, MAC_LEN},
    xattr::SPECIAL,
};

/// A file's salt.
pub(super) type Salt = [u8; 32];
/// Length of an encoded bound: key generation, sequence number, MAC.
pub(super) const BOUND: usize = 4 + 8 + MAC_LEN;

/// The node under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnchoredIdentity {
    /// The file with this salt; `None` for a file to which nothing was committed.
    File(Option<Salt>),
    /// A node that could not be identified, such as a file whose records are damaged.
    Any,
    Dir(DirId),
    /// A link, with the MAC of its target.
    Link([u8; 32]),
    /// A special file, identified by its type and device number.
    Special([u8; SPECIAL]),
}

/// Knowledge about the node under a name, in increasing detail.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Kind(Kind),
    Identity(AnchoredIdentity),
}

const FILE: u8 = 1;
const EMPTY_FILE: u8 = 2;
const ANY: u8 = 3;
const DIR: u8 = 4;
const LINK: u8 = 5;
const OTHER: u8 = 6;

impl AnchoredIdentity {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, rest): (u8, &[u8]) = match self {
            AnchoredIdentity::File(Some(salt)) => (FILE, salt),
            AnchoredIdentity::File(None) => (EMPTY_FILE, &[]),
            AnchoredIdentity::Any => (ANY, &[]),
            AnchoredIdentity::Dir(id) => (DIR, &id.0),
            AnchoredIdentity::Link(mac) => (LINK, mac),
            AnchoredIdentity::Special(known) => (OTHER, known),
        };
        [&[kind], rest].concat()
    }

    /// `None` if `encode` cannot have produced the bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            FILE => AnchoredIdentity::File(Some(rest.try_into().ok()?)),
            EMPTY_FILE if rest.is_empty() => AnchoredIdentity::File(None),
            ANY if rest.is_empty() => AnchoredIdentity::Any,
            DIR => AnchoredIdentity::Dir(DirId(rest.try_into().ok()?)),
            LINK => AnchoredIdentity::Link(rest.try_into().ok()?),
            OTHER => AnchoredIdentity::Special(rest.try_into().ok()?),
            _ => return None,
        })
    }

    fn is_of(&self, kind: Kind) -> bool {
        match self {
            AnchoredIdentity::Any => true,
            AnchoredIdentity::File(_) => kind == Kind::File,
            AnchoredIdentity::Dir(_) => kind == Kind::Dir,
            AnchoredIdentity::Link(_) => kind == Kind::Symlink,
            AnchoredIdentity::Special(known) => known[0] == letter(kind),
        }
    }

    /// Whether the node that was found matches this identity.
    pub(super) fn admits(&self, found: &Found) -> bool {
        match (self, found) {
            (_, Found::Nothing) => false,
            (_, Found::Kind(kind)) => self.is_of(*kind),
            (AnchoredIdentity::Any, Found::Identity(_)) => true,
            (_, Found::Identity(found)) => self == found,
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            AnchoredIdentity::File(Some(_)) => "a file",
            AnchoredIdentity::File(None) => "an empty file",
            AnchoredIdentity::Any => "something",
            AnchoredIdentity::Dir(_) => "a directory",
            AnchoredIdentity::Link(_) => "a link",
            AnchoredIdentity::Special(_) => "a special file",
        }
    }
}

/// The first byte of a special file's identity; 0 for other nodes.
fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::Fifo => b'p',
        Kind::Socket => b's',
        Kind::CharDevice => b'c',
        Kind::BlockDevice => b'b',
        Kind::File | Kind::Dir | Kind::Symlink => 0,
    }
}

impl Found {
    /// How it differs from what was confirmed; `None` if it does not.
    pub(super) fn against(&self, confirmed: Option<&AnchoredIdentity>) -> Option<Mismatch> {
        match (self.noun(), confirmed) {
            (None, None) => None,
            (None, Some(confirmed)) => Some(Mismatch::Lost(confirmed.noun())),
            (Some(found), None) => Some(Mismatch::Added(found)),
            (Some(_), Some(confirmed)) if confirmed.admits(self) => None,
            (Some(found), Some(confirmed)) if found == confirmed.noun() => {
                Some(Mismatch::Exchanged { found: "another one", confirmed: found })
            }
            (Some(found), Some(confirmed)) => {
                Some(Mismatch::Exchanged { found, confirmed: confirmed.noun() })
            }
        }
    }

    fn noun(&self) -> Option<&'static str> {
        match self {
            Found::Nothing => None,
            Found::Kind(kind) => Some(noun_of(*kind)),
            Found::Identity(identity) => Some(identity.noun()),
        }
    }
}

/// The noun for a node of which only the type is known.
fn noun_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "a file",
        Kind::Dir => "a directory",
        Kind::Symlink => "a link",
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => "a special file",
    }
}

/// Encodes a bound without the salt.
pub(super) fn encode_bound(bound: &Bound) -> [u8; BOUND] {
    let mut out = [0; BOUND];
    out[..4].copy_from_slice(&bound.key.generation.to_be_bytes());
    out[4..12].copy_from_slice(&bound.sequence.to_be_bytes());
    out[12..].copy_from_slice(&bound.mac);
    out
}

/// Decodes the bound of the file with this salt; `None` if the bytes are malformed.
pub(super) fn decode_bound(salt: Salt, bytes: &[u8]) -> Option<Bound> {
    let (generation, rest) = bytes.split_first_chunk()?;
    let (sequence, mac) = rest.split_first_chunk()?;
    Some(Bound {
        key: KeyId { generation: u32::from_be_bytes(*generation), salt },
        sequence: u64::from_be_bytes(*sequence),
        mac: mac.try_into().ok()?,
    })
}
