//! Checks that no two ciphers and no two integrity functions give the same bytes. A function that
//! was mistaken for another would still be consistent with itself, so comparing implementations
//! would not reveal it.

use super::{
    chunk::{CHUNK, ChunkId, ChunkKeys, Tag},
    cipher::{Cipher, CipherKey},
    integrity::{Integrity, IntegrityKey},
    tags::{self, Sealed},
    variants::{self, AnyKey},
};
use proptest::prelude::*;
use std::fmt::Debug;

/// Output of an implementation: the function it belongs to, the name of the implementation, and the bytes.
type Made<W, B> = (W, String, B);

/// Checks that the outputs of different functions are `apart`.
fn check<W: PartialEq + Debug, B>(made: &[Made<W, B>], apart: impl Fn(&B, &B) -> bool) {
    for (at, (whose, how, bytes)) in made.iter().enumerate() {
        for (other, other_how, other_bytes) in &made[..at] {
            assert!(
                whose == other || apart(bytes, other_bytes),
                "{whose:?} ({how}) gives what {other:?} ({other_how}) gives"
            );
        }
    }
}

/// Whether all blocks differ from the other's blocks at the same position.
fn blocks_are_apart(one: &[u8], other: &[u8]) -> bool {
    one.as_chunks::<16>().0.iter().zip(other.as_chunks::<16>().0).all(|(one, other)| one != other)
}

/// Compares CTR by every implementation, and ECB in both directions, over whole blocks with keys that have
/// a common prefix.
fn ciphers_are_apart(key: &[u8; 32], counter: u128, blocks: &[u8]) {
    let counter = counter.to_be_bytes();
    let (mut streams, mut encrypted, mut decrypted) = (Vec::new(), Vec::new(), Vec::new());
    for cipher in Cipher::ALL {
        let key = &key[..cipher.key_len()];
        let (dispatched, forms) = (CipherKey::new(cipher, key), AnyKey::new(cipher, key));
        for ctr in variants::ctrs(cipher) {
            let mut stream = blocks.to_vec();
            ctr.in_place(&forms, &counter, &mut stream);
            streams.push((cipher, ctr.name.to_owned(), stream));
        }
        let by = |does: &dyn Fn(&mut [u8]), made: &mut Vec<_>, how: &str| {
            let mut data = blocks.to_vec();
            does(&mut data);
            made.push((cipher, how.to_owned(), data));
        };
        by(&|data| dispatched.ctr_in_place(&counter, data), &mut streams, "dispatched");
        by(&|data| dispatched.ecb_encrypt(data), &mut encrypted, "dispatched");
        by(&|data| dispatched.ecb_decrypt(data), &mut decrypted, "dispatched");
        by(&|data| forms.encrypt_blocks(data.as_chunks_mut().0), &mut encrypted, "one by one");
        by(&|data| forms.decrypt_blocks(data.as_chunks_mut().0), &mut decrypted, "one by one");
    }
    for made in [streams, encrypted, decrypted] {
        check(&made, |one, other| blocks_are_apart(one, other));
    }
}

/// Compares tags by every implementation, digests and hole tags, with a common key.
fn integrities_are_apart(key: &[u8; 32], id: ChunkId, message: &[u8]) {
    let (mut made, mut holes, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    for integrity in Integrity::ALL {
        let keys = ChunkKeys::new(Cipher::Aes256, integrity, key, key);
        let chunk = Sealed { keys: &keys, id: &id, ciphertext: message };
        for variant in variants::tags() {
            let mut found: [Tag; 8] = [[0; 16]; 8];
            variant.make(&vec![chunk; variant.width], &mut found);
            made.push((integrity, variant.name.to_owned(), found[variant.width - 1]));
        }
        for count in [1, 2, 9] {
            let mut found: Vec<Tag> = vec![[0; 16]; count];
            tags::tags(&vec![chunk; count], &mut found);
            made.push((integrity, format!("{count} of them"), found[count - 1]));
        }
        made.push((integrity, "alone".to_owned(), keys.tag(&id, message)));
        holes.push((integrity, String::new(), keys.hole_tag(&id)));
        let digest = IntegrityKey::new(integrity, key, b"use");
        digests.push((integrity, "alone".to_owned(), digest.digest(&[], message)));
        digests.push((integrity, "several".to_owned(), digest.digests(&[(&[][..], message); 3])[2]));
    }
    check(&made, |one, other| one != other);
    check(&holes, |one, other| one != other);
    check(&digests, |one, other| one != other);
}

/// Compares chunks sealed with every pair of functions: the ciphertext depends on the cipher, the tag on
/// both. The expanded keys for implementations outside this module must differ as well.
fn chunks_are_apart(key: &[u8; 32], id: ChunkId, plain: &[u8]) {
    let (mut ciphertexts, mut tags, mut schedules, mut states) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for cipher in Cipher::ALL {
        for integrity in Integrity::ALL {
            let keys = ChunkKeys::new(cipher, integrity, &key[..cipher.key_len()], key);
            let mut sealed = vec![0; plain.len()];
            let tag = keys.seal(&id, plain, &mut sealed);
            let how = format!("with {cipher:?}, {integrity:?}");
            ciphertexts.push((cipher, how.clone(), sealed));
            tags.push(((cipher, integrity), how.clone(), tag));
            schedules.push((cipher, how.clone(), keys.expanded().round_keys().to_vec()));
            states.push((integrity, how, *keys.expanded().keyed_state()));
        }
    }
    check(&ciphertexts, |one, other| blocks_are_apart(one, other));
    check(&tags, |one, other| one != other);
    check(&schedules, |one, other| one != other);
    check(&states, |one, other| one != other);
}

const ID: ChunkId = ChunkId { index: 0, epoch: 0, nonce: [0; 10] };

#[test]
fn none_agree_on_edges() {
    let counting: [u8; 32] = std::array::from_fn(|i| i as u8);
    for key in [[0; 32], [0xff; 32], [0x80; 32], counting] {
        for byte in [0, 0xff, 1] {
            for blocks in [1, 8, 9, 64, 65, 256] {
                let data = vec![byte; 16 * blocks];
                for counter in [0, 1, u128::from(u64::MAX), u128::MAX - 3] {
                    ciphers_are_apart(&key, counter, &data);
                }
                ciphers_are_apart(&key, 0, &key.repeat(blocks));
                chunks_are_apart(&key, ID, &data);
            }
            for len in [0, 1, 105, 106, 107, 137, 138, 139, 168, CHUNK] {
                integrities_are_apart(&key, ID, &vec![byte; len]);
                let last = ChunkId { index: ChunkId::INDEX_END - 1, epoch: (1 << 48) - 1, nonce: [0xff; 10] };
                integrities_are_apart(&key, last, &vec![byte; len]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn none_agree_at_random(
        key: [u8; 32],
        counter: u128,
        nonce: [u8; 10],
        index in 0..ChunkId::INDEX_END,
        data in prop::collection::vec(any::<u8>(), 16..=CHUNK),
    ) {
        let id = ChunkId { index, epoch: index, nonce };
        ciphers_are_apart(&key, counter, data.as_chunks::<16>().0.as_flattened());
        integrities_are_apart(&key, id, &data);
        chunks_are_apart(&key, id, &data);
    }
}
