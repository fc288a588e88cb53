//! The experiments' kernels on the CPU, every variant: against the portable implementation, at sizes where the
//! code takes another path. On a device the benchmark compares before it measures.

use crate::{
    layout::{noise, round_keys},
    runner,
    runner::{Argument, Geometry, Runner},
};
use warpcrypt::crypto::{
    cipher::{Cipher, CipherKey},
    keccak::{self, Rounds, State},
};

/// Launches that differ in all that may matter: one warp, several, half a warp, more blocks than work.
const LAUNCHES: [(u32, u32); 3] = [(1, 32), (3, 96), (2, 16)];

fn launch(
    runner: &mut Runner,
    name: &str,
    (blocks, threads): (u32, u32),
    arguments: Vec<Argument>,
) -> Vec<Vec<u8>> {
    runner.run(name, Geometry { blocks, threads, shared: 72 << 10 }, arguments)
}

#[test]
fn keccak_absorbs_a_block_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let variants = [
        ("keccak_loop", [(1, 32), (2, 64)]),
        ("keccak_two", [(1, 32), (2, 64)]),
        ("keccak_unrolled", [(1, 32), (2, 64)]),
        ("keccak_block", [(1, 25), (2, 200)]),
        ("keccak_warp_shuffle", [(1, 32), (2, 96)]),
        ("keccak_warp_shared", [(1, 32), (2, 96)]),
        ("keccak_five", [(1, 32), (2, 64)]),
    ];
    for (rate, count) in [(0, 1), (18, 6), (17, 7), (13, 33), (9, 50), (25, 13)] {
        let words = |seed, lanes: usize| -> Vec<u64> {
            noise(seed, 8 * lanes).as_chunks().0.iter().map(|lane| u64::from_le_bytes(*lane)).collect()
        };
        let bytes = |lanes: &[u64]| -> Vec<u8> { lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect() };
        let (states, data) = (words(1, 25 * count), words(2, rate * count));
        let mut expected = states.clone();
        for (i, state) in expected.as_chunks_mut::<25>().0.iter_mut().enumerate() {
            state.iter_mut().zip(&data[i * rate..(i + 1) * rate]).for_each(|(lane, more)| *lane ^= more);
            keccak::permute_portable(state as &mut State, Rounds::TwentyFour);
        }
        for (name, launches) in variants {
            for shape in launches {
                let arguments = vec![
                    Argument::Buffer(bytes(&data)),
                    Argument::Number(rate as u64),
                    Argument::Buffer(bytes(&states)),
                    Argument::Number(count as u64),
                ];
                let out = launch(&mut runner, name, shape, arguments);
                assert!(out[1] == bytes(&expected), "{name}, {count} states, rate {rate}, {shape:?}");
            }
        }
    }
}

/// What AES of that suffix gives.
fn aes_expected(key: &CipherKey, suffix: &str, counter: &[u8; 16], data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    match suffix {
        "ctr" => key.ctr_in_place(counter, &mut out),
        "encrypt" => key.ecb_encrypt(&mut out),
        _ => key.ecb_decrypt(&mut out),
    }
    out
}

#[test]
fn aes_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let tables = ["global", "constant", "texture", "shared", "spread"].map(str::to_owned);
    let keys_at = ["global", "constant", "registers"].map(|place| format!("spread_keys_{place}"));
    let shared_by = ["constant", "shared", "spread"].map(|place| [4, 16].map(|n| format!("{place}_{n}")));
    let names: Vec<String> =
        tables.into_iter().chain(keys_at).chain(shared_by.into_iter().flatten()).collect();
    let table = launch(&mut runner, "aes_table", (1, 1), vec![Argument::Buffer(vec![0; 3072])]).remove(0);
    for cipher in [Cipher::Aes128, Cipher::Aes192, Cipher::Aes256] {
        let key = noise(7, cipher.key_len());
        let portable = CipherKey::new(cipher, &key);
        let schedule = round_keys(cipher, &key);
        let mut case = |name: &str, suffix: &str, shape, counter: u128, blocks: usize| {
            let mut keys = if suffix == "decrypt" { &schedule.decrypt } else { &schedule.encrypt }.clone();
            keys.resize(240, 0);
            launch(&mut runner, "aes_keys_to_constant", (1, 1), vec![Argument::Buffer(keys.clone())]);
            let counter = counter.to_be_bytes();
            let data = noise(blocks as u64, 16 * blocks);
            let arguments = vec![
                Argument::Buffer(keys),
                Argument::Number(schedule.rounds.into()),
                Argument::Buffer(counter.to_vec()),
                Argument::Buffer(data.clone()),
                Argument::Buffer(vec![0xee; 16 * blocks]),
                Argument::Number(blocks as u64),
                Argument::Buffer(table.clone()),
            ];
            let name = format!("aes_{name}_{suffix}");
            let out = launch(&mut runner, &name, shape, arguments).remove(3);
            let expected = aes_expected(&portable, suffix, &counter, &data);
            assert!(out == expected, "{name}, {cipher:?}, {blocks} blocks, {shape:?}");
        };
        for suffix in ["ctr", "encrypt", "decrypt"] {
            for (shape, blocks) in LAUNCHES.into_iter().zip([1, 333, 33]) {
                for name in &names {
                    case(name, suffix, shape, 0x1234 << 64 | 0xffff_fff0, blocks);
                }
            }
            case("bits", suffix, (2, 64), 0x99 << 64 | 0xffff_fc00, 5 * 1024);
        }
    }
}

#[test]
fn kuznyechik_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let key = noise(9, 32);
    let portable = CipherKey::new(Cipher::Kuznyechik, &key);
    let schedule = round_keys(Cipher::Kuznyechik, &key);
    let tables =
        launch(&mut runner, "kuznyechik_table", (1, 1), vec![Argument::Buffer(vec![0; 128 << 10])]).remove(0);
    let encrypt = ["global", "texture", "shared", "spread", "constant"]
        .map(|place| ["1", "2", "4", "halves"].map(|n| (format!("{place}_{n}"), false)));
    let decrypt = ["global", "spread"]
        .map(|place| ["global", "constant", "shared"].map(|pi| (format!("{place}_pi_{pi}"), true)));
    for (name, backwards) in encrypt.into_iter().flatten().chain(decrypt.into_iter().flatten()) {
        for (shape, blocks) in [((1, 32), 1), ((3, 96), 333), ((2, 64), 64), ((2, 32), 257)] {
            let data = noise(blocks as u64, 16 * blocks);
            let mut expected = data.clone();
            let keys = if backwards {
                portable.ecb_decrypt(&mut expected);
                &schedule.decrypt
            } else {
                portable.ecb_encrypt(&mut expected);
                &schedule.encrypt
            };
            let arguments = vec![
                Argument::Buffer(keys.clone()),
                Argument::Buffer(data),
                Argument::Buffer(vec![0xee; 16 * blocks]),
                Argument::Number(blocks as u64),
                Argument::Buffer(tables.clone()),
            ];
            let out = launch(&mut runner, &format!("kuznyechik_{name}"), shape, arguments).remove(2);
            assert!(out == expected, "{name}, {blocks} blocks, {shape:?}");
        }
    }
}
