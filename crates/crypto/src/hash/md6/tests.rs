//! Compares every variant with the portable one, and parts with the whole.

use super::{compress::*, *};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256 * 7) as u8).collect()
}

#[test]
fn vectors_compress_like_the_portable_code() {
    let data = pattern(BLOCK * 40);
    let blocks = data.as_chunks::<BLOCK>().0;
    let node = |i: usize| Node { data: &blocks[i], id: 1 << 56 | i as u64, control: (i as u64) << 20 };
    for rounds in [0, 1, 5, 6, 7, 10, 11, 12, 13, 104, 168] {
        let md6 = Md6::new(256).unwrap().with_key(b"a key").unwrap().with_rounds(rounds).unwrap();
        for count in 0..40 {
            let nodes: Vec<Node> = (0..count).map(node).collect();
            let want: Vec<Value> = nodes.iter().map(|n| compress_portable(&md6, n)).collect();
            assert_eq!(compress(&md6, &nodes), want, "{count} nodes, {rounds} rounds");
            #[cfg(target_arch = "x86_64")]
            if compress_avx2::available() {
                let mut values = Vec::new();
                // SAFETY: the required CPU features were just checked.
                let left = groups::<4>(&nodes, &mut values, |n| unsafe { compress_avx2::compress(&md6, n) });
                assert_eq!(values, want[..count - left.len()], "AVX2, {count} nodes, {rounds} rounds");
            } else {
                println!("SKIPPED: MD6 with AVX2: the processor has none");
            }
        }
    }
}

#[test]
fn parts_make_the_whole() {
    let md6 = Md6::new(256).unwrap().with_rounds(3).unwrap();
    let data = pattern(PART * 21);
    for len in [PART + 1, PART + 512, PART + 513, 2 * PART, 3 * PART - 1, 4 * PART, 4 * PART + 1, 5 * PART]
        .into_iter()
        .chain([8 * PART + 5, 16 * PART, 16 * PART + 1, 17 * PART, 20 * PART, 21 * PART])
    {
        let mut join = Md6Join::new(md6.clone());
        for (index, part) in data[..len].chunks(PART).enumerate() {
            join.push(&md6.part(index as u64, part));
        }
        assert_eq!(join.finish(), md6.digest(&data[..len]), "{len} bytes");
    }
}

#[test]
fn parameters_have_limits() {
    assert_eq!(Md6::new(0), Err(ParameterError::Bits(0)));
    assert_eq!(Md6::new(513), Err(ParameterError::Bits(513)));
    let md6 = Md6::new(512).unwrap();
    assert_eq!(md6.rounds(), 168);
    assert_eq!(Md6::new(100).unwrap().with_key(b"k").unwrap().rounds(), 80);
    assert_eq!(md6.clone().with_key(&[0; 65]), Err(ParameterError::Key(65)));
    assert_eq!(md6.clone().with_levels(65), Err(ParameterError::Levels(65)));
    assert_eq!(md6.clone().with_rounds(4096), Err(ParameterError::Rounds(4096)));
    assert_eq!(format!("{md6:?}"), "Md6 of 512 bits, 168 rounds, 64 levels");
}

/// Pseudo-random numbers that are the same in every run.
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |limit| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    }
}

/// The tree as the MD6 report describes it, node by node with the portable compression.
fn plain_tree(md6: &Md6, message: &[u8]) -> Vec<u8> {
    let mut data = message.to_vec();
    for level in 1.. {
        let count = data.len().div_ceil(BLOCK).max(1);
        let padding = count * BLOCK - data.len();
        data.resize(count * BLOCK, 0);
        let blocks = data.as_chunks::<BLOCK>().0;
        let value = |(index, block): (usize, &[u8; BLOCK])| {
            let bits = if index + 1 == count { padding as u64 * 8 } else { 0 };
            let id = (level as u64) << 56 | index as u64;
            compress_portable(md6, &Node { data: block, id, control: md6.control(count == 1, bits) })
        };
        data = blocks.iter().enumerate().flat_map(value).collect();
        if count == 1 {
            break;
        }
    }
    data
}

#[test]
fn random_lengths_keys_and_rounds_hash_like_the_portable_code() {
    let mut below = numbers(61);
    for _ in 0..60 {
        let key = pattern(below(KEY_MAX + 1));
        let md6 = Md6::new(512).unwrap().with_key(&key).unwrap().with_rounds(below(200) as u16).unwrap();
        let messages: Vec<Vec<u8>> = (0..1 + below(12)).map(|_| pattern(below(30_000))).collect();
        let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        for (digest, message) in md6.digests(&slices).iter().zip(&messages) {
            assert_eq!(
                digest.bytes(),
                &plain_tree(&md6, message)[VALUE - 64..],
                "{md6:?}, {} bytes",
                message.len()
            );
        }
    }
}
