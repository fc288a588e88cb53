//! POSIX access control lists in the binary form of Linux's `system.posix_acl_*` attributes, version 2:
//! a header of four bytes, then entries of eight (tag, permissions, id), all little-endian. Which
//! entries are required, and how entries and a mode determine each other, follows acl(5) and POSIX
//! 1003.1e draft 17.

/// Version of the binary form.
const VERSION: u32 = 2;
/// Bytes of an entry.
const ENTRY: usize = 8;
/// The id in entries without an id.
const NO_ID: u32 = u32::MAX;
/// Maximum number of entries, limited by the largest attribute that Linux accepts.
const MOST: usize = (65_536 - 4) / ENTRY;

/// The subject of an entry. The variants are in the order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AclTag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Others,
}

impl AclTag {
    fn decode(tag: u16, id: u32) -> Option<Self> {
        match tag {
            0x01 => Some(AclTag::Owner),
            0x02 => Some(AclTag::User(id)),
            0x04 => Some(AclTag::OwningGroup),
            0x08 => Some(AclTag::Group(id)),
            0x10 => Some(AclTag::Mask),
            0x20 => Some(AclTag::Others),
            _ => None,
        }
    }

    fn encode(self) -> (u16, u32) {
        match self {
            AclTag::Owner => (0x01, NO_ID),
            AclTag::User(id) => (0x02, id),
            AclTag::OwningGroup => (0x04, NO_ID),
            AclTag::Group(id) => (0x08, id),
            AclTag::Mask => (0x10, NO_ID),
            AclTag::Others => (0x20, NO_ID),
        }
    }
}

/// An access control list: ordered entries, at least one each for owner, owning group and others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<(AclTag, u32)>);

impl Acl {
    /// Parses the binary form; `None` if it is not a valid list.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (entries, []) = rest.as_chunks::<ENTRY>() else { return None };
        if u32::from_le_bytes(*version) != VERSION || entries.len() > MOST {
            return None;
        }
        let entry = |[a, b, c, d, id @ ..]: &[u8; ENTRY]| {
            let tag = AclTag::decode(u16::from_le_bytes([*a, *b]), u32::from_le_bytes(*id))?;
            let rights = u16::from_le_bytes([*c, *d]);
            (rights <= 7).then_some((tag, rights.into()))
        };
        let acl = Acl(entries.iter().map(entry).collect::<Option<_>>()?);
        acl.is_valid().then_some(acl)
    }

    /// The binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights) in &self.0 {
            let (tag, id) = tag.encode();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&(*rights as u16).to_le_bytes()); // at most 7
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Whether entries are unique and in order, and no required entry is missing.
    fn is_valid(&self) -> bool {
        let has = |tag| self.0.iter().any(|(other, _)| *other == tag);
        let named = self.0.iter().any(|(tag, _)| matches!(tag, AclTag::User(_) | AclTag::Group(_)));
        self.0.is_sorted_by(|(a, _), (b, _)| a < b)
            && [AclTag::Owner, AclTag::OwningGroup, AclTag::Others].into_iter().all(has)
            && (has(AclTag::Mask) || !named)
    }

    /// Whether the list is equivalent to a mode.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that represent the list, 0 to 0o777.
    pub fn mode(&self) -> u32 {
        self.0
            .iter()
            .fold(0, |mode, (tag, rights)| self.shift(*tag).map_or(mode, |shift| mode | rights << shift))
    }

    /// The permission bits for a node that cannot store the list. The group bits are the effective
    /// permissions of the owning group.
    pub fn mode_alone(&self) -> u32 {
        let rights = |wanted| self.0.iter().find(|(tag, _)| *tag == wanted).map_or(7, |(_, rights)| *rights);
        self.mode() & !0o070 | (rights(AclTag::OwningGroup) & rights(AclTag::Mask)) << 3
    }

    /// The list after chmod(2) to this mode.
    pub fn with_mode(mut self, mode: u32) -> Self {
        for at in 0..self.0.len() {
            if let Some(shift) = self.shift(self.0[at].0) {
                self.0[at].1 = mode >> shift & 7;
            }
        }
        self
    }

    /// The access list of a node created with `mode` in a directory that has this default list.
    pub fn inherited(&self, mode: u32) -> Self {
        self.clone().with_mode(self.mode() & mode)
    }

    /// Position of an entry's permissions in a mode; `None` if a mode does not contain them. The group
    /// bits of a mode belong to the mask, if there is one.
    fn shift(&self, tag: AclTag) -> Option<u32> {
        let masked = self.0.iter().any(|(tag, _)| *tag == AclTag::Mask);
        match tag {
            AclTag::Owner => Some(6),
            AclTag::OwningGroup if !masked => Some(3),
            AclTag::Mask => Some(3),
            AclTag::Others => Some(0),
            AclTag::OwningGroup | AclTag::User(_) | AclTag::Group(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(AclTag, u32)]) -> Acl {
        Acl(entries.to_vec())
    }

    /// As set by setfacl(1): u::rw-, u:1000:r-x, g::r--, m::rwx, o::---.
    fn extended() -> Acl {
        acl(&[
            (AclTag::Owner, 6),
            (AclTag::User(1000), 5),
            (AclTag::OwningGroup, 4),
            (AclTag::Mask, 7),
            (AclTag::Others, 0),
        ])
    }

    #[test]
    fn the_binary_form_is_linux_s() {
        let bytes = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 5, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255,
            255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        assert_eq!(extended().encode(), bytes);
        assert_eq!(Acl::parse(&bytes), Some(extended()));
    }

    #[test]
    fn the_mask_stands_for_the_group_in_a_mode() {
        assert_eq!(extended().mode(), 0o670);
        assert!(!extended().is_mode());
        let changed = extended().with_mode(0o751);
        assert_eq!(changed.mode(), 0o751);
        assert_eq!(changed.0[2], (AclTag::OwningGroup, 4), "the group's own entry stays");
        let small = acl(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Others, 1)]);
        assert!(small.is_mode());
        assert_eq!((small.mode(), small.with_mode(0o640).mode()), (0o751, 0o640));
    }

    #[test]
    fn what_is_made_has_no_more_than_both_allow() {
        let made = extended().inherited(0o644);
        assert_eq!(made.mode(), 0o640);
        assert_eq!(made.0[1], (AclTag::User(1000), 5));
    }

    #[test]
    fn lists_that_are_not_valid_are_refused() {
        let three = [(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Others, 1)];
        for bad in [
            acl(&three[..2]),
            acl(&[three[0], three[0], three[1], three[2]]),
            acl(&[three[1], three[0], three[2]]),
            acl(&[three[0], (AclTag::User(1), 7), three[1], three[2]]),
            acl(&[three[0], three[1], (AclTag::Group(2), 8), (AclTag::Mask, 7), three[2]]),
            acl(&[]),
        ] {
            assert_eq!(Acl::parse(&bad.encode()), None, "{bad:?}");
        }
        let good = acl(&three).encode();
        assert!(Acl::parse(&good).is_some());
        assert_eq!(Acl::parse(&good[..good.len() - 1]), None);
        assert_eq!(Acl::parse(&[&[3], &good[1..]].concat()), None);
        assert_eq!(Acl::parse(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(acl) = Acl::parse(&bytes) {
                prop_assert!(acl.mode() <= 0o777);
                prop_assert_eq!(Acl::parse(&acl.encode()), Some(acl));
            }
        }
    }
}
