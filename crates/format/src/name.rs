//! Names of directory entries: the conversion between plaintext names and names in the store.
//!
//! Encryption is deterministic under the directory's id, so that a lookup needs no listing. A name whose
//! encoding would be too long is stored as a hash, with its ciphertext in a sidecar file next to the entry.

use super::{
    bytes::{base64_len, from_base64, pad16, to_base64, unpad16},
    dir_id::DirId,
    keys,
};
use crypto::{
    cipher::Cipher,
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::{Secret, ct_eq},
    siv::SivKey,
};

/// Prefix of all names that the vault reserves for its own files.
pub const RESERVED: &str = "warpcrypt.";
/// The configuration, in the vault's root.
pub const CONFIG_FILE: &str = "warpcrypt.json";
/// The second copy of the configuration, in the vault's root.
pub const CONFIG_COPY: &str = "warpcrypt.json.copy";
/// The directory's id, in every directory.
pub const DIR_ID_NAME: &str = "warpcrypt.dir";
/// The writer's lock, in the vault's root.
pub const LOCK_FILE: &str = "warpcrypt.lock";
/// Change times that are shown instead of the store's, in the vault's root.
pub const TIMES_FILE: &str = "warpcrypt.times";
/// Prefix of files that are not in place yet. A file left behind by a crash may be removed.
pub const TEMPORARY: &str = "warpcrypt.tmp.";
/// Prefix of data that was set aside, in the vault's root: a copy of what followed a file's blank header,
/// or a directory made by a repair. Not part of the plaintext tree.
pub const ASIDE: &str = "warpcrypt.aside.";
/// Prefix of the new form of a file during its rewrite, in the vault's root.
pub const REWRITE: &str = "warpcrypt.rewrite.";
/// Prefix of the list of what is accepted under the former key, in the vault's root.
pub const FORMER_LIST: &str = "warpcrypt.former.";
/// Prefix of a directory with entries that lost the id of their directory.
pub const LOST: &str = "warpcrypt.lost.";
/// Directory with the long targets of symbolic links, in the vault's root.
pub const LINKS: &str = "warpcrypt.links";
/// Directory with the lists of extended attributes that the store had no room for, in the vault's root.
pub const LISTS: &str = "warpcrypt.xattrs";
/// Prefix of the stored form of a long name.
pub const LONG: &str = "warpcrypt.long.";
/// Suffix of a sidecar's name, after the stored name of its entry.
pub const SIDECAR: &str = ".name";
/// Escape prefix that separates plain names from reserved ones.
pub const PLAIN: &str = "warpcrypt.plain.";
/// The vault's own files with a fixed name.
const FILES: [&str; 5] = [CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, TIMES_FILE];
/// Maximum length of a name in bytes, plain or stored.
pub const NAME_MAX: usize = 255;
/// Maximum length in bytes of an encrypted name that is stored without a sidecar.
const SHORT_MAX: usize = 160;
/// The same limit for [`NameMode::EncryptedShort`].
const SHORTER_MAX: usize = 80;
/// Maximum length in bytes of a name in eCryptfs.
const ECRYPTFS_MAX: usize = 143;

/// Size in bytes of the hash in a long stored name.
const HASH: usize = 32;

const _: () = assert!(short_len(SHORT_MAX) <= NAME_MAX && short_len(SHORT_MAX + 1) > NAME_MAX);
const _: () = assert!(short_len(SHORTER_MAX) <= ECRYPTFS_MAX && short_len(SHORTER_MAX + 1) > ECRYPTFS_MAX);

/// How a vault stores names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameMode {
    /// Encrypted and authenticated.
    Encrypted,
    /// Encrypted and authenticated, with stored names of at most 128 bytes, for stores that refuse longer
    /// ones.
    EncryptedShort,
    /// Stored as they are: neither hidden nor protected.
    Plain,
}

impl NameMode {
    /// All modes.
    pub const ALL: [NameMode; 3] = [NameMode::Encrypted, NameMode::EncryptedShort, NameMode::Plain];

    /// The mode's name in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NameMode::Encrypted => "encrypted",
            NameMode::EncryptedShort => "encrypted-short",
            NameMode::Plain => "plain",
        }
    }

    /// Whether names are encrypted.
    pub fn is_encrypted(self) -> bool {
        match self {
            NameMode::Encrypted | NameMode::EncryptedShort => true,
            NameMode::Plain => false,
        }
    }

    /// Maximum length in bytes of a name that is stored without a sidecar.
    pub fn short_max(self) -> usize {
        match self {
            NameMode::Encrypted => SHORT_MAX,
            NameMode::EncryptedShort => SHORTER_MAX,
            NameMode::Plain => NAME_MAX,
        }
    }

    /// Length in bytes of the longest stored name.
    pub fn stored_max(self) -> usize {
        match self {
            NameMode::Encrypted | NameMode::EncryptedShort => short_len(self.short_max()),
            NameMode::Plain => NAME_MAX,
        }
    }

    /// Maximum length in bytes of a name in a store whose own names have at most `store_max` bytes.
    pub fn name_max(self, store_max: usize) -> usize {
        match self {
            NameMode::Encrypted | NameMode::EncryptedShort if store_max < self.stored_max() => {
                (1..=self.short_max()).rev().find(|&len| short_len(len) <= store_max).unwrap_or(0)
            }
            NameMode::Encrypted | NameMode::EncryptedShort => NAME_MAX,
            NameMode::Plain => store_max.min(NAME_MAX),
        }
    }

    /// Lengths in bytes of encrypted stored names without a sidecar, longest first.
    fn short_lengths(self) -> impl Iterator<Item = usize> {
        (1..=self.short_max() / 16).rev().map(|blocks| short_len(blocks * 16))
    }
}

/// A stored name, with the content of its sidecar if it is a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The name of the entry in the store.
    pub stored: Vec<u8>,
    /// Content of `sidecar_name(&stored)`. It must be durable before the entry.
    pub sidecar: Option<Vec<u8>>,
}

/// Kinds of names found in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// An entry whose name decodes without a sidecar.
    Entry,
    /// An entry whose name decodes only with its sidecar.
    Long,
    /// A leftover of an unfinished write.
    Temporary,
    /// A file of the vault's own: configuration, lock, directory id, sidecar.
    Own,
}

/// Why a name cannot be stored or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than 255 bytes, or than 239 for a plain name that begins with `warpcrypt.`.
    #[error("name too long")]
    TooLong,
    /// Empty, ".", "..", or containing a slash or a zero byte.
    #[error("not a file name")]
    Invalid,
    /// The stored name, or its sidecar, was not written by this vault in this directory.
    #[error("stored name does not authenticate")]
    Forged,
    /// The sidecar of a long name is missing.
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
    /// Derives the keys from the vault's master key.
    pub fn derive(master: &Secret<32>, cipher: Cipher, mode: NameMode) -> Self {
        let hash = subkey(master, keys::LONG_NAMES);
        NameKeys {
            mode,
            siv: SivKey::new(cipher, &subkey(master, keys::NAMES)),
            hash: MacKey::new(Mac::Kmac256, hash.expose(), b"warpcrypt v2 long name"),
        }
    }

    /// Whether a stored name is valid only under its directory's id.
    pub fn depend_on_directory(&self) -> bool {
        self.mode.is_encrypted()
    }

    /// See [`NameMode::name_max`].
    pub fn name_max(&self, store_max: usize) -> usize {
        self.mode.name_max(store_max)
    }

    /// Whether an entry with this plaintext name has a sidecar.
    pub fn needs_sidecar(&self, name: &[u8]) -> bool {
        name.len() > self.mode.short_max()
    }

    /// Encodes `name` for the directory with this id.
    ///
    /// # Errors
    /// `TooLong` or `Invalid`.
    pub fn encode(&self, dir: &DirId, name: &[u8]) -> Result<Encoded, NameError> {
        check(name)?;
        if self.mode == NameMode::Plain {
            return encode_plain(name);
        }
        let sealed = self.siv.seal(&[&dir.0], &pad16(name));
        if !self.needs_sidecar(name) {
            return Ok(Encoded { stored: to_base64(&sealed).into_bytes(), sidecar: None });
        }
        Ok(Encoded { stored: self.long_name(&sealed).into_bytes(), sidecar: Some(sealed) })
    }

    /// Decodes the stored name of an entry of the directory with this id. `sidecar` is the content of
    /// `sidecar_name(stored)`, required if `classify` returns `Long`.
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

    /// Whether `content` is the correct content for the sidecar named `name`.
    pub fn is_sidecar(&self, name: &[u8], content: &[u8]) -> bool {
        name.strip_suffix(SIDECAR.as_bytes()) == Some(self.long_name(content).as_bytes())
    }

    /// Classifies a name found in the store, without authenticating it.
    pub fn classify(&self, stored: &[u8]) -> Class {
        if !stored.starts_with(RESERVED.as_bytes()) {
            return Class::Entry;
        }
        if stored.starts_with(TEMPORARY.as_bytes()) {
            return Class::Temporary;
        }
        match self.mode {
            NameMode::Plain if stored.starts_with(PLAIN.as_bytes()) => Class::Entry,
            NameMode::Encrypted | NameMode::EncryptedShort if is_long(stored) => Class::Long,
            _ => Class::Own,
        }
    }

    /// Whether a stored name could have been written by this vault, possibly damaged since. Otherwise
    /// another program wrote it.
    pub fn has_form(&self, stored: &[u8]) -> bool {
        match self.classify(stored) {
            // The characters are not checked: a damaged name should not be mistaken for another
            // program's file.
            Class::Entry if self.mode.is_encrypted() => {
                self.mode.short_lengths().any(|len| stored.len() == len)
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

    /// Parts of a stray file's name that have the length and alphabet of an encrypted stored name, longest
    /// first. A program that copied an entry may have added text before or after its name. Long names are
    /// found by their hash, because some programs insert text before the last dot of the name and so split
    /// the prefix from the hash.
    pub fn stored_names_in(&self, stray: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let is_alphabet =
            |part: &&[u8]| part.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
        let is_long = stray.windows(LONG.len() - 1).any(|part| part == &LONG.as_bytes()[..LONG.len() - 1]);
        let hashes = is_long.then(|| stray.windows(base64_len(HASH))).into_iter().flatten();
        let hashes = hashes.filter(is_alphabet).map(|hash| [LONG.as_bytes(), hash].concat());
        let short = self.mode.short_lengths();
        let short = short.flat_map(move |len| stray.windows(len).filter(is_alphabet).map(<[u8]>::to_vec));
        hashes.chain(short)
    }

    fn open(&self, dir: &DirId, sealed: &[u8], long: bool) -> Result<Vec<u8>, NameError> {
        let padded = self.siv.open(&[&dir.0], sealed).map_err(|_| NameError::Forged)?;
        let name = unpad16(&padded).ok_or(NameError::Forged)?;
        // A name must have only one stored form: otherwise two entries could have the same name.
        if self.needs_sidecar(name) == long { Ok(name.to_vec()) } else { Err(NameError::Forged) }
    }

    fn long_name(&self, sealed: &[u8]) -> String {
        LONG.to_owned() + &to_base64(&self.hash.digest(&[sealed]))
    }
}

/// Name of the sidecar for a long stored name.
pub fn sidecar_name(stored: &[u8]) -> Vec<u8> {
    [stored, SIDECAR.as_bytes()].concat()
}

/// The vault's own file that a file named `stored` seems to be another program's copy of: its name is
/// followed by more text, or has text inserted before the extension. For names without the form of
/// the vault's own.
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

/// Whether this is the name that an NFS client gives to a file removed while a program has it open.
pub fn is_removed_over_nfs(stored: &[u8]) -> bool {
    let number = stored.strip_prefix(b".nfs").unwrap_or_default();
    !number.is_empty() && number.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'.')
}

/// Whether this is the name of a disposable file or directory that file managers and servers leave behind.
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

/// Length in bytes of the stored form without a sidecar of an encrypted name of `len` bytes.
const fn short_len(len: usize) -> usize {
    base64_len(len.next_multiple_of(16) + SivKey::OVERHEAD)
}

fn is_long(stored: &[u8]) -> bool {
    stored.starts_with(LONG.as_bytes()) && stored.len() == LONG.len() + base64_len(HASH)
}

/// Checks that `name` is valid for a directory entry.
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

/// The name in a plain stored name. For an unnecessary escape it is empty, and so refused by the caller.
fn decode_plain(stored: &[u8]) -> &[u8] {
    match stored.strip_prefix(PLAIN.as_bytes()) {
        None => stored,
        Some(name) if name.starts_with(RESERVED.as_bytes()) => name,
        Some(_) => b"",
    }
}

#[cfg(test)]
mod tests;
