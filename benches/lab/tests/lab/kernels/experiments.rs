//! The experiments' kernels on the CPU, every variant: compared with the portable implementation, at
//! sizes where the code takes different paths. On a device the benchmark compares before it measures.

use super::{
    layout::{noise, round_keys},
    runner,
    runner::{Argument, Geometry, Runner},
};
use crypto::{
    cipher::{Cipher, CipherKey},
    hash::Function,
    keccak::{self, KeccakState, Rounds},
};

/// Launches that differ in every respect that may matter: one warp, several, half a warp, more blocks
/// than work.
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
        ("keccak_arrays", [(1, 32), (2, 64)]),
        ("keccak_arrays_shared", [(1, 32), (2, 64)]),
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
            keccak::permute_portable(state as &mut KeccakState, Rounds::TwentyFour);
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

/// The first lane of Keccak-f[1600] applied to zeros once and twice (KeccakF-1600-IntermediateValues by
/// its authors).
pub const PUBLISHED_LANES: [u64; 2] = [0xf125_8f79_40e1_dde7, 0x2d5c_954d_f96e_cb3c];

#[test]
fn keccak_of_zeros_is_the_published_one_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let one = ["arrays", "arrays_shared", "loop", "two", "unrolled", "warp_shuffle", "warp_shared", "five"];
    for (name, threads) in one.map(|name| (name, 32)).into_iter().chain([("block", 25)]) {
        let mut state = vec![0; 200];
        for lane in PUBLISHED_LANES {
            let arguments = vec![
                Argument::Buffer(vec![]),
                Argument::Number(0),
                Argument::Buffer(state),
                Argument::Number(1),
            ];
            state = launch(&mut runner, &format!("keccak_{name}"), (1, threads), arguments).remove(1);
            assert_eq!(state[..8], lane.to_le_bytes(), "{name}");
        }
    }
}

/// KT128 of RFC 9861, with leaves hashed by the kernels and a final node computed on the CPU. The
/// message's last chunk ends with the length byte of its customisation string.
#[test]
fn leaves_of_kangarootwelve() {
    let Some(mut runner) = runner() else { return };
    for (chunks, shape) in [(2, (1, 32)), (4, (2, 64)), (7, (1, 32))] {
        let mut message: Vec<u8> = (0..chunks * 8192).map(|i| (i % 251) as u8).collect();
        *message.last_mut().expect("not empty") = 0;
        let expected = Function::K12.digests(&[&message[..message.len() - 1]]).remove(0);
        for name in ["k12_leaves", "k12_leaves_warp"] {
            let arguments = vec![
                Argument::Buffer(message[8192..].to_vec()),
                Argument::Number(chunks as u64 - 1),
                Argument::Buffer(vec![0xee; 32 * (chunks - 1)]),
            ];
            let hashes = launch(&mut runner, name, shape, arguments).remove(1);
            let mut join = Function::K12.join().expect("a tree");
            join.push(&[&message[..8192], &[3, 0, 0, 0, 0, 0, 0, 0], &hashes].concat());
            assert_eq!(join.finish(), expected, "{name}, {chunks} chunks");
        }
    }
}

/// Every AES kernel except the bit-sliced one.
fn aes_names() -> Vec<String> {
    let tables = ["global", "constant", "texture", "shared", "spread"].map(str::to_owned);
    let keys_at = ["global", "constant", "registers"].map(|place| format!("spread_keys_{place}"));
    let shared_by = ["constant", "shared", "spread"].map(|place| [4, 16].map(|n| format!("{place}_{n}")));
    let rows = ["", "_4", "_state"].map(|suffix| ["constant", "shared"].map(|p| format!("{p}_rows{suffix}")));
    let staged = ["shared_staged", "shared_rows_staged_4"].map(str::to_owned);
    let sets = [tables.to_vec(), keys_at.to_vec(), shared_by.concat(), rows.concat(), staged.to_vec()];
    sets.concat()
}

/// The ciphertexts of the block in FIPS 197, appendix C, under its keys of 16, 24 and 32 bytes.
const FIPS_197: [(Cipher, &str); 3] = [
    (Cipher::Aes128, "69c4e0d86a7b0430d8cdb78070b4c55a"),
    (Cipher::Aes192, "dda97ca4864cdfe06eaf70a0ec0d7191"),
    (Cipher::Aes256, "8ea2b7ca516745bfeafc49904b496089"),
];

#[test]
fn aes_of_the_standard_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let table = aes_tables(&mut runner);
    let block: Vec<u8> = (0..16).map(|i| 0x11 * i).collect();
    for (cipher, sealed) in FIPS_197 {
        let key: Vec<u8> = (0..cipher.key_len() as u8).collect();
        let sealed: Vec<u8> =
            (0..32).step_by(2).map(|at| u8::from_str_radix(&sealed[at..at + 2], 16).expect("hex")).collect();
        let schedule = round_keys(cipher, &key);
        for name in aes_names() {
            for (mode, from, to) in [("encrypt", &block, &sealed), ("decrypt", &sealed, &block)] {
                let mut keys = if mode == "decrypt" { &schedule.decrypt } else { &schedule.encrypt }.clone();
                keys.resize(240, 0);
                launch(&mut runner, "aes_keys_to_constant", (1, 1), vec![Argument::Buffer(keys.clone())]);
                let arguments = vec![
                    Argument::Buffer(keys),
                    Argument::Number(schedule.rounds.into()),
                    Argument::Buffer(vec![0; 16]),
                    Argument::Buffer(from.clone()),
                    Argument::Buffer(vec![0xee; 16]),
                    Argument::Number(1),
                    Argument::Buffer(table.clone()),
                ];
                let out = launch(&mut runner, &format!("aes_{name}_{mode}"), (1, 32), arguments).remove(3);
                assert_eq!(out, *to, "{name}, {mode}, {cipher:?}");
            }
        }
    }
}

fn aes_tables(runner: &mut Runner) -> Vec<u8> {
    launch(runner, "aes_table", (1, 1), vec![Argument::Buffer(vec![0; 9 << 10])]).remove(0)
}

/// Expected output of the AES kernel with this suffix.
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
    let names = aes_names();
    let table = aes_tables(&mut runner);
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

/// The Kuznyechik kernels, and whether each decrypts.
fn kuznyechik_names() -> Vec<(String, bool)> {
    let encrypt = ["global", "texture", "shared", "spread", "constant"]
        .map(|place| ["1", "2", "4", "halves"].map(|n| (format!("{place}_{n}"), false)));
    let decrypt = ["global", "spread"]
        .map(|place| ["global", "constant", "shared"].map(|pi| (format!("{place}_pi_{pi}"), true)));
    [encrypt.concat(), decrypt.concat()].concat()
}

#[test]
fn kuznyechik_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let key = noise(9, 32);
    let portable = CipherKey::new(Cipher::Kuznyechik, &key);
    let schedule = round_keys(Cipher::Kuznyechik, &key);
    let tables =
        launch(&mut runner, "kuznyechik_table", (1, 1), vec![Argument::Buffer(vec![0; 128 << 10])]).remove(0);
    for (name, backwards) in kuznyechik_names() {
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

/// The key, the plaintext block and the ciphertext of GOST R 34.12-2015, section A.1.
#[test]
fn kuznyechik_of_the_standard_in_every_variant() {
    let Some(mut runner) = runner() else { return };
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    };
    let key = bytes("8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef");
    let (plain, sealed) =
        (bytes("1122334455667700ffeeddccbbaa9988"), bytes("7f679d90bebc24305a468d42b9d4edcd"));
    let schedule = round_keys(Cipher::Kuznyechik, &key);
    let tables =
        launch(&mut runner, "kuznyechik_table", (1, 1), vec![Argument::Buffer(vec![0; 128 << 10])]).remove(0);
    for (name, backwards) in kuznyechik_names() {
        let (keys, from, to) = if backwards {
            (&schedule.decrypt, &sealed, &plain)
        } else {
            (&schedule.encrypt, &plain, &sealed)
        };
        let arguments = vec![
            Argument::Buffer(keys.clone()),
            Argument::Buffer(from.clone()),
            Argument::Buffer(vec![0xee; 16]),
            Argument::Number(1),
            Argument::Buffer(tables.clone()),
        ];
        let out = launch(&mut runner, &format!("kuznyechik_{name}"), (1, 32), arguments).remove(2);
        assert_eq!(out, *to, "{name}");
    }
}
