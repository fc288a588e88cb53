//! Compares every implementation of a primitive with one reference, at every length where its code takes a
//! different path. To test a new variant, add it to a list here.

use super::{
    chunk::CHUNK,
    cipher::{Cipher, CipherKey},
    integrity::{Integrity, LANE},
    keccak::{self, KeccakState, Rounds},
    kuznyechik::Kuznyechik,
    mac::{Mac as Function, MacKey},
    sponge::Sponge,
    variants::{self, AnyKey},
};

/// An implementation of the permutation, with its name.
type Permutation = (&'static str, fn(&mut KeccakState, Rounds));
/// A way to compute a MAC over a message, with its name.
type MacVariant = (&'static str, fn(&MacKey, &[u8]) -> [u8; 16]);

/// All permutations that this machine can run.
fn permutations() -> Vec<Permutation> {
    let mut all: Vec<Permutation> = vec![("dispatched", keccak::permute)];
    #[cfg(target_arch = "x86_64")]
    if super::keccak_bmi::available() {
        // SAFETY: the required CPU features were just checked.
        all.push(("bmi", |state, rounds| unsafe { super::keccak_bmi::permute(state, rounds) }));
    } else {
        println!("SKIPPED: Keccak with BMI: the processor has none");
    }
    #[cfg(target_arch = "x86_64")]
    if super::keccak_vl::available() {
        // SAFETY: the required CPU features were just checked.
        all.push(("AVX-512", |state, rounds| unsafe { super::keccak_vl::permute(state, rounds) }));
    } else {
        println!("SKIPPED: Keccak with AVX-512: the processor has none");
    }
    all
}

/// All ways to compute a MAC.
fn macs() -> Vec<MacVariant> {
    vec![
        ("whole", |key, message| key.tag(&[message])),
        ("in two parts", |key, message| {
            let (head, tail) = message.split_at(message.len().min(30));
            key.tag(&[head, tail])
        }),
        ("byte by byte", |key, message| key.tag(&message.chunks(1).collect::<Vec<_>>())),
    ]
}

/// Tags of equally long chunks of different files, for each vector width of this machine and every number
/// of lanes in use.
#[test]
fn vectors_of_tags_agree_with_single_ones_at_every_edge() {
    use super::{chunk::*, tags::*};
    for integrity in Integrity::ALL {
        let keys: Vec<ChunkKeys> =
            (0..8).map(|i| ChunkKeys::new(Cipher::Aes128, integrity, &[i; 16], &[i ^ 9; 32])).collect();
        let id = |i| ChunkId { index: 5 + i as u64, epoch: 1_u64 << i, nonce: [i; 10] };
        let ids: Vec<ChunkId> = (0..8).map(id).collect();
        for len in edge_lengths().into_iter().filter(|len| (1..=CHUNK).contains(len)) {
            let data: Vec<Vec<u8>> = (0..8).map(|i| pattern(len + i)[i..].to_vec()).collect();
            let chunks: Vec<Sealed> =
                (0..8).map(|i| Sealed { keys: &keys[i], id: &ids[i], ciphertext: &data[i] }).collect();
            let want: Vec<Tag> = (0..8).map(|i| keys[i].tag(&ids[i], &data[i])).collect();
            for variant in variants::tags() {
                for count in 1..=variant.width {
                    let mut got = [[0; 16]; 8];
                    assert_eq!(variant.make(&chunks[..count], &mut got), count);
                    assert_eq!(got[..count], want[..count], "{}, {integrity:?}, {len} bytes", variant.name);
                }
            }
        }
    }
}

/// Any number of chunks with mixed lengths, functions and files.
#[test]
fn any_mixture_of_chunks_gets_its_tags() {
    use super::{chunk::*, tags::*};
    let keys: Vec<ChunkKeys> = Integrity::ALL
        .into_iter()
        .flat_map(|integrity| [1, 2].map(|i| ChunkKeys::new(Cipher::Aes128, integrity, &[i; 16], &[i; 32])))
        .collect();
    let data = pattern(CHUNK);
    // First: mostly whole chunks, keys mixed. Second: all lengths different, with the chunks of a function
    // next to each other.
    let lengths: [fn(usize) -> usize; 2] =
        [|i| if i % 11 == 10 { 1 + (i * 331) % CHUNK } else { CHUNK }, |i| 1 + (i * 331) % CHUNK];
    let picks: [fn(usize) -> usize; 2] = [|i| i * i / 7, |i| i / 20 * 2 + i % 2];
    for (count, (len, pick)) in (0..60).flat_map(|n| [n; 2]).zip(lengths.into_iter().zip(picks).cycle()) {
        let pick = |i: usize| pick(i) % keys.len();
        let ids: Vec<ChunkId> =
            (0..count).map(|i| ChunkId { index: i as u64, epoch: 3, nonce: [i as u8; 10] }).collect();
        let chunks: Vec<Sealed> = (0..count)
            .map(|i| Sealed { keys: &keys[pick(i)], id: &ids[i], ciphertext: &data[..len(i)] })
            .collect();
        let mut got = vec![[0; 16]; count];
        tags(&chunks, &mut got);
        let want: Vec<Tag> = chunks.iter().map(|c| c.keys.tag(c.id, c.ciphertext)).collect();
        assert_eq!(got, want, "{count} chunks");
    }
}

/// Chunks are opened in place if all of them verify. Otherwise none is, and the first bad one is reported.
#[test]
fn chunks_open_in_place_all_or_none() {
    use super::{chunk::*, tags::*};
    let keys = ChunkKeys::new(Cipher::Aes256, Integrity::Kmac128, &[1; 32], &[2; 32]);
    for lengths in [&[CHUNK][..], &[CHUNK; 3], &[CHUNK, CHUNK, 77], &[1, 5, 200, CHUNK], &[]] {
        let ids: Vec<ChunkId> =
            (0..lengths.len()).map(|i| ChunkId { index: i as u64, epoch: 3, nonce: [i as u8; 10] }).collect();
        let mut data: Vec<Vec<u8>> = lengths.iter().map(|len| vec![0; *len]).collect();
        let mut tags: Vec<Tag> =
            (0..lengths.len()).map(|i| keys.seal(&ids[i], &pattern(lengths[i]), &mut data[i])).collect();
        let sealed = data.clone();
        let open = |tags: &[Tag], data: &mut [Vec<u8>]| {
            let chunks = ids.iter().zip(tags).zip(data);
            let mut chunks: Vec<Opened> =
                chunks.map(|((id, tag), data)| Opened { id: *id, tag: *tag, data }).collect();
            open_in_place(&keys, &mut chunks)
        };
        for bad in 0..lengths.len() {
            tags[bad][15] ^= 1;
            assert_eq!(open(&tags, &mut data), Err(bad));
            assert_eq!(data, sealed);
            tags[bad][15] ^= 1;
        }
        assert_eq!(open(&tags, &mut data), Ok(()));
        assert!(data.iter().zip(lengths).all(|(data, len)| *data == pattern(*len)));
    }
}

/// Lengths around every block, every rate (also less the 30 bytes of a chunk's header), every batch of
/// counter blocks, every lane, and the end of a chunk.
fn edge_lengths() -> Vec<usize> {
    let blocks = [1, 2, 3, 4, 5, 8, 9, 16, 32, 64, 128].map(|n| 16 * n);
    let rates = [72, 104, 136, 144, 168].into_iter().flat_map(|rate| [rate, 2 * rate, rate - 30]);
    let lanes = (1..=4).map(|n| n * LANE);
    let around = blocks.into_iter().chain(rates).chain(lanes).flat_map(|n| n - 1..=n + 1);
    let mut lengths: Vec<usize> = around.chain(0..20).chain([CHUNK - 1, CHUNK]).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 167 + i / 256) as u8).collect()
}

#[test]
fn permutations_agree_with_the_portable_one() {
    for (name, permute) in permutations() {
        for rounds in [Rounds::Twelve, Rounds::TwentyFour] {
            let mut state: KeccakState =
                std::array::from_fn(|i| 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(i as u64));
            let mut reference = state;
            for round in 0..500 {
                permute(&mut state, rounds);
                keccak::permute_portable(&mut reference, rounds);
                assert_eq!(state, reference, "{name}, {rounds:?}, {round}");
            }
        }
    }
}

/// The reference encrypts one counter block at a time in ECB mode, with the carry of a 128-bit addition.
#[test]
fn ctrs_agree_with_single_blocks_at_every_edge() {
    let counters = [0, 5, 200, (1 << 32) - 2, (1 << 64) - 3, (1 << 48) - 5, u128::MAX - 7, u128::MAX];
    for cipher in Cipher::ALL {
        let key = AnyKey::new(cipher, &pattern(cipher.key_len()));
        let dispatched = CipherKey::new(cipher, &pattern(cipher.key_len()));
        for counter in counters {
            let mut stream: Vec<[u8; 16]> = (0..256).map(|i| counter.wrapping_add(i).to_be_bytes()).collect();
            key.encrypt_blocks(&mut stream);
            let stream = stream.as_flattened();
            let counter = counter.to_be_bytes();
            for len in edge_lengths() {
                let plain = pattern(len);
                let expected: Vec<u8> = plain.iter().zip(stream).map(|(a, b)| a ^ b).collect();
                let check = |name, got: &[u8]| {
                    assert!(expected == got, "{name}, {cipher:?}, {len} bytes at {counter:x?}");
                };
                for ctr in variants::ctrs(cipher) {
                    let mut dst = plain.clone();
                    ctr.in_place(&key, &counter, &mut dst);
                    check(ctr.name, &dst);
                    dst.fill(0xee);
                    ctr.from(&key, &counter, &plain, &mut dst);
                    check(ctr.name, &dst);
                }
                let mut dst = plain.clone();
                dispatched.ctr_in_place(&counter, &mut dst);
                check("dispatched", &dst);
                dst.fill(0xee);
                dispatched.ctr(&counter, &plain, &mut dst);
                check("dispatched", &dst);
            }
        }
    }
}

/// ECB of many blocks equals the portable ECB of each block, in both directions.
#[test]
fn ecb_agrees_with_single_blocks() {
    for cipher in Cipher::ALL {
        let key = CipherKey::new(cipher, &pattern(cipher.key_len()));
        let single = AnyKey::new(cipher, &pattern(cipher.key_len()));
        for blocks in (0..70).chain([127, 128, 129, 255, 256]) {
            let (plain, mut alone) = (pattern(16 * blocks), pattern(16 * blocks));
            let (each, _) = alone.as_chunks_mut::<16>();
            single.encrypt_blocks(each);
            let mut together = plain.clone();
            key.ecb_encrypt(&mut together);
            assert_eq!(together, alone, "{cipher:?}, {blocks} blocks");
            let (each, _) = alone.as_chunks_mut::<16>();
            single.decrypt_blocks(each);
            key.ecb_decrypt(&mut together);
            assert_eq!((&together, &alone), (&plain, &plain), "{cipher:?}, {blocks} blocks back");
        }
    }
}

/// As above, for the implementations that `CipherKey` does not choose on this machine.
#[test]
fn every_ecb_of_kuznyechik_agrees_with_single_blocks() {
    type Ecb = fn(&Kuznyechik, &mut [[u8; 16]]);
    let mut all: Vec<(Ecb, Ecb)> =
        vec![(Kuznyechik::encrypt_blocks_portable, Kuznyechik::decrypt_blocks_portable)];
    #[cfg(target_arch = "x86_64")]
    if super::kuznyechik_avx2::available() {
        all.push((
            // SAFETY: the required CPU features were just checked.
            |key, blocks| unsafe { super::kuznyechik_avx2::encrypt_blocks(key.round_keys(), blocks) },
            // SAFETY: the required CPU features were just checked.
            |key, blocks| unsafe { super::kuznyechik_avx2::decrypt_blocks(key.round_keys(), blocks) },
        ));
    }
    let bytes = pattern(32);
    let key = Kuznyechik::new(bytes.as_slice().try_into().expect("32 bytes"));
    let single = AnyKey::new(Cipher::Kuznyechik, &bytes);
    for (encrypt, decrypt) in all {
        for blocks in (0..70).chain([127, 128, 129, 255, 256, 257]) {
            let plain = pattern(16 * blocks).as_chunks().0.to_vec();
            let (mut together, mut alone) = (plain.clone(), plain.clone());
            encrypt(&key, &mut together);
            single.encrypt_blocks(&mut alone);
            assert_eq!(together, alone, "{blocks} blocks");
            decrypt(&key, &mut together);
            assert_eq!(together, plain, "{blocks} blocks back");
        }
    }
}

/// The reference pads the message as the standard describes, and absorbs whole blocks with the
/// portable permutation.
#[test]
fn macs_agree_with_the_padded_message_at_every_edge() {
    let key = pattern(32);
    for function in [Function::Kmac128, Function::Kmac256, Function::TurboShake128] {
        let mac_key = MacKey::new(function, &key, b"custom");
        for len in edge_lengths() {
            let message = pattern(len);
            let expected = reference_mac(function, &key, b"custom", &message);
            for (name, mac) in macs() {
                assert_eq!(mac(&mac_key, &message), expected, "{name}, {function:?}, {len} bytes");
            }
        }
    }
}

fn reference_mac(function: Function, key: &[u8], custom: &[u8], message: &[u8]) -> [u8; 16] {
    let (rate, rounds, name, domain) = match function {
        Function::Kmac128 => (168, Rounds::TwentyFour, &b"KMAC"[..], 0x04),
        Function::Kmac256 => (136, Rounds::TwentyFour, &b"KMAC"[..], 0x04),
        Function::TurboShake128 => (168, Rounds::Twelve, &b"warpcrypt TurboSHAKE MAC"[..], 0x4d),
    };
    // All strings here are either shorter than 32 bytes or 256 bits long: lengths of one and of two bytes.
    let string = |s: &[u8]| match u8::try_from(s.len() * 8) {
        Ok(bits) => [&[1, bits], s].concat(),
        Err(_) => [&[2][..], &(s.len() as u16 * 8).to_be_bytes(), s].concat(),
    };
    let padded = |content: Vec<u8>| {
        let mut out = [vec![1, rate as u8], content].concat();
        out.resize(out.len().next_multiple_of(rate), 0);
        out
    };
    let mut input = padded([string(name), string(custom)].concat());
    input.extend(padded(string(key)));
    input.extend(message);
    input.extend([128, 1, domain]);
    input.resize(input.len().next_multiple_of(rate), 0);
    *input.last_mut().expect("at least a block") ^= 0x80;
    let mut state: KeccakState = [0; 25];
    for block in input.chunks(rate) {
        for (i, &byte) in block.iter().enumerate() {
            state[i / 8] ^= u64::from(byte) << (8 * (i % 8));
        }
        keccak::permute_portable(&mut state, rounds);
    }
    let (low, high) = (state[0].to_le_bytes(), state[1].to_le_bytes());
    std::array::from_fn(|i| if i < 8 { low[i] } else { high[i - 8] })
}

/// Absorbing in pieces gives the same result as absorbing at once, wherever the cuts are.
#[test]
fn absorbing_in_pieces_changes_nothing() {
    let message = pattern(600);
    for security in [128, 224, 256, 384, 512] {
        let finish = |pieces: &[&[u8]]| {
            let mut sponge = Sponge::new(security, Rounds::TwentyFour);
            pieces.iter().for_each(|piece| sponge.absorb(piece));
            let mut out = [0; 400];
            sponge.finish(0x06, &mut out);
            out
        };
        let whole = finish(&[&message]);
        for cut in 0..=message.len() {
            let (head, tail) = message.split_at(cut);
            let (middle, end) = tail.split_at(tail.len() / 3);
            assert_eq!(finish(&[head, middle, end]), whole, "cut at {cut}");
        }
    }
}
