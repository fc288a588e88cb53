//! The trees of MD6 against the CPU's: random lengths in bits, keys, rounds and digests, whole messages and parts of
//! longer ones side by side in one launch.

use crate::{
    layout::noise,
    runner::{Argument, Geometry, Machine, Runner, experiments, on_threads, runners},
};
use warpcrypt::crypto::hash::{
    Function,
    md6::{
        Md6, NODE, VALUE,
        forest::{Forest, LAYER, Tree},
        sized,
    },
};

/// Numbers from a seed, each below its limit.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}

/// A message or a part, and how many of its last byte's bits do not belong to it.
struct Message {
    bytes: Vec<u8>,
    unused: u8,
    part: Option<u64>,
}

/// Where to run, and how: a thread a node or 16; blocks, threads a block.
#[derive(Clone, Copy, Debug)]
struct Launch<'a> {
    kernel: &'a str,
    blocks: u32,
    threads: u32,
}

/// Dynamic shared memory of each thread if 16 share a node of that many bytes.
fn shared(node: usize) -> u32 {
    (node / 8 + 48) as u32
}

/// The values at the top of the trees.
fn tops(
    runner: &mut Runner,
    md6: &Md6,
    messages: &[Message],
    node: usize,
    launch: Launch,
) -> Vec<[u8; VALUE]> {
    let (mut data, mut trees) = (Vec::new(), Vec::new());
    for message in messages {
        let bits = 8 * message.bytes.len() as u64 - u64::from(message.unused);
        trees.push(Tree { data: data.len() as u64, bits, part: message.part });
        data.extend(&message.bytes);
        data.resize(data.len().next_multiple_of(16), 0x77);
    }
    let forest = Forest::new(&trees, node);
    let mut values = vec![0xee; forest.values * VALUE];
    for level in &forest.levels {
        let (first, count) = level.layers;
        let mut arguments = vec![
            Argument::Buffer(md6.shared().to_vec()),
            Argument::Buffer(forest.layers[first * LAYER..(first + count) * LAYER].to_vec()),
            Argument::Number(count as u64),
            Argument::Number(level.number.into()),
            Argument::Number(level.nodes.into()),
        ];
        let values_in = Argument::Buffer(values);
        arguments.extend(match level.number {
            1 => [Argument::Buffer(data.clone()), values_in],
            // Above the leaves data are values.
            _ => [values_in, Argument::Same(5)],
        });
        let Launch { kernel, blocks, threads } = launch;
        let geometry = Geometry { blocks, threads, shared: threads * shared(node) };
        values = runner.run(kernel, geometry, arguments).pop().expect("values");
    }
    values.as_chunks().0[..messages.len()].to_vec()
}

const LAUNCHES: [Launch; 5] = [
    Launch { kernel: "md6_nodes", blocks: 2, threads: 64 },
    Launch { kernel: "md6_nodes_shared", blocks: 2, threads: 64 },
    Launch { kernel: "md6_nodes", blocks: 1, threads: 32 },
    Launch { kernel: "md6_nodes_shared", blocks: 1, threads: 16 },
    Launch { kernel: "md6_nodes_shared", blocks: 9, threads: 96 },
];

/// A hash with random parameters, and messages for it.
fn case(dice: &mut Dice) -> (Md6, Vec<Message>) {
    let bits = [512, 256, 1, 1 + dice.below(512) as u16][dice.below(4) as usize];
    let key = noise(dice.below(1 << 20), dice.below(65) as usize);
    let md6 = Md6::new(bits).and_then(|md6| md6.with_key(&key)).expect("in range");
    let md6 = match dice.below(3) {
        0 => md6,
        _ => md6.with_rounds(dice.below(60) as u16).expect("in range"),
    };
    let edges = [0, 1, 511, 512, 513, 2047, 2048, 2049, 8192, 8193];
    let messages = (0..1 + dice.below(12)).map(|_| {
        let len = match dice.below(3) {
            0 => edges[dice.below(10) as usize],
            _ => dice.below(12_000) as usize,
        };
        let part = (dice.below(4) == 0 && len > 0).then(|| dice.below(1 << 20));
        let unused = if part.is_none() && len > 0 { dice.below(8) as u8 } else { 0 };
        Message { bytes: noise(dice.below(1 << 20), len), unused, part }
    });
    let messages = messages.collect();
    (md6, messages)
}

fn compare(md6: &Md6, messages: &[Message], found: &[[u8; VALUE]], what: &str) {
    for (message, value) in messages.iter().zip(found) {
        let Message { bytes, unused, part } = message;
        match part {
            Some(index) => {
                let want = Function::Md6(md6.clone()).part(*index, bytes, false);
                assert!(value[..] == want[..], "{what}: {md6:?}, part {index} of {} bytes", bytes.len());
            }
            None => {
                let want = md6.digest_bits(bytes, *unused);
                assert_eq!(md6.of_root(value), want, "{what}: {md6:?}, {} bytes, {unused}", bytes.len());
            }
        }
    }
}

#[test]
fn md6_of_anything() {
    for (machine, mut runner) in runners() {
        let mut dice = Dice(1);
        // A device takes a launch in no time.
        let cases = if machine == Machine::Gpu { 2000 } else { 60 };
        for number in 0..cases {
            let (md6, messages) = case(&mut dice);
            let launch = LAUNCHES[number % LAUNCHES.len()];
            let found = tops(&mut runner, &md6, &messages, NODE, launch);
            compare(&md6, &messages, &found, &format!("{machine:?}, {launch:?}, case {number}"));
        }
    }
}

/// As many rounds as the control word can name, and several parts of one message that are full.
#[test]
fn md6_at_its_limits() {
    for (machine, mut runner) in runners() {
        let md6 = Md6::new(512).and_then(|md6| md6.with_rounds(4095)).expect("in range");
        let messages = [Message { bytes: noise(5, 1500), unused: 3, part: None }];
        for launch in &LAUNCHES[..2] {
            let found = tops(&mut runner, &md6, &messages, NODE, *launch);
            compare(&md6, &messages, &found, &format!("{machine:?}, {launch:?}"));
        }
        let md6 = Md6::new(256).and_then(|md6| md6.with_rounds(2)).expect("in range");
        let part_len = Function::Md6(md6.clone()).part_len().expect("a tree");
        let bytes = noise(6, part_len);
        let part = |index| Message { bytes: bytes.clone(), unused: 0, part: Some(index) };
        let messages = [part(3), part((1 << 40) + 1)];
        for launch in &LAUNCHES[..2] {
            let launch = Launch { blocks: 8, threads: 128, ..*launch };
            let found = tops(&mut runner, &md6, &messages, NODE, launch);
            compare(&md6, &messages, &found, &format!("{machine:?}, {launch:?}"));
        }
    }
}

#[test]
fn md6_without_races() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(mut runner) = on_threads(folder.path()) else { return };
    let md6 = Md6::new(256).and_then(|md6| md6.with_rounds(20)).expect("in range");
    let messages =
        [100, 5000, 600].map(|len| Message { bytes: noise(len, len as usize), unused: 0, part: None });
    for launch in &LAUNCHES[..2] {
        let found = tops(&mut runner, &md6, &messages, NODE, *launch);
        compare(&md6, &messages, &found, "on threads");
    }
}

#[test]
fn md6_with_nodes_of_any_size() {
    let Some(mut runner) = experiments() else { return };
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
