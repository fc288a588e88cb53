//! Every variant against the portable one, and parts against the whole.

use super::{compress::*, *};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256 * 7) as u8).collect()
}

#[test]
fn vectors_compress_like_the_portable_code() {
    let data = pattern(BLOCK * 40);
    let blocks = data.as_chunks::<BLOCK>().0;
    let node = |i: usize| Node { data: &blocks[i], id: 1 << 56 | i as u64, control: (i as u64) << 20 };
    for rounds in [0, 1, 10, 11, 12, 22, 23, 104, 168] {
        let md6 = Md6::new(256).unwrap().with_key(b"a key").unwrap().with_rounds(rounds).unwrap();
        for count in 0..40 {
            let nodes: Vec<Node> = (0..count).map(node).collect();
            let want: Vec<Value> = nodes.iter().map(|n| compress_portable(&md6, n)).collect();
            assert_eq!(compress(&md6, &nodes), want, "{count} nodes, {rounds} rounds");
            #[cfg(target_arch = "x86_64")]
            if compress_avx2::available() {
                let mut values = Vec::new();
                // SAFETY: the processor has the features, as was just seen.
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
        let mut join = Join::new(md6.clone());
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
