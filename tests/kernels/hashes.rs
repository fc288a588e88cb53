//! MD6 trees compared with the CPU's: random bit lengths, keys, rounds and digest sizes, whole messages
//! and parts of longer ones together in one launch.

use super::{
    layout::noise,
    runner::{Machine, on_threads, runners},
    trees::{Launch, Message, tops},
};
use crypto::hash::{
    Function,
    md6::{Md6, NODE, VALUE},
};

/// Random numbers from a seed, each below a limit.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
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
        // A device needs next to no time for a launch.
        let cases = if machine == Machine::Gpu { 2000 } else { 60 };
        for number in 0..cases {
            let (md6, messages) = case(&mut dice);
            let launch = LAUNCHES[number % LAUNCHES.len()];
            let found = tops(&mut runner, &md6, &messages, NODE, launch);
            compare(&md6, &messages, &found, &format!("{machine:?}, {launch:?}, case {number}"));
        }
    }
}

/// The maximum number of rounds that fits the control word, and several full parts of one message.
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
    let Some(mut runner) = on_threads() else { return };
    let md6 = Md6::new(256).and_then(|md6| md6.with_rounds(20)).expect("in range");
    let messages =
        [100, 5000, 600].map(|len| Message { bytes: noise(len, len as usize), unused: 0, part: None });
    for launch in &LAUNCHES[..2] {
        let found = tops(&mut runner, &md6, &messages, NODE, *launch);
        compare(&md6, &messages, &found, "on threads");
    }
}
