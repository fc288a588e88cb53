//! Names of directory entries: what stands in the store for a plaintext name, and back.
//!
//! Encryption is deterministic under the directory's id, so that a look-up needs no listing. A name
//! that its encoding would make too long is stored hashed, its ciphertext in a sidecar file beside it.

use super::{
    bytes::{base64_len, from_base64, pad16, to_base64, unpad16},
    dir_id::DirId,
    keys,
};
use crate::crypto::{
    cipher::Cipher,
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::{Secret, ct_eq},
    siv::SivKey,
};

/// What every name that the vault keeps for itself begins with.
pub const RESERVED: &str = "warpcrypt.";
/// The vault's configuration, in its root.
pub const CONFIG_FILE: &str = "warpcrypt.json";
/// Its second copy.
pub const CONFIG_COPY: &str = "warpcrypt.json.copy";
/// A directory's id, in every directory.
pub const DIR_ID_NAME: &str = "warpcrypt.dir";
/// The write lock, in the vault's root.
pub const LOCK_FILE: &str = "warpcrypt.lock";
/// Change times that are shown in place of the store's, in the vault's root.
pub const TIMES_FILE: &str = "warpcrypt.times";
/// Prefix of a file that is not in place yet; whatever a crash leaves of them can go.
pub const TEMPORARY: &str = "warpcrypt.tmp.";
/// Prefix of what stood behind the blank header of a file, in the vault's root; no part of the plaintext tree.
pub const ASIDE: &str = "warpcrypt.aside.";
/// Prefix of the new form of a file that is being rewritten, in the vault's root.
pub const REWRITE: &str = "warpcrypt.rewrite.";
/// Prefix of the list of what is accepted under the former key, in the vault's root.
pub const FORMER_LIST: &str = "warpcrypt.former.";
/// Prefix of a directory with entries whose directory's id is lost.
pub const LOST: &str = "warpcrypt.lost.";
/// Directory of the long targets of symbolic links, in the vault's root.
pub const LINKS: &str = "warpcrypt.links";
/// Directory of the extended attributes that the store did not take, in the vault's root.
pub const LISTS: &str = "warpcrypt.xattrs";
/// Prefix of the stored name of a long name.
pub const LONG: &str = "warpcrypt.long.";
/// What a long name's sidecar has behind the stored name.
pub const SIDECAR: &str = ".name";
/// Prefix that keeps a plain name clear of the reserved ones.
pub const PLAIN: &str = "warpcrypt.plain.";
/// The vault's own files that have one name each.
const FILES: [&str; 5] = [CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, TIMES_FILE];
/// The longest name, plain or stored.
pub const NAME_MAX: usize = 255;
/// The longest name that is stored without a sidecar.
pub const SHORT_MAX: usize = 160;

/// Bytes of the hash in a long stored name.
const HASH: usize = 32;

const _: () = assert!(base64_len(SHORT_MAX + SivKey::OVERHEAD) <= NAME_MAX);
const _: () = assert!(base64_len(SHORT_MAX + 16 + SivKey::OVERHEAD) > NAME_MAX);

/// How a vault stores names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameMode {
    /// Encrypted and authenticated.
    Encrypted,
    /// As they are: neither hidden nor protected.
    Plain,
}

impl NameMode {
    /// Every mode.
    pub const ALL: [NameMode; 2] = [NameMode::Encrypted, NameMode::Plain];

    /// Its name in a vault's configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NameMode::Encrypted => "encrypted",
            NameMode::Plain => "plain",
        }
    }
}

/// A stored name, and what goes into its sidecar if it is a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The name in the store.
    pub stored: Vec<u8>,
    /// Content of `sidecar_name(&stored)`, which must be durable before the entry is.
    pub sidecar: Option<Vec<u8>>,
}

/// What a name found in the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// An entry of the directory; decodes by itself.
    Entry,
    /// An entry whose sidecar is needed to decode it.
    Long,
    /// A left-over of an unfinished write.
    Temporary,
    /// The vault's own: configuration, lock, directory id, sidecar.
    Own,
}

/// Why a name cannot be stored, or is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than 255 bytes, or than a plain name that begins with `warpcrypt.` may be.
    #[error("name too long")]
    TooLong,
    /// Empty, ".", "..", or with a slash or a zero byte.
    #[error("not a file name")]
    Invalid,
    /// The stored name, or its sidecar, is not what this vault wrote in this directory.
    #[error("stored name does not authenticate")]
    Forged,
    /// A long name was given without its sidecar.
    #[error("sidecar of a long name is missing")]
    NoSidecar,
}

/// Encrypts and decrypts names.
pub struct NameKeys {
    mode: NameMode,
    siv: SivKey,
    hash: MacKey,
}

impl NameKeys {
    /// The vault's.
    pub fn derive(master: &Secret<32>, cipher: Cipher, mode: NameMode) -> Self {
        let hash = subkey(master, keys::LONG_NAMES);
        NameKeys {
            mode,
            siv: SivKey::new(cipher, &subkey(master, keys::NAMES)),
            hash: MacKey::new(Mac::Kmac256, hash.expose(), b"warpcrypt v2 long name"),
        }
    }

    /// Whether a stored name means something under its directory's id only.
    pub fn depend_on_directory(&self) -> bool {
        self.mode == NameMode::Encrypted
    }

    /// What stands for `name` in the directory with this id.
    ///
    /// # Errors
    /// `TooLong` or `Invalid`.
    pub fn encode(&self, dir: &DirId, name: &[u8]) -> Result<Encoded, NameError> {
        check(name)?;
        if self.mode == NameMode::Plain {
            return encode_plain(name);
        }
        let sealed = self.siv.seal(&[&dir.0], &pad16(name));
        if name.len() <= SHORT_MAX {
            return Ok(Encoded { stored: to_base64(&sealed).into_bytes(), sidecar: None });
        }
        Ok(Encoded { stored: self.long_name(&sealed).into_bytes(), sidecar: Some(sealed) })
    }

    /// The name that `stored` stands for in the directory with this id; `sidecar` is the content of
    /// `sidecar_name(stored)` if `classify` calls the name long.
    ///
    /// # Errors
    /// `Forged` or `NoSidecar`.
    pub fn decode(&self, dir: &DirId, stored: &[u8], sidecar: Option<&[u8]>) -> Result<Vec<u8>, NameError> {
        let name = match self.classify(stored) {
            Class::Entry if self.mode == NameMode::Plain => decode_plain(stored).to_vec(),
            Class::Entry => self.open(dir, &from_base64(stored).ok_or(NameError::Forged)?, false)?,
            Class::Long => {
                let sealed = sidecar.ok_or(NameError::NoSidecar)?;
                if !ct_eq(self.long_name(sealed).as_bytes(), stored) {
                    return Err(NameError::Forged);
                }
                self.open(dir, sealed, true)?
            }
            Class::Temporary | Class::Own => return Err(NameError::Forged),
        };
        check(&name).map_err(|_| NameError::Forged)?;
        Ok(name)
    }

    /// Whether `content` is what the sidecar of this name must have.
    pub fn is_sidecar(&self, name: &[u8], content: &[u8]) -> bool {
        name.strip_suffix(SIDECAR.as_bytes()) == Some(self.long_name(content).as_bytes())
    }

    /// What a name found in the store is.
    pub fn classify(&self, stored: &[u8]) -> Class {
        if !stored.starts_with(RESERVED.as_bytes()) {
            return Class::Entry;
        }
        if stored.starts_with(TEMPORARY.as_bytes()) {
            return Class::Temporary;
        }
        match self.mode {
            NameMode::Plain if stored.starts_with(PLAIN.as_bytes()) => Class::Entry,
            NameMode::Encrypted if is_long(stored) => Class::Long,
            _ => Class::Own,
        }
    }

    /// Whether a stored name looks like one that this vault could have written, or like one that was damaged: otherwise some other
    /// program made it.
    pub fn has_form(&self, stored: &[u8]) -> bool {
        match self.classify(stored) {
            // Its characters do not count: a damaged name should not pass for another program's.
            Class::Entry if self.mode == NameMode::Encrypted => {
                short_lengths().any(|len| stored.len() == len)
            }
            Class::Own if stored.starts_with(LONG.as_bytes()) => {
                stored.strip_suffix(SIDECAR.as_bytes()).is_some_and(is_long)
            }
            Class::Own => {
                let begins = |prefix: &str| stored.starts_with(prefix.as_bytes());
                let is = |name: &str| stored == name.as_bytes();
                FILES.into_iter().chain([LINKS, LISTS]).any(is)
                    || [ASIDE, REWRITE, FORMER_LIST, LOST].into_iter().any(begins)
            }
            Class::Entry | Class::Long | Class::Temporary => true,
        }
    }

    fn open(&self, dir: &DirId, sealed: &[u8], long: bool) -> Result<Vec<u8>, NameError> {
        let padded = self.siv.open(&[&dir.0], sealed).map_err(|_| NameError::Forged)?;
        let name = unpad16(&padded).ok_or(NameError::Forged)?;
        // One stored form a name: otherwise two entries could carry the same one.
        if (name.len() > SHORT_MAX) == long { Ok(name.to_vec()) } else { Err(NameError::Forged) }
    }

    fn long_name(&self, sealed: &[u8]) -> String {
        LONG.to_owned() + &to_base64(&self.hash.digest(&[sealed]))
    }
}

/// Name of the sidecar of a long stored name.
pub fn sidecar_name(stored: &[u8]) -> Vec<u8> {
    [stored, SIDECAR.as_bytes()].concat()
}

/// Parts of a stray's name that have the length and the alphabet of a stored name, the longest first: a program that made a copy
/// of an entry may have put something before and behind its name. Long names are found by their hash, without the prefix: some
/// programs put something before what follows the last dot.
pub fn stored_names_in(stray: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let is_alphabet =
        |part: &&[u8]| part.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let is_long = stray.windows(LONG.len() - 1).any(|part| part == &LONG.as_bytes()[..LONG.len() - 1]);
    let hashes = is_long.then(|| stray.windows(base64_len(HASH))).into_iter().flatten();
    let hashes = hashes.filter(is_alphabet).map(|hash| [LONG.as_bytes(), hash].concat());
    let short =
        short_lengths().flat_map(move |len| stray.windows(len).filter(is_alphabet).map(<[u8]>::to_vec));
    hashes.chain(short)
}

/// The vault's own file of which a name without the form of the vault's says that it is another program's copy: more
/// stands behind the whole name, or in front of what follows its last dot, which some programs keep last.
pub fn copied_from(stored: &[u8]) -> Option<&'static str> {
    let is_more = |rest: &[u8]| rest.first().is_some_and(|byte| !byte.is_ascii_alphanumeric());
    FILES.into_iter().find(|own| {
        let (head, extension) = own.split_at(own.rfind('.').unwrap_or(own.len()));
        let behind = stored.strip_prefix(own.as_bytes());
        let within =
            stored.strip_prefix(head.as_bytes()).and_then(|rest| rest.strip_suffix(extension.as_bytes()));
        behind.or(within).is_some_and(is_more)
    })
}

/// Whether a client of an NFS server gave this name to a file that was removed while a program had it open.
pub fn is_removed_over_nfs(stored: &[u8]) -> bool {
    let number = stored.strip_prefix(b".nfs").unwrap_or_default();
    !number.is_empty() && number.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'.')
}

/// Whether file managers and servers leave a file or directory with this name behind, which nobody misses.
pub fn is_litter(stored: &[u8]) -> bool {
    const LITTER: [&str; 9] = [
        ".DS_Store",
        ".directory",
        "@eaDir",
        "Desktop.ini",
        "Thumbs.db",
        "Thumbs.db:encryptable",
        "desktop.ini",
        "ehthumbs.db",
        "ehthumbs_vista.db",
    ];
    LITTER.iter().any(|name| stored == name.as_bytes()) || is_removed_over_nfs(stored)
}

/// The lengths of stored names without a sidecar, the longest first.
fn short_lengths() -> impl Iterator<Item = usize> {
    (1..=SHORT_MAX / 16).rev().map(|blocks| base64_len(blocks * 16 + SivKey::OVERHEAD))
}

fn is_long(stored: &[u8]) -> bool {
    stored.starts_with(LONG.as_bytes()) && stored.len() == LONG.len() + base64_len(HASH)
}

/// Whether `name` can be an entry of a directory.
fn check(name: &[u8]) -> Result<(), NameError> {
    if name.len() > NAME_MAX {
        return Err(NameError::TooLong);
    }
    let reserved = name.is_empty() || name == b"." || name == b"..";
    if reserved || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(NameError::Invalid);
    }
    Ok(())
}

fn encode_plain(name: &[u8]) -> Result<Encoded, NameError> {
    let escape = if name.starts_with(RESERVED.as_bytes()) { PLAIN.as_bytes() } else { b"" };
    let stored = [escape, name].concat();
    if stored.len() > NAME_MAX { Err(NameError::TooLong) } else { Ok(Encoded { stored, sidecar: None }) }
}

/// The name behind a plain stored one; empty, and so refused, for an escape that was not needed.
fn decode_plain(stored: &[u8]) -> &[u8] {
    match stored.strip_prefix(PLAIN.as_bytes()) {
        None => stored,
        Some(name) if name.starts_with(RESERVED.as_bytes()) => name,
        Some(_) => b"",
    }
}

#[cfg(test)]
mod tests;
