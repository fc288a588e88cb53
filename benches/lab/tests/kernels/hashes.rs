//! The trees of MD6 with nodes of another size, against the plain implementation.

use crate::{
    layout::noise,
    runner, sized,
    trees::{Launch, Message, tops},
};
use warpcrypt::crypto::hash::md6::{Md6, NODE};

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
