//! CTR, ECB and the permutation: published vectors, then comparisons with the portable implementation at
//! every edge.

use super::{
    layout::{KUZNYECHIK_DECRYPTION, TABLES, noise, round_keys},
    runner::{Argument, Geometry, Runner, runners},
};
use crypto::{
    cipher::{Cipher, CipherFamily, CipherKey},
    keccak::{self, KeccakState, Rounds},
};

/// An entry point, the dynamic shared memory that it needs, and the geometry to run it with.
type Variant = (&'static str, u32, u32, u32);

const AES_CTR: [Variant; 5] = [
    ("aes_ctr", TABLES, 2, 64),
    ("aes_ctr_1", TABLES, 1, 1024),
    ("aes_ctr_2", TABLES, 3, 32),
    ("aes_ctr_constant", 0, 2, 96),
    ("aes_ctr_shared", 2048, 2, 64),
];
const KUZNYECHIK_CTR: [Variant; 4] = [
    ("kuznyechik_ctr", TABLES, 2, 64),
    ("kuznyechik_ctr_1", TABLES, 1, 512),
    ("kuznyechik_ctr_4", TABLES, 3, 32),
    ("kuznyechik_ctr_global", 0, 2, 96),
];

fn geometry((_, shared, blocks, threads): Variant) -> Geometry {
    Geometry { blocks, threads, shared }
}

fn keys_arguments(cipher: Cipher, keys: Vec<u8>, rounds: u32) -> Vec<Argument> {
    let mut arguments = vec![Argument::Buffer(keys)];
    match cipher.family() {
        CipherFamily::Aes => arguments.push(Argument::Number(rounds.into())),
        CipherFamily::Kuznyechik => {}
    }
    arguments
}

/// CTR encryption of `plain` by the entry point. The output has 16 bytes more than the next multiple of
/// 16.
fn ctr(
    runner: &mut Runner,
    variant: Variant,
    cipher: Cipher,
    key: &[u8],
    counter: &[u8; 16],
    plain: &[u8],
) -> Vec<u8> {
    let keys = round_keys(cipher, key);
    let padded = plain.len().next_multiple_of(16);
    let mut input = plain.to_vec();
    input.resize(padded, 0xdd);
    let mut arguments = keys_arguments(cipher, keys.encrypt, keys.rounds);
    arguments.extend([
        Argument::Buffer(counter.to_vec()),
        Argument::Buffer(input),
        Argument::Buffer(vec![0xee; padded + 16]),
        Argument::Number(plain.len() as u64),
    ]);
    runner.run(variant.0, geometry(variant), arguments).pop().expect("the output")
}

fn ecb(runner: &mut Runner, variant: Variant, cipher: Cipher, keys: (Vec<u8>, u32), input: &[u8]) -> Vec<u8> {
    let mut arguments = keys_arguments(cipher, keys.0, keys.1);
    arguments.extend([
        Argument::Buffer(input.to_vec()),
        Argument::Buffer(vec![0xee; input.len()]),
        Argument::Number(input.len() as u64 / 16),
    ]);
    runner.run(variant.0, geometry(variant), arguments).pop().expect("the output")
}

fn ctr_variants(cipher: Cipher) -> &'static [Variant] {
    match cipher.family() {
        CipherFamily::Aes => &AES_CTR,
        CipherFamily::Kuznyechik => &KUZNYECHIK_CTR,
    }
}

fn ecb_variants(cipher: Cipher) -> &'static [(Variant, Variant)] {
    match cipher.family() {
        CipherFamily::Aes => &[(("aes_ecb_encrypt", TABLES, 2, 64), ("aes_ecb_decrypt", TABLES, 2, 64))],
        CipherFamily::Kuznyechik => &[
            (
                ("kuznyechik_ecb_encrypt", TABLES, 2, 64),
                ("kuznyechik_ecb_decrypt", KUZNYECHIK_DECRYPTION, 2, 64),
            ),
            (("kuznyechik_ecb_encrypt_global", 0, 1, 96), ("kuznyechik_ecb_decrypt_global", 0, 1, 96)),
        ],
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let byte =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal");
    digits.chunks(2).map(byte).collect()
}

/// Cipher, key, plaintext block and ciphertext block: FIPS 197, appendix C, and RFC 7801, section 5.5.
const BLOCKS: [(Cipher, &str, &str, &str); Cipher::ALL.len()] = [
    (
        Cipher::Aes128,
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "69c4e0d86a7b0430d8cdb78070b4c55a",
    ),
    (
        Cipher::Aes192,
        "000102030405060708090a0b0c0d0e0f1011121314151617",
        "00112233445566778899aabbccddeeff",
        "dda97ca4864cdfe06eaf70a0ec0d7191",
    ),
    (
        Cipher::Aes256,
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "00112233445566778899aabbccddeeff",
        "8ea2b7ca516745bfeafc49904b496089",
    ),
    (
        Cipher::Kuznyechik,
        "8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef",
        "1122334455667700ffeeddccbbaa9988",
        "7f679d90bebc24305a468d42b9d4edcd",
    ),
];

/// Cipher, key, counter, plaintext, ciphertext: SP 800-38A, appendix F.5.1 and F.5.5, and GOST R
/// 34.13-2015, appendix A.1.2. The first two counters end in 0xff, so they carry after one block.
const STREAMS: [(Cipher, &str, &str, &str, &str); 3] = [
    (
        Cipher::Aes128,
        "2b7e151628aed2a6abf7158809cf4f3c",
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff",
    ),
    (
        Cipher::Aes256,
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5",
    ),
    (
        Cipher::Kuznyechik,
        "8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef",
        "1234567890abcef00000000000000000",
        "1122334455667700ffeeddccbbaa998800112233445566778899aabbcceeff0a",
        "f195d8bec10ed1dbd57b5fa240bda1b885eee733f6a13e5df33ce4b33c45dee4",
    ),
];

#[test]
fn published_vectors() {
    assert_eq!(BLOCKS.map(|(cipher, ..)| cipher), Cipher::ALL);
    for (machine, mut runner) in runners() {
        for (cipher, key, plain, sealed) in BLOCKS {
            let keys = round_keys(cipher, &hex(key));
            for &(encrypt, decrypt) in ecb_variants(cipher) {
                let out = ecb(&mut runner, encrypt, cipher, (keys.encrypt.clone(), keys.rounds), &hex(plain));
                assert_eq!(out, hex(sealed), "{} on {machine:?}", encrypt.0);
                let back = ecb(&mut runner, decrypt, cipher, (keys.decrypt.clone(), keys.rounds), &out);
                assert_eq!(back, hex(plain), "{} on {machine:?}", decrypt.0);
            }
        }
        for (cipher, key, counter, plain, sealed) in STREAMS {
            let counter = hex(counter).try_into().expect("one block");
            for &variant in ctr_variants(cipher) {
                let out = ctr(&mut runner, variant, cipher, &hex(key), &counter, &hex(plain));
                assert_eq!(out[..32], hex(sealed), "{} on {machine:?}", variant.0);
            }
        }
    }
}

#[test]
fn ctr_at_every_edge() {
    let counters =
        [0, 0xff, 0x1234_5678_9abc_def0_0000_0000_0000_00f0, u128::MAX - 3, u128::from(u64::MAX) - 300];
    for (machine, mut runner) in runners() {
        for cipher in Cipher::ALL {
            let key = noise(3, cipher.key_len());
            let portable = CipherKey::new(cipher, &key);
            for (i, len) in [1, 15, 16, 17, 31, 32, 33, 511, 512, 513, 4080, 4095, 4096, 4097, 9001]
                .into_iter()
                .enumerate()
            {
                let plain = noise(len as u64, len);
                let counter = counters[i % counters.len()].to_be_bytes();
                let mut expected = vec![0; len];
                portable.ctr(&counter, &plain, &mut expected);
                expected.resize(len.next_multiple_of(16), 0);
                expected.extend([0xee; 16]);
                for &variant in ctr_variants(cipher) {
                    let out = ctr(&mut runner, variant, cipher, &key, &counter, &plain);
                    assert!(out == expected, "{}, {cipher:?}, {len} bytes, on {machine:?}", variant.0);
                }
            }
        }
    }
}

#[test]
fn ecb_both_ways() {
    for (machine, mut runner) in runners() {
        for cipher in Cipher::ALL {
            let key = noise(5, cipher.key_len());
            let keys = round_keys(cipher, &key);
            for blocks in [1, 2, 31, 32, 33, 63, 65, 257] {
                let plain = noise(blocks as u64, 16 * blocks);
                let mut expected = plain.clone();
                CipherKey::new(cipher, &key).ecb_encrypt(&mut expected);
                for &(encrypt, decrypt) in ecb_variants(cipher) {
                    let out = ecb(&mut runner, encrypt, cipher, (keys.encrypt.clone(), keys.rounds), &plain);
                    assert!(out == expected, "{}, {cipher:?}, {blocks} blocks, on {machine:?}", encrypt.0);
                    let back = ecb(&mut runner, decrypt, cipher, (keys.decrypt.clone(), keys.rounds), &out);
                    assert!(back == plain, "{}, {cipher:?}, {blocks} blocks, on {machine:?}", decrypt.0);
                }
            }
        }
    }
}

/// The first lanes after one permutation of the zero state, from the Keccak team's
/// `KeccakF-1600-IntermediateValues`.
const ZERO_PERMUTED: [u64; 4] =
    [0xf125_8f79_40e1_dde7, 0x84d5_ccf9_33c0_478a, 0xd598_261e_a65a_a9ee, 0xbd15_4730_6f80_494d];

#[test]
fn permutations() {
    for (machine, mut runner) in runners() {
        for (name, shared, blocks, threads) in [
            ("keccak_f1600_unrolled", 0, 2, 32),
            ("keccak_f1600_loop", 0, 1, 128),
            ("keccak_f1600_shuffle", 0, 2, 64),
            ("keccak_f1600_shared", 512, 2, 64),
        ] {
            for count in [1usize, 2, 33, 70] {
                let mut states: Vec<KeccakState> = vec![[0; 25]; count];
                for (i, state) in states.iter_mut().enumerate().skip(1) {
                    state
                        .iter_mut()
                        .zip(noise(i as u64, 200).as_chunks::<8>().0)
                        .for_each(|(lane, bytes)| *lane = u64::from_le_bytes(*bytes));
                }
                let bytes = |states: &[KeccakState]| {
                    states.as_flattened().iter().flat_map(|lane| lane.to_le_bytes()).collect::<Vec<u8>>()
                };
                let arguments = vec![Argument::Buffer(bytes(&states)), Argument::Number(count as u64)];
                let out = runner
                    .run(name, Geometry { blocks, threads, shared }, arguments)
                    .pop()
                    .expect("the states");
                states.iter_mut().for_each(|state| keccak::permute_portable(state, Rounds::TwentyFour));
                assert_eq!(states[0][..4], ZERO_PERMUTED);
                assert!(out == bytes(&states), "{name}, {count} states, on {machine:?}");
            }
        }
    }
}
