//! The answers in `second_opinion.json`, which `generate.py` made with independent implementations.

use super::hex;
use crypto::{
    chunk::ChunkId,
    cipher::{Cipher, CipherKey},
    integrity::{Integrity, IntegrityKey},
    kdf::{Argon2Cost, FileKdf, argon2id},
    mac::{Mac, MacKey},
    secret::Secret,
    sha3,
    siv::SivKey,
    sp800_185, turboshake,
};
use serde_json::Value;

fn cases(section: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("second_opinion.json")).expect("JSON");
    let cases = all[section].as_array().expect("a list of cases").clone();
    assert!(!cases.is_empty());
    cases
}

/// The inputs of `generate.py`.
fn pattern(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (7 * n + 31 * i + i / 256) as u8).collect()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().expect("a string")
}

fn bytes(case: &Value, field: &str) -> Vec<u8> {
    hex(text(case, field))
}

fn len(case: &Value) -> usize {
    case["len"].as_u64().expect("a length") as usize
}

fn cipher_key(case: &Value) -> CipherKey {
    let cipher = Cipher::from_name(text(case, "cipher")).expect("a cipher");
    CipherKey::new(cipher, &bytes(case, "key"))
}

#[test]
fn ctr_with_carries_out_of_32_64_and_128_bits() {
    for case in cases("ctr") {
        let key = cipher_key(&case);
        let counter = bytes(&case, "counter").try_into().expect("one block");
        let plain = pattern(len(&case), len(&case));
        let mut out = vec![0; plain.len()];
        key.ctr(&counter, &plain, &mut out);
        assert_eq!(sha3::sha3_256(&[&out])[..], bytes(&case, "sha3"), "{case}");
        key.ctr_in_place(&counter, &mut out);
        assert_eq!(out, plain, "{case}");
    }
}

#[test]
fn ecb_both_ways() {
    for case in cases("ecb") {
        let key = cipher_key(&case);
        let plain = pattern(len(&case) / 16, len(&case));
        let mut blocks = plain.clone();
        key.ecb_encrypt(&mut blocks);
        assert_eq!(sha3::sha3_256(&[&blocks])[..], bytes(&case, "sha3"), "{case}");
        key.ecb_decrypt(&mut blocks);
        assert_eq!(blocks, plain, "{case}");
    }
}

#[test]
fn hashes() {
    for case in cases("hash") {
        let data = pattern(len(&case), len(&case));
        let mut out = vec![0; bytes(&case, "out").len()];
        // In one piece, and in two, at every place near the ends.
        for cut in [0, 1, data.len() / 2, data.len().saturating_sub(1)] {
            let (head, tail) = data.split_at(cut.min(data.len()));
            let parts = [head, tail];
            match text(&case, "function") {
                "sha3-224" => out.copy_from_slice(&sha3::sha3_224(&parts)),
                "sha3-256" => out.copy_from_slice(&sha3::sha3_256(&parts)),
                "sha3-384" => out.copy_from_slice(&sha3::sha3_384(&parts)),
                "sha3-512" => out.copy_from_slice(&sha3::sha3_512(&parts)),
                "shake128" => sha3::shake128(&parts, &mut out),
                "shake256" => sha3::shake256(&parts, &mut out),
                other => panic!("unknown function {other}"),
            }
            assert_eq!(out, bytes(&case, "out"), "{case}");
        }
    }
}

#[test]
fn customised_functions() {
    for case in cases("custom") {
        let n = len(&case);
        let data = pattern(n, n);
        let mut out = vec![0; bytes(&case, "out").len()];
        match text(&case, "function") {
            "cshake128" => sp800_185::cshake128(&[&data], b"", &bytes(&case, "custom"), &mut out),
            "cshake256" => sp800_185::cshake256(&[&data], b"", &bytes(&case, "custom"), &mut out),
            "turboshake128" => turboshake::turboshake128(&[&data], domain(&case), &mut out),
            "turboshake256" => turboshake::turboshake256(&[&data], domain(&case), &mut out),
            _ => mac(&case, &data, &mut out),
        }
        assert_eq!(out, bytes(&case, "out"), "{case}");
    }
}

#[test]
fn keyed_turboshake() {
    for case in cases("keyed_turboshake") {
        let n = len(&case);
        let mut out = vec![0; bytes(&case, "out").len()];
        mac(&case, &pattern(n, n), &mut out);
        assert_eq!(out, bytes(&case, "out"), "{case}");
    }
}

#[test]
fn integrity_functions() {
    for case in cases("integrity") {
        let integrity = Integrity::from_name(text(&case, "function")).expect("a function");
        let key = bytes(&case, "key").try_into().expect("32 bytes");
        let key = IntegrityKey::new(integrity, &key, &bytes(&case, "custom"));
        let (head, data) = (bytes(&case, "head"), pattern(len(&case), len(&case)));
        assert_eq!(key.tag(&head, &data)[..], bytes(&case, "tag"), "{case}");
        assert_eq!(key.digest(&head, &data)[..], bytes(&case, "digest"), "{case}");
    }
}

fn domain(case: &Value) -> u8 {
    case["domain"].as_u64().expect("a domain byte") as u8
}

fn mac(case: &Value, data: &[u8], out: &mut [u8]) {
    let function = match text(case, "function") {
        "kmac128" => Mac::Kmac128,
        "kmac256" => Mac::Kmac256,
        "turboshake128" => Mac::TurboShake128,
        other => panic!("unknown function {other}"),
    };
    let key = MacKey::new(function, &bytes(case, "key"), &bytes(case, "custom"));
    let (head, tail) = data.split_at(data.len() / 3);
    key.mac(&[head, tail], out);
}

fn secret(case: &Value, field: &str) -> Secret<32> {
    Secret::new_with(|out| out.copy_from_slice(&bytes(case, field)))
}

fn number(case: &Value, field: &str) -> u64 {
    case[field].as_u64().expect("a number")
}

fn strings(case: &Value, field: &str) -> Vec<Vec<u8>> {
    let list = case[field].as_array().expect("a list");
    list.iter().map(|item| hex(item.as_str().expect("a string"))).collect()
}

#[test]
fn file_keys_chunks_holes_and_tree() {
    for case in cases("file") {
        let cipher = Cipher::from_name(text(&case, "cipher")).expect("a cipher");
        let integrity = Integrity::from_name(text(&case, "integrity")).expect("a function");
        let salt = bytes(&case, "salt").try_into().expect("32 bytes");
        let keys = FileKdf::new(secret(&case, "contents"), cipher, integrity).keys(&salt);
        let nonce = bytes(&case, "nonce").try_into().expect("10 bytes");
        let id = ChunkId { index: number(&case, "index"), epoch: number(&case, "epoch"), nonce };
        let plain = pattern(len(&case), len(&case));
        let mut sealed = vec![0; plain.len()];
        assert_eq!(keys.chunk.seal(&id, &plain, &mut sealed)[..], bytes(&case, "tag"), "{case}");
        assert_eq!(sha3::sha3_256(&[&sealed])[..], bytes(&case, "sha3"), "{case}");
        assert_eq!(keys.chunk.hole_tag(&id)[..], bytes(&case, "hole"), "{case}");
        let head = pattern(5, 12);
        let tree = [&keys.leaf, &keys.node, &keys.record].map(|key| key.digest(&head, &sealed).to_vec());
        assert_eq!(tree.to_vec(), strings(&case, "tree"), "{case}");
    }
}

#[test]
fn deterministic_encryption() {
    for case in cases("siv") {
        let cipher = Cipher::from_name(text(&case, "cipher")).expect("a cipher");
        let siv = SivKey::new(cipher, &secret(&case, "key"));
        let context = strings(&case, "context");
        let context: Vec<&[u8]> = context.iter().map(Vec::as_slice).collect();
        let plain = pattern(len(&case), len(&case));
        assert_eq!(siv.seal(&context, &plain), bytes(&case, "sealed"), "{case}");
        assert_eq!(siv.open(&context, &bytes(&case, "sealed")), Ok(plain), "{case}");
    }
}

#[test]
fn passwords() {
    for case in cases("password") {
        let [memory_kib, passes, lanes] =
            ["memory_kib", "passes", "lanes"].map(|field| number(&case, field) as u32);
        let salt = bytes(&case, "salt").try_into().expect("32 bytes");
        let cost = Argon2Cost { memory_kib, passes, lanes };
        let key = argon2id(&pattern(len(&case), len(&case)), &salt, cost).expect("a cost in range");
        assert_eq!(key.expose()[..], bytes(&case, "out"), "{case}");
    }
}
