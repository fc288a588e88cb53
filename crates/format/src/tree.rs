//! The hash tree over the current slots of a file.

use super::entry::{SLOT, Slot};
use crypto::kdf::FileKeys;

/// A digest; all zeros for a subtree that consists of holes.
pub type Digest = [u8; 32];
/// The digest of a subtree without any slot.
pub const ALL_HOLES: Digest = [0; 32];

/// Digest of a group, over its number and the current slot of each of its 48 or 64 chunks. All zeros if no
/// chunk has a slot.
pub fn leaf_digest<'a>(
    keys: &FileKeys,
    group: u64,
    slots: impl ExactSizeIterator<Item = Option<&'a Slot>>,
) -> Digest {
    leaf_slots(slots).map_or(ALL_HOLES, |slots| keys.leaf.digest(&group.to_be_bytes(), &slots))
}

/// Computes the `leaf_digest` of several groups side by side.
pub fn leaf_digests<'a, S: ExactSizeIterator<Item = Option<&'a Slot>>>(
    keys: &FileKeys,
    leaves: impl Iterator<Item = (u64, S)>,
) -> Vec<Digest> {
    let leaves: Vec<_> = leaves.map(|(group, slots)| (group.to_be_bytes(), leaf_slots(slots))).collect();
    let held = leaves.iter().filter_map(|(group, slots)| Some((&group[..], slots.as_deref()?)));
    let mut digests = keys.leaf.digests(&held.collect::<Vec<_>>()).into_iter();
    leaves.iter().map(|(_, slots)| slots.as_ref().and_then(|_| digests.next()).unwrap_or(ALL_HOLES)).collect()
}

fn leaf_slots<'a>(slots: impl ExactSizeIterator<Item = Option<&'a Slot>>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(slots.len() * SLOT);
    let mut any = false;
    for slot in slots {
        any |= slot.is_some();
        bytes.extend_from_slice(&slot.map_or([0; SLOT], Slot::encode));
    }
    any.then_some(bytes)
}

/// Digest of node page `k` of `level` (from 1), over its 128 children. All zeros if they all are.
pub fn node_digest(keys: &FileKeys, level: u32, k: u64, children: &[Digest; 128]) -> Digest {
    if children.iter().all(|child| *child == ALL_HOLES) {
        return ALL_HOLES;
    }
    let mut head = [0; 12];
    head[..4].copy_from_slice(&level.to_be_bytes());
    head[4..].copy_from_slice(&k.to_be_bytes());
    keys.node.digest(&head, children.as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::{cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};

    fn keys() -> FileKeys {
        let contents = Secret::new_with(|k| k.fill(3));
        FileKdf::new(contents, Cipher::Aes128, Integrity::Kmac128).keys(&[4; 32])
    }

    fn digest(keys: &FileKeys, group: u64, slots: &[Option<Slot>]) -> Digest {
        leaf_digest(keys, group, slots.iter().map(Option::as_ref))
    }

    fn slots(count: usize) -> Vec<Option<Slot>> {
        let slot = |i: usize| Slot { nonce: [i as u8 + 1; 10], epoch: i as u64 + 1, tag: [i as u8; 16] };
        (0..count).map(|i| (i % 3 != 1).then(|| slot(i))).collect()
    }

    #[test]
    fn a_subtree_of_holes_is_zero() {
        assert_eq!(digest(&keys(), 5, &[None; 64]), ALL_HOLES);
        assert_eq!(node_digest(&keys(), 1, 0, &[ALL_HOLES; 128]), ALL_HOLES);
    }

    #[test]
    fn digests_of_several_leaves_are_those_of_each() {
        let leaves: Vec<_> =
            (0..20).map(|g| (g, if g % 5 == 2 { vec![None; 64] } else { slots(64) })).collect();
        let each: Vec<Digest> = leaves.iter().map(|(g, slots)| digest(&keys(), *g, slots)).collect();
        let leaves = leaves.iter().map(|(g, slots)| (*g, slots.iter().map(Option::as_ref)));
        assert_eq!(leaf_digests(&keys(), leaves), each);
    }

    #[test]
    fn a_leaf_binds_its_group_and_every_field_of_every_slot() {
        let keys = keys();
        let slots = slots(48);
        let before = digest(&keys, 0, &slots);
        assert_ne!(before, ALL_HOLES);
        assert_ne!(digest(&keys, 1, &slots), before);
        for i in 0..48 {
            let mut others = Vec::new();
            match slots[i] {
                None => others.push(Some(Slot { nonce: [0; 10], epoch: 1, tag: [0; 16] })),
                Some(slot) => {
                    others.push(None);
                    others.push(Some(Slot { nonce: [0; 10], ..slot }));
                    others.push(Some(Slot { epoch: slot.epoch + 1, ..slot }));
                    others.push(Some(Slot { tag: [0xee; 16], ..slot }));
                }
            }
            for other in others {
                let mut changed = slots.clone();
                changed[i] = other;
                assert_ne!(digest(&keys, 0, &changed), before, "chunk {i}");
            }
        }
    }

    #[test]
    fn a_node_binds_its_level_its_place_and_every_child() {
        let keys = keys();
        let mut children = [ALL_HOLES; 128];
        children[3] = [5; 32];
        let digest = node_digest(&keys, 1, 7, &children);
        assert_ne!(digest, ALL_HOLES);
        assert_ne!(node_digest(&keys, 2, 7, &children), digest);
        assert_ne!(node_digest(&keys, 1, 8, &children), digest);
        for i in 0..128 {
            let mut changed = children;
            changed[i][31] ^= 1;
            assert_ne!(node_digest(&keys, 1, 7, &changed), digest, "child {i}");
        }
    }

    #[test]
    fn leaf_and_node_digests_have_keys_of_their_own() {
        let keys = keys();
        let children = [[1; 32]; 128];
        let node = node_digest(&keys, 0, 0, &children);
        assert_ne!(keys.leaf.digest(&[0; 12], children.as_flattened()), node);
    }
}
