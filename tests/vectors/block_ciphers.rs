//! FIPS 197, SP 800-38A, RFC 7801 and GOST R 34.13-2015.

use super::hex;
use crypto::cipher::{Cipher, CipherKey};

/// The four blocks of SP 800-38A, appendix F.
const SP800_38A_PLAIN: &str = "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
    30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710";

const SP800_38A_KEYS: [(Cipher, &str); 3] = [
    (Cipher::Aes128, "2b7e151628aed2a6abf7158809cf4f3c"),
    (Cipher::Aes192, "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b"),
    (Cipher::Aes256, "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"),
];

/// Key, and plain and encrypted blocks of GOST R 34.13-2015, appendix A.1.
const GOST_KEY: &str = "8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef";
const GOST_PLAIN: &str = "1122334455667700ffeeddccbbaa9988 00112233445566778899aabbcceeff0a
    112233445566778899aabbcceeff0a00 2233445566778899aabbcceeff0a0011";

fn ecb_both_ways(cipher: Cipher, key: &str, plain: &str, sealed: &str) {
    let key = CipherKey::new(cipher, &hex(key));
    let mut blocks = hex(plain);
    key.ecb_encrypt(&mut blocks);
    assert_eq!(blocks, hex(sealed), "{cipher:?}");
    key.ecb_decrypt(&mut blocks);
    assert_eq!(blocks, hex(plain), "{cipher:?}");
}

fn ctr_both_ways(cipher: Cipher, key: &str, counter: &str, plain: &str, sealed: &str) {
    let key = CipherKey::new(cipher, &hex(key));
    let counter = hex(counter).try_into().expect("one block");
    let (plain, sealed) = (hex(plain), hex(sealed));
    // CTR is its own inverse; a prefix of the data has a prefix of the answer.
    for len in 0..=plain.len() {
        let mut out = vec![0; len];
        key.ctr(&counter, &plain[..len], &mut out);
        assert_eq!(out, sealed[..len], "{cipher:?}, {len} bytes");
        key.ctr_in_place(&counter, &mut out);
        assert_eq!(out, plain[..len], "{cipher:?}, {len} bytes back");
    }
}

#[test]
fn aes_examples_of_fips_197_appendix_c() {
    let plain = "00112233445566778899aabbccddeeff";
    let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    for (cipher, sealed) in [
        (Cipher::Aes128, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (Cipher::Aes192, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (Cipher::Aes256, "8ea2b7ca516745bfeafc49904b496089"),
    ] {
        ecb_both_ways(cipher, &key[..2 * cipher.key_len()], plain, sealed);
    }
}

#[test]
fn aes_ecb_examples_of_sp_800_38a() {
    let sealed = [
        "3ad77bb40d7a3660a89ecaf32466ef97 f5d3d58503b9699de785895a96fdbaaf
         43b1cd7f598ece23881b00e3ed030688 7b0c785e27e8ad3f8223207104725dd4",
        "bd334f1d6e45f25ff712a214571fa5cc 974104846d0ad3ad7734ecb3ecee4eef
         ef7afd2270e2e60adce0ba2face6444e 9a4b41ba738d6c72fb16691603c18e0e",
        "f3eed1bdb5d2a03c064b5a7e3db181f8 591ccb10d410ed26dc5ba74a31362870
         b6ed21b99ca6f4f9f153e7b1beafed1d 23304b7a39f9f3ff067d8d8f9e24ecc7",
    ];
    for ((cipher, key), sealed) in SP800_38A_KEYS.into_iter().zip(sealed) {
        ecb_both_ways(cipher, key, SP800_38A_PLAIN, sealed);
    }
}

#[test]
fn aes_ctr_examples_of_sp_800_38a() {
    let sealed = [
        "874d6191b620e3261bef6864990db6ce 9806f66b7970fdff8617187bb9fffdff
         5ae4df3edbd5d35e5b4f09020db03eab 1e031dda2fbe03d1792170a0f3009cee",
        "1abc932417521ca24f2b0459fe7e6e0b 090339ec0aa6faefd5ccc2c6f4ce8e94
         1e36b26bd1ebc670d1bd1d665620abf7 4f78a7f6d29809585a97daec58c6b050",
        "601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5
         2b0930daa23de94ce87017ba2d84988d dfc9c58db67aada613c2dd08457941a6",
    ];
    for ((cipher, key), sealed) in SP800_38A_KEYS.into_iter().zip(sealed) {
        ctr_both_ways(cipher, key, "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", SP800_38A_PLAIN, sealed);
    }
}

#[test]
fn kuznyechik_example_of_rfc_7801() {
    ecb_both_ways(
        Cipher::Kuznyechik,
        GOST_KEY,
        "1122334455667700ffeeddccbbaa9988",
        "7f679d90bebc24305a468d42b9d4edcd",
    );
}

#[test]
fn kuznyechik_ecb_example_of_gost_r_34_13() {
    let sealed = "7f679d90bebc24305a468d42b9d4edcd b429912c6e0032f9285452d76718d08b
        f0ca33549d247ceef3f5a5313bd4b157 d0b09ccde830b9eb3a02c4c5aa8ada98";
    ecb_both_ways(Cipher::Kuznyechik, GOST_KEY, GOST_PLAIN, sealed);
}

/// The standard's mode takes half a block of IV and counts in the other half from zero: the same
/// counter blocks as ours from IV || 0.
#[test]
fn kuznyechik_ctr_example_of_gost_r_34_13() {
    let sealed = "f195d8bec10ed1dbd57b5fa240bda1b8 85eee733f6a13e5df33ce4b33c45dee4
        a5eae88be6356ed3d5e877f13564a3a5 cb91fab1f20cbab6d1c6d15820bdba73";
    ctr_both_ways(Cipher::Kuznyechik, GOST_KEY, "1234567890abcef00000000000000000", GOST_PLAIN, sealed);
}

/// A cipher without one does not compile.
#[test]
fn every_cipher_has_published_vectors() {
    for cipher in Cipher::ALL {
        match cipher {
            Cipher::Aes128 | Cipher::Aes192 | Cipher::Aes256 => {
                aes_examples_of_fips_197_appendix_c();
                aes_ctr_examples_of_sp_800_38a();
            }
            Cipher::Kuznyechik => {
                kuznyechik_example_of_rfc_7801();
                kuznyechik_ctr_example_of_gost_r_34_13();
            }
        }
    }
}
