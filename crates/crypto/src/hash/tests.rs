//! Compares every variant with the portable one, and with hashes of single messages.

use super::{
    lanes::{Job, absorb, absorb_portable},
    *,
};
use crate::{
    keccak::{self, KeccakState, Rounds},
    sha3, turboshake,
};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 * 7 + seed * 13) as u8).collect()
}

/// `count` messages of mixed lengths around blocks and chunks.
fn messages(count: usize) -> Vec<Vec<u8>> {
    let lengths = [0, 1, 71, 72, 104, 135, 136, 137, 168, 511, 512, 513, 2048, 2049, 4096, 8191, 8192, 8193];
    (0..count).map(|i| pattern(lengths[i * 7 % lengths.len()] * (1 + i % 3), i)).collect()
}

fn functions() -> Vec<Function> {
    let names = ["md6-1", "md6-7", "md6-256", "md6-512", "sha3-224", "sha3-256", "sha3-384", "sha3-512"];
    let all = names.into_iter().chain(["shake128", "shake256", "k12"]);
    all.map(|name| Function::from_name(name).expect(name)).collect()
}

#[test]
fn names_go_both_ways() {
    for function in functions() {
        assert_eq!(Function::from_name(&function.name()), Some(function.clone()));
    }
    for wrong in
        ["md6", "md6-", "md6-0", "md6-01", "md6-513", "md6-+8", "md6-99999", "sha3-255", "sha256", ""]
    {
        assert_eq!(Function::from_name(wrong), None, "{wrong}");
    }
}

#[test]
fn digests_go_to_digits_and_back() {
    for function in functions() {
        let digest = function.digests(&[b"abc"])[0];
        assert_eq!(digest.to_string().len(), usize::from(function.bits()).div_ceil(4));
        assert_eq!(Digest::from_hex(function.bits(), &digest.to_string().to_uppercase()), Some(digest));
    }
    assert_eq!(Digest::from_hex(8, "a"), None);
    assert_eq!(Digest::from_hex(8, "ag"), None);
    assert_eq!(Digest::from_hex(1024, &"0".repeat(256)), None);
}

/// Hashing many messages equals hashing each one, and SHA3-256 equals that of the module for single messages.
#[test]
fn many_messages_hash_like_each_alone() {
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 40] {
        let messages = messages(count);
        let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        for function in functions() {
            let alone: Vec<Digest> = slices.iter().map(|m| function.digests(&[m])[0]).collect();
            assert_eq!(function.digests(&slices), alone, "{} messages, {}", count, function.name());
        }
        let sha3: Vec<Digest> = slices.iter().map(|m| Digest::new(256, &sha3::sha3_256(&[m]))).collect();
        assert_eq!(Function::Sha3(256).digests(&slices), sha3);
    }
}

#[test]
fn every_width_absorbs_like_the_portable_code() {
    let messages = messages(30);
    for (rate, rounds) in [
        (168, Rounds::Twelve),
        (168, Rounds::TwentyFour),
        (144, Rounds::TwentyFour),
        (136, Rounds::TwentyFour),
        (104, Rounds::TwentyFour),
        (72, Rounds::TwentyFour),
    ] {
        let run = |absorb: &dyn Fn(&mut [Job])| {
            let mut states: Vec<[u64; 25]> = (0..messages.len()).map(|i| [i as u64; 25]).collect();
            let mut jobs: Vec<Job> = states
                .iter_mut()
                .zip(&messages)
                .enumerate()
                .map(|(i, (state, message))| match i % 3 {
                    0 => Job { state, data: &message[..message.len() / rate * rate], end: &[] },
                    1 => Job { state, data: message, end: &[0x1f] },
                    _ => Job { state, data: message, end: &[0x00, 0x0b] },
                })
                .collect();
            absorb(&mut jobs);
            drop(jobs);
            states
        };
        let want = run(&|jobs| absorb_portable(jobs, rate, rounds));
        assert_eq!(run(&|jobs| absorb(jobs, rate, rounds)), want);
        #[cfg(target_arch = "x86_64")]
        {
            if lanes_avx2::available() {
                // SAFETY: the required CPU features were just checked.
                let four = |s: &mut _, p: &[[&[u8]; 4]]| unsafe { lanes_avx2::absorb(s, p, rate, rounds) };
                assert_eq!(run(&|jobs| lanes::fill::<4>(jobs, rate, rounds, four)), want, "AVX2");
            } else {
                println!("SKIPPED: Keccak with AVX2: the processor has none");
            }
            if lanes_vl::available() {
                // SAFETY: the required CPU features were just checked.
                let four = |s: &mut _, p: &[[&[u8]; 4]]| unsafe { lanes_vl::absorb(s, p, rate, rounds) };
                assert_eq!(run(&|jobs| lanes::fill::<4>(jobs, rate, rounds, four)), want, "AVX-512, four");
            } else {
                println!("SKIPPED: Keccak with AVX-512 of 256 bits: the processor has none");
            }
            if lanes_avx512::available() {
                // SAFETY: the required CPU features were just checked.
                let eight = |s: &mut _, p: &[[&[u8]; 8]]| unsafe {
                    lanes_avx512::absorb_by::<true>(s, p, rate, rounds)
                };
                assert_eq!(run(&|jobs| lanes::fill::<8>(jobs, rate, rounds, eight)), want, "AVX-512, sums");
                // SAFETY: the required CPU features were just checked.
                let eight = |s: &mut _, p: &[[&[u8]; 8]]| unsafe {
                    lanes_avx512::absorb_by::<false>(s, p, rate, rounds)
                };
                assert_eq!(run(&|jobs| lanes::fill::<8>(jobs, rate, rounds, eight)), want, "AVX-512, parts");
            } else {
                println!("SKIPPED: Keccak with AVX-512: the processor has none");
            }
        }
    }
}

#[test]
fn a_message_in_pieces_hashes_like_the_whole() {
    for function in functions() {
        let Some(fresh) = function.serial() else { continue };
        let block = fresh.block();
        let messages = messages(11);
        let mut serials = vec![fresh; messages.len()];
        let longest = messages.iter().map(Vec::len).max().unwrap_or(0);
        for start in (0..=longest).step_by(5 * block) {
            let mut pieces = Vec::new();
            for (serial, message) in serials.iter_mut().zip(&messages) {
                if start == 0 || message.len() > start {
                    let end = (start + 5 * block).min(message.len());
                    pieces.push(Piece { serial, data: &message[start..end], last: end == message.len() });
                }
            }
            Serial::advance(&mut pieces);
        }
        let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let got: Vec<Digest> = serials.iter().map(Serial::digest).collect();
        assert_eq!(got, function.digests(&slices), "{}", function.name());
    }
}

#[test]
fn a_message_in_parts_hashes_like_the_whole() {
    for name in ["k12", "md6-256"] {
        let function = Function::from_name(name).expect(name);
        let part = function.part_len().expect("a tree");
        let data = pattern(3 * part + 8193, 5);
        for len in [part + 1, part + 8191, part + 8192, 2 * part, 2 * part + 1, 3 * part + 8193] {
            let mut join = function.join().expect("a tree");
            let count = len.div_ceil(part);
            for (index, piece) in data[..len].chunks(part).enumerate() {
                join.push(&function.part(index as u64, piece, index + 1 == count));
            }
            assert_eq!(join.finish(), function.digests(&[&data[..len]])[0], "{name}, {len} bytes");
        }
    }
}

/// A direct implementation of KT128 over this crate's TurboSHAKE128.
#[test]
fn k12_is_what_the_rfc_says() {
    for len in [0, 1, 8190, 8191, 8192, 8193, 16383, 16384, 50000, 8192 * 300] {
        let message = pattern(len, 3);
        let whole = [&message[..], &[0]].concat();
        let mut want = [0; 32];
        if whole.len() <= 8192 {
            turboshake::turboshake128(&[&whole], 0x07, &mut want);
        } else {
            let mut node = [&whole[..8192], &[3, 0, 0, 0, 0, 0, 0, 0]].concat();
            for leaf in whole[8192..].chunks(8192) {
                let mut hash = [0; 32];
                turboshake::turboshake128(&[leaf], 0x0b, &mut hash);
                node.extend_from_slice(&hash);
            }
            let leaves = (whole.len() - 8192).div_ceil(8192) as u64;
            let bytes: Vec<u8> = leaves.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
            node.extend_from_slice(&bytes);
            node.extend_from_slice(&[bytes.len() as u8, 0xff, 0xff]);
            turboshake::turboshake128(&[&node], 0x06, &mut want);
        }
        assert_eq!(Function::K12.digests(&[&message])[0].bytes(), want, "{len} bytes");
    }
}

#[test]
fn states_side_by_side_are_permuted_as_one_alone() {
    for count in [0, 1, 2, 5, 8, 9, 64, 100] {
        let mut states: Vec<KeccakState> =
            (0..count).map(|seed| std::array::from_fn(|lane| (seed * 31 + lane) as u64)).collect();
        let mut expected = states.clone();
        expected.iter_mut().for_each(|state| keccak::permute(state, Rounds::TwentyFour));
        permute_all(&mut states);
        assert_eq!(states, expected, "{count} states");
    }
}
