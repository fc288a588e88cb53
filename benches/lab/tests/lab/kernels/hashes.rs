//! MD6 trees with other node sizes, compared with the plain implementation.

use super::{
    layout::noise,
    runner,
    runner::{Argument, Geometry, Runner},
    sized,
    trees::{Launch, Message, tops},
};
use crypto::hash::{
    Digest,
    md6::{
        Md6, NODE, VALUE,
        forest::{Forest, LAYER, Tree},
    },
};

#[test]
fn md6_with_nodes_of_any_size() {
    let Some(mut runner) = runner() else { return };
    for len in [0, 1, 3000, 20_000, 70_001] {
        let messages = [Message { bytes: noise(len, len as usize), unused: 0, part: None }];
        for (rounds, words) in [(72, 64), (10, 128), (72, 192), (1, 256)] {
            let md6 = Md6::new(512).and_then(|md6| md6.with_rounds(rounds)).expect("in range");
            let want = sized::digest(&md6, &messages[0].bytes, 8 * words);
            for (blocks, threads) in [(3, 16), (2, 64)] {
                let launch = Launch { kernel: &format!("md6_shared_{words}"), blocks, threads };
                let found = tops(&mut runner, &md6, &messages, 8 * words, launch);
                assert_eq!(md6.of_root(&found[0]), want, "{launch:?}, {len} bytes");
            }
            if words == 64 {
                assert_eq!(md6.digest(&messages[0].bytes), want, "{len} bytes");
                let launch = Launch { kernel: "md6_alone_64", blocks: 2, threads: 32 };
                let found = tops(&mut runner, &md6, &messages, NODE, launch);
                assert_eq!(md6.of_root(&found[0]), want, "{launch:?}, {len} bytes");
            }
        }
    }
}

/// Digest of a message computed with three kernels per level.
fn by_three(runner: &mut Runner, md6: &Md6, message: &[u8], (blocks, threads): (u32, u32)) -> Digest {
    let forest = Forest::of_md6(&[Tree { data: 0, bits: 8 * message.len() as u64, part: None }]);
    let mut data = message.to_vec();
    data.resize(data.len().next_multiple_of(16), 0x77);
    let mut values = vec![0xee; forest.values * VALUE];
    for level in &forest.levels {
        let (first, count) = level.layers;
        let mut work = vec![0xdd; 896 * level.nodes as usize];
        for (name, threads) in [("md6_pack", threads), ("md6_rounds", 16), ("md6_rewrite", threads)] {
            let mut arguments = vec![
                Argument::Buffer(md6.shared().to_vec()),
                Argument::Buffer(forest.layers[first * LAYER..(first + count) * LAYER].to_vec()),
                Argument::Number(count as u64),
                Argument::Number(level.number.into()),
                Argument::Number(level.nodes.into()),
            ];
            arguments.extend(match level.number {
                1 => [Argument::Buffer(data.clone()), Argument::Buffer(values)],
                _ => [Argument::Buffer(values), Argument::Same(5)],
            });
            arguments.push(Argument::Buffer(work));
            let mut out = runner.run(name, Geometry { blocks, threads, shared: 0 }, arguments);
            work = out.pop().expect("work");
            values = out.pop().expect("values");
        }
    }
    md6.of_root(values.first_chunk().expect("a root"))
}

#[test]
fn md6_by_three_kernels_a_level() {
    let Some(mut runner) = runner() else { return };
    for len in [0, 1, 3000, 20_000, 70_001] {
        let message = noise(len, len as usize);
        for (bits, rounds) in [(256, 104), (128, 72), (512, 1), (512, 10), (512, 168)] {
            let md6 = Md6::new(bits).and_then(|md6| md6.with_rounds(rounds)).expect("in range");
            for shape in [(3, 1), (2, 32)] {
                let found = by_three(&mut runner, &md6, &message, shape);
                assert_eq!(found, md6.digest(&message), "{len} bytes, {rounds} rounds, {shape:?}");
            }
        }
    }
}

/// Digests of "abc" from the submission to the SHA-3 competition and its reference code: with 5 rounds,
/// and with the default 104.
const PUBLISHED: [(u16, &str); 2] = [
    (5, "8854c14dc284f840ed71ad7ba542855ce189633e48c797a55121a746be48cec8"),
    (104, "230637d4e6845cf0d092b558e87625f03881dd53a7439da34cf3b94ed0d8b2c5"),
];

#[test]
fn md6_of_the_submission_by_every_kernel() {
    let Some(mut runner) = runner() else { return };
    for (rounds, want) in PUBLISHED {
        let md6 = Md6::new(256).and_then(|md6| md6.with_rounds(rounds)).expect("in range");
        let want = Digest::from_hex(256, want).expect("a digest");
        assert_eq!(by_three(&mut runner, &md6, b"abc", (2, 1)), want, "{rounds} rounds");
        for (kernel, threads) in [("md6_alone_64", 32), ("md6_shared_64", 16)] {
            let messages = [Message { bytes: b"abc".to_vec(), unused: 0, part: None }];
            let launch = Launch { kernel, blocks: 1, threads };
            let found = tops(&mut runner, &md6, &messages, NODE, launch);
            assert_eq!(md6.of_root(&found[0]), want, "{kernel}, {rounds} rounds");
        }
    }
}
