//! Lists of extended attributes that the store had no room for: names and values of one file or directory,
//! sealed together, to be kept in a file of the vault.

use super::{
    bytes::{from_base64, to_base64},
    dir_id::DirId,
    xattr::{NAME_MAX, NONCE, Owner, VALUE_MAX, XattrKeys},
};
use crypto::{AuthError, random, siv::SivKey};
use std::{collections::BTreeMap, io};

/// Maximum size of a list in bytes, before sealing.
pub const LIST_MAX: usize = 1 << 20;
/// Maximum total length in bytes of the names on a node with a list, each with its NUL. The kernel lists at
/// most 65,536 bytes, which includes the names of ACLs.
pub const NAMES_MAX: usize = 65_000;
/// Maximum size in bytes of a file with a list.
pub const SEALED_MAX: usize = LIST_MAX + NONCE + SivKey::OVERHEAD;

/// Context in which lists, and the names of their files, are sealed.
const CONTEXT: &[u8] = b"list";
/// First byte of the plaintext in the name of a list's file: list of a file, or of a directory.
const OF_FILE: u8 = b'f';
const OF_DIR: u8 = b'd';

/// Attributes by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XattrList(BTreeMap<Vec<u8>, Vec<u8>>);

/// The node that a list belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListOwner {
    /// A regular file, identified by the salt.
    File([u8; 32]),
    /// A directory, identified by the id.
    Dir(DirId),
}

impl ListOwner {
    /// The same node, as the owner of single attributes.
    pub fn owner(&self) -> Owner<'_> {
        match self {
            ListOwner::File(salt) => Owner::File(salt),
            ListOwner::Dir(id) => Owner::Dir(id),
        }
    }
}

impl XattrList {
    /// Parses the encoded list; `None` if names do not ascend strictly, or anything is malformed.
    pub fn parse(mut bytes: &[u8]) -> Option<XattrList> {
        let mut list = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        while !bytes.is_empty() {
            let len;
            (len, bytes) = bytes.split_first_chunk::<2>()?;
            let name;
            (name, bytes) = bytes.split_at_checked(u16::from_be_bytes(*len).into())?;
            let len;
            (len, bytes) = bytes.split_first_chunk::<4>()?;
            let value;
            (value, bytes) = bytes.split_at_checked(u32::from_be_bytes(*len).try_into().ok()?)?;
            let ascends = list.last_key_value().is_none_or(|(last, _)| last.as_slice() < name);
            if !ascends
                || name.is_empty()
                || name.len() > NAME_MAX
                || name.contains(&0)
                || value.len() > VALUE_MAX
            {
                return None;
            }
            list.insert(name.to_vec(), value.to_vec());
        }
        Some(XattrList(list))
    }

    /// Encodes the list.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.0 {
            // The casts are lossless: `insert` and `parse` limit both lengths.
            bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Sets an attribute. Returns false and changes nothing if the list would exceed `LIST_MAX`, or if name
    /// or value exceed their maximum length.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let fits = |name: &[u8], value: &[u8]| name.len() <= NAME_MAX && value.len() <= VALUE_MAX;
        let others = self.0.iter().filter(|(other, _)| other.as_slice() != name);
        let len: usize = others.map(|(name, value)| name.len() + value.len() + 6).sum();
        let ok = fits(name, value) && len + name.len() + value.len() + 6 <= LIST_MAX;
        if ok {
            self.0.insert(name.to_vec(), value.to_vec());
        }
        ok
    }

    /// Removes an attribute; false if there was none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.0.remove(name).is_some()
    }

    /// The value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Whether the list has no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Total length of the names in bytes, each with its NUL.
    pub fn names_len(&self) -> usize {
        self.names().map(|name| name.len() + 1).sum()
    }

    /// The names, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }
}

impl XattrKeys {
    /// Name of the file with a node's list.
    pub fn list_name(&self, owner: &ListOwner) -> String {
        let of = match owner {
            ListOwner::File(salt) => [&[OF_FILE], &salt[..]].concat(),
            ListOwner::Dir(id) => [&[OF_DIR], &id.0[..]].concat(),
        };
        to_base64(&self.names.seal(&[CONTEXT], &of))
    }

    /// The node whose list is in the file named `name`.
    ///
    /// # Errors
    /// `AuthError` if the name was not made by `list_name` with these keys.
    pub fn list_owner(&self, name: &[u8]) -> Result<ListOwner, AuthError> {
        let of = self.names.open(&[CONTEXT], &from_base64(name).ok_or(AuthError)?)?;
        let (kind, identity) = of.split_first().ok_or(AuthError)?;
        match *kind {
            OF_FILE => Ok(ListOwner::File(identity.try_into().map_err(|_| AuthError)?)),
            OF_DIR => Ok(ListOwner::Dir(DirId(identity.try_into().map_err(|_| AuthError)?))),
            _ => Err(AuthError),
        }
    }

    /// Encrypts a list. The content of its file is a fresh nonce and the sealed list.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn encode_list(&self, owner: &ListOwner, list: &XattrList) -> io::Result<Vec<u8>> {
        let mut stored = vec![0; NONCE];
        random::fill(&mut stored)?;
        let owner = owner.owner();
        let (kind, identity) = owner.context();
        let sealed = self.values.seal(&[CONTEXT, kind, identity, &stored], &list.bytes());
        stored.extend_from_slice(&sealed);
        Ok(stored)
    }

    /// Decrypts the content of a list's file.
    ///
    /// # Errors
    /// `AuthError` if the content was not made by `encode_list` for this owner.
    pub fn decode_list(&self, owner: &ListOwner, stored: &[u8]) -> Result<XattrList, AuthError> {
        let (nonce, sealed) = stored.split_first_chunk::<NONCE>().ok_or(AuthError)?;
        let owner = owner.owner();
        let (kind, identity) = owner.context();
        let bytes = self.values.open(&[CONTEXT, kind, identity, nonce], sealed)?;
        XattrList::parse(&bytes).ok_or(AuthError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::{cipher::Cipher, secret::Secret};
    use proptest::prelude::*;

    const FILE: ListOwner = ListOwner::File([5; 32]);
    const DIR: ListOwner = ListOwner::Dir(DirId([5; 16]));

    fn keys() -> XattrKeys {
        XattrKeys::derive(&Secret::new_with(|k| k.fill(1)), Cipher::Kuznyechik)
    }

    fn list() -> XattrList {
        let mut list = XattrList::default();
        assert!(list.insert(b"user.b", &[7; 300]) && list.insert(b"user.a", b""));
        list
    }

    #[test]
    fn a_list_reads_as_it_was_written_by_its_owner_alone() {
        let sealed = keys().encode_list(&FILE, &list()).unwrap();
        assert_eq!(keys().decode_list(&FILE, &sealed).unwrap(), list());
        for other in [DIR, ListOwner::File([6; 32])] {
            assert_eq!(keys().decode_list(&other, &sealed), Err(AuthError));
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(keys().decode_list(&FILE, &changed), Err(AuthError), "byte {at}");
        }
    }

    #[test]
    fn the_name_of_a_list_says_to_the_key_whose_it_is() {
        for owner in [FILE, DIR] {
            let name = keys().list_name(&owner);
            assert_eq!(keys().list_owner(name.as_bytes()), Ok(owner));
            assert!(keys().list_owner(&name.as_bytes()[1..]).is_err());
        }
    }

    #[test]
    fn the_longest_list_fits_and_no_longer_one() {
        let mut list = XattrList::default();
        let value = vec![1; VALUE_MAX];
        let taken = (0..20).filter(|n| list.insert(format!("user.{n:02}").as_bytes(), &value)).count();
        assert_eq!(taken, 15);
        let left = LIST_MAX - list.bytes().len();
        assert!(!list.insert(b"user.y", &vec![1; left - 11]));
        assert!(list.insert(b"user.y", &vec![1; left - 12]));
        assert_eq!(list.bytes().len(), LIST_MAX);
        assert!(list.insert(b"user.00", b"shorter") && list.remove(b"user.y") && !list.remove(b"user.y"));
        assert!(!list.insert(b"user.z", &vec![1; VALUE_MAX + 1]));
    }

    #[test]
    fn only_ascending_names_are_parsed() {
        let bytes = list().bytes();
        assert_eq!(XattrList::parse(&bytes), Some(list()));
        assert_eq!(XattrList::parse(&[&bytes[..], &bytes[..]].concat()), None);
        assert_eq!(XattrList::parse(&bytes[1..]), None);
        assert_eq!(XattrList::parse(&[0; 6]), None, "a name of no bytes");
        assert_eq!(XattrList::parse(&[]), Some(XattrList::default()));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(list) = XattrList::parse(&bytes) {
                prop_assert_eq!(list.bytes(), bytes.clone());
            }
            prop_assert!(keys().decode_list(&FILE, &bytes).is_err());
            prop_assert!(keys().list_owner(&bytes).is_err());
        }
    }
}
