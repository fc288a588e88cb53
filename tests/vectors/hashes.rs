//! MD6 and KangarooTwelve: published examples, and the answers in `hashes.json`, which `generate_hashes.py`
//! made with independent implementations.

use super::hex;
use crypto::hash::{Digest, Function, md6::Md6};
use serde_json::Value;

fn is(digest: Digest, answer: &str) -> bool {
    digest.bytes() == hex(answer)
}

/// `11 22 33 44 55 66 77` over and over.
fn sevens(len: usize) -> Vec<u8> {
    (0..len).map(|i| 0x11 * (1 + (i % 7) as u8)).collect()
}

/// The three examples of the MD6 report, section 2 (5 rounds, a key, the sequential mode).
#[test]
fn md6_examples_of_the_report() {
    let md6 = |bits| Md6::new(bits).expect("a digest's length");
    let five = md6(256).with_rounds(5).expect("rounds");
    assert!(is(five.digest(b"abc"), "8854c14dc284f840ed71ad7ba542855ce189633e48c797a55121a746be48cec8"));
    let keyed = md6(224).with_key(b"abcde12345").expect("a key").with_rounds(5).expect("rounds");
    let answer = "894cf0598ad3288ed4bb5ac5df23eba0ac388a11b7ed2e3dd5ec5131";
    assert!(is(keyed.digest(&sevens(600)), answer));
    let sequential = md6(256).with_levels(0).expect("levels");
    let answer = "4e78ab5ec8926a3db0dcfa09ed48de6c33a7399e70f01ebfc02abb52767594e2";
    assert!(is(sequential.digest(&sevens(800)), answer));
}

/// Answers of the reference program for well-known messages.
#[test]
fn md6_of_well_known_messages() {
    for (name, message, answer) in [
        ("md6-128", "", "032f75b3ca02a393196a818328bd32e8"),
        ("md6-224", "", "d2091aa2ad17f38c51ade2697f24cafc3894c617c77ffe10fdc7abcb"),
        ("md6-224", "abc", "510c30e4202a5cdd8a4f2ae9beebb6f5988128897937615d52e6d228"),
        ("md6-256", "", "bca38b24a804aa37d821d31af00f5598230122c5bbfc4c4ad5ed40e4258f04ca"),
        ("md6-256", "abc", "230637d4e6845cf0d092b558e87625f03881dd53a7439da34cf3b94ed0d8b2c5"),
        (
            "md6-256",
            "The quick brown fox jumps over the lazy dog",
            "977592608c45c9923340338450fdcccc21a68888e1e6350e133c5186cd9736ee",
        ),
        (
            "md6-384",
            "",
            "b0bafffceebe856c1eff7e1ba2f539693f828b532ebf60ae9c16cbc3499020401b942ac25b310b2227b2954ccacc2f1f",
        ),
        (
            "md6-512",
            "",
            "6b7f33821a2c060ecdd81aefddea2fd3c4720270e18654f4cb08ece49ccb469f
             8beeee7c831206bd577f9f2630d9177979203a9489e47e04df4e6deaa0f8e0c0",
        ),
    ] {
        let function = Function::from_name(name).expect(name);
        assert!(is(function.digests(&[message.as_bytes()])[0], answer), "{name} of {message:?}");
    }
}

/// RFC 9861, section 5, without customisation.
#[test]
fn k12_examples_of_rfc_9861() {
    for (power, answer) in [
        (None, "1ac2d450fc3b4205d19da7bfca1b37513c0803577ac7167f06fe2ce1f0ef39e5"),
        (Some(0), "2bda92450e8b147f8a7cb629e784a058efca7cf7d8218e02d345dfaa65244a1f"),
        (Some(1), "6bf75fa2239198db4772e36478f8e19b0f371205f6a9a93a273f51df37122888"),
        (Some(2), "0c315ebcdedbf61426de7dcf8fb725d1e74675d7f5327a5067f367b108ecb67c"),
        (Some(3), "cb552e2ec77d9910701d578b457ddf772c12e322e4ee7fe417f92c758f0d59d0"),
        (Some(4), "8701045e22205345ff4dda05555cbb5c3af1a771c2b89baef37db43d9998b9fe"),
        (Some(5), "844d610933b1b9963cbdeb5ae3b6b05cc7cbd67ceedf883eb678a0a8e0371682"),
        (Some(6), "3c390782a8a4e89fa6367f72feaaf13255c8d95878481d3cd8ce85f58e880af8"),
    ] {
        let len = power.map_or(0, |power| 17_usize.pow(power));
        let message: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        assert!(is(Function::K12.digests(&[&message])[0], answer), "{len} bytes");
    }
}

fn cases(section: &str) -> Vec<(Vec<u8>, Value)> {
    let all: Value = serde_json::from_str(include_str!("hashes.json")).expect("JSON");
    let cases = all[section].as_array().expect("a list of cases").clone();
    assert!(!cases.is_empty());
    let message = |case: &Value| {
        let [n, len] = ["n", "len"].map(|field| case[field].as_u64().expect("a number") as usize);
        (0..len).map(|i| (7 * n + 31 * i + i / 256) as u8).collect()
    };
    cases.into_iter().map(|case| (message(&case), case)).collect()
}

#[test]
fn md6_of_the_reference_implementation() {
    for (message, case) in cases("md6") {
        let number = |field: &str| case[field].as_u64().expect("a number");
        let text = |field: &str| case[field].as_str().expect("a string");
        let md6 = Md6::new(number("bits") as u16).and_then(|m| m.with_key(&hex(text("key"))));
        let md6 = md6.and_then(|m| m.with_levels(number("levels") as u8));
        let md6 = md6.and_then(|m| m.with_rounds(number("rounds") as u16)).expect("parameters");
        let digest = md6.digest_bits(&message, number("unused") as u8);
        assert!(is(digest, text("digest")), "{digest}: {case}");
        if number("unused") == 0 {
            assert_eq!(Function::Md6(md6).digests(&[&message]), [digest], "{case}");
        }
    }
}

#[test]
fn k12_of_another_implementation() {
    for (message, case) in cases("k12") {
        let digest = Function::K12.digests(&[&message])[0];
        assert!(is(digest, case["digest"].as_str().expect("a string")), "{case}");
    }
}
