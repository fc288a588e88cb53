//! The list of what a vault accepts under its former key: a 16-byte item for each object, in ascending order,
//! in blocks that each have a MAC. It is written once, at the start of a rotation, under the new master key.

use super::keys;
use crypto::{
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::{Secret, ct_eq},
};

/// Size of a list's id in bytes.
pub const LIST_ID: usize = 12;
/// Size of a block in bytes.
pub const BLOCK: usize = 4096;
/// Size of an item in bytes.
pub const ITEM: usize = 16;
/// Number of items in a block.
pub const ITEMS: usize = (BLOCK - MAC) / ITEM;

/// Size in bytes of the MAC at the end of a block.
const MAC: usize = 16;

/// A MAC that represents one accepted object.
pub type Item = [u8; ITEM];

/// Reference to a list, as stored in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListId {
    /// Distinguishes it from other lists. The name of its file ends with it.
    pub id: [u8; LIST_ID],
    /// Number of items in the list.
    pub items: u64,
}

impl ListId {
    /// Number of blocks in the list.
    pub fn blocks(&self) -> u64 {
        self.items.div_ceil(ITEMS as u64)
    }
}

/// The kind of object that an item represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// A file: the clean record.
    File,
    /// A directory: the id file.
    Directory,
    /// An encrypted name, in its stored form.
    Name,
    /// The stored target of a symbolic link.
    Link,
    /// The file that holds a long target.
    LongTarget,
    /// The stored name of an attribute.
    AttributeName,
    /// The stored value of an attribute.
    Attribute,
    /// The file that holds a list of attributes.
    Attributes,
}

impl Listed {
    fn number(self) -> u8 {
        match self {
            Listed::File => 1,
            Listed::Directory => 2,
            Listed::Name => 3,
            Listed::Link => 4,
            Listed::LongTarget => 5,
            Listed::AttributeName => 6,
            Listed::Attribute => 7,
            Listed::Attributes => 8,
        }
    }
}

/// Keys for the items and blocks of a list.
pub struct ListKeys {
    items: MacKey,
    blocks: MacKey,
}

impl ListKeys {
    /// Derives the keys from the new master key of a rotation.
    pub fn derive(master: &Secret<32>) -> Self {
        let key = subkey(master, keys::FORMER_LIST);
        let of = |custom| MacKey::new(Mac::Kmac256, key.expose(), custom);
        ListKeys { items: of(b"warpcrypt v2 former item"), blocks: of(b"warpcrypt v2 former block") }
    }

    /// The item of an object with these stored bytes.
    pub fn item(&self, kind: Listed, stored: &[u8]) -> Item {
        self.items.tag(&[&[kind.number()], stored])
    }

    /// Makes block number `index` of a list. `items` are 1 to [`ITEMS`] items; the last one is repeated
    /// to fill the block.
    ///
    /// # Panics
    /// If there is no item, or there are more than [`ITEMS`].
    pub fn seal(&self, list: &ListId, index: u64, items: &[Item]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let filled = items.iter().chain(std::iter::repeat(&items[items.len() - 1])).take(ITEMS);
        assert!(items.len() <= ITEMS);
        for (place, item) in block[..ITEMS * ITEM].as_chunks_mut::<ITEM>().0.iter_mut().zip(filled) {
            *place = *item;
        }
        let mac = self.mac(list, index, &block);
        block[BLOCK - MAC..].copy_from_slice(&mac);
        block
    }

    /// The items of a block, in ascending order; `None` if it does not authenticate as block
    /// `index` of `list`.
    pub fn open<'a>(&self, list: &ListId, index: u64, block: &'a [u8; BLOCK]) -> Option<&'a [Item]> {
        let mac = self.mac(list, index, block);
        ct_eq(&mac, &block[BLOCK - MAC..]).then(|| block[..ITEMS * ITEM].as_chunks::<ITEM>().0)
    }

    fn mac(&self, list: &ListId, index: u64, block: &[u8; BLOCK]) -> [u8; MAC] {
        let (items, index) = (list.items.to_be_bytes(), index.to_be_bytes());
        self.blocks.tag(&[&list.id, &items, &index, &block[..BLOCK - MAC]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> ListKeys {
        ListKeys::derive(&Secret::new_with(|key| key.fill(byte)))
    }

    #[test]
    fn a_block_opens_in_its_place_alone() {
        let list = ListId { id: [7; LIST_ID], items: 300 };
        let items: Vec<Item> = (0..45u8).map(|n| [n; ITEM]).collect();
        let block = keys(1).seal(&list, 1, &items);
        let opened = keys(1).open(&list, 1, &block).unwrap();
        assert_eq!((opened.len(), &opened[..45], opened[254]), (ITEMS, &items[..], [44; ITEM]));
        assert!(keys(2).open(&list, 1, &block).is_none());
        assert!(keys(1).open(&list, 0, &block).is_none());
        assert!(keys(1).open(&ListId { items: 299, ..list }, 1, &block).is_none());
        assert!(keys(1).open(&ListId { id: [8; LIST_ID], ..list }, 1, &block).is_none());
        for at in 0..BLOCK {
            let mut changed = block;
            changed[at] ^= 1;
            assert!(keys(1).open(&list, 1, &changed).is_none(), "byte {at}");
        }
    }

    #[test]
    fn items_of_two_kinds_or_keys_differ() {
        assert_ne!(keys(1).item(Listed::Name, b"x"), keys(1).item(Listed::Link, b"x"));
        assert_ne!(keys(1).item(Listed::Name, b"x"), keys(2).item(Listed::Name, b"x"));
        assert_eq!([0, 1, 255, 256].map(|items| ListId { id: [0; LIST_ID], items }.blocks()), [0, 1, 1, 2]);
    }
}
