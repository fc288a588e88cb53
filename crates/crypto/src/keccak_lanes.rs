//! `Keccak-p[1600]` over several states at once, one in each 64-bit element of a vector: the code that all
//! vector widths share. The module of each width provides functions with these names: `xor`, `xor3`, `rol`,
//! `chi` (`a ^ (!b & c)`) and, for absorbing, `load`, `store`, `splat` and `words`.

/// One round on 25 vectors.
///
/// Theta XORs the sum of two parts onto each column. With `$sums`, that sum is computed once and XORed onto
/// each lane with a two-operand instruction. Without, three-way logic XORs both parts onto each lane. That
/// saves five operations, and is faster with 512 bits on Intel processors. AMD's Zen 4 starts only half as
/// many three-operand operations per cycle if their operands were just computed.
macro_rules! round {
    ($a:expr, $constant:expr, $sums:expr) => {{
        let a = $a;
        let c0 = xor3(xor3(a[0], a[5], a[10]), a[15], a[20]);
        let c1 = xor3(xor3(a[1], a[6], a[11]), a[16], a[21]);
        let c2 = xor3(xor3(a[2], a[7], a[12]), a[17], a[22]);
        let c3 = xor3(xor3(a[3], a[8], a[13]), a[18], a[23]);
        let c4 = xor3(xor3(a[4], a[9], a[14]), a[19], a[24]);
        // For each column, the two parts of theta, and their sum.
        let [r0, r1, r2, r3, r4] = [rol::<1>(c0), rol::<1>(c1), rol::<1>(c2), rol::<1>(c3), rol::<1>(c4)];
        let parts = [(c4, r1), (c0, r2), (c1, r3), (c2, r4), (c3, r0)];
        let sums = [xor(c4, r1), xor(c0, r2), xor(c1, r3), xor(c2, r4), xor(c3, r0)];
        let theta = |x: usize, y: usize| {
            let lane = a[x + 5 * y];
            if $sums { xor(lane, sums[x]) } else { xor3(lane, parts[x].0, parts[x].1) }
        };
        // Each output row takes its five lanes, XORed by theta, rotated by rho and moved by pi,
        // and applies chi.
        let row = |b0, b1, b2, b3, b4| {
            [chi(b0, b1, b2), chi(b1, b2, b3), chi(b2, b3, b4), chi(b3, b4, b0), chi(b4, b0, b1)]
        };
        let y0 = row(
            theta(0, 0),
            rol::<44>(theta(1, 1)),
            rol::<43>(theta(2, 2)),
            rol::<21>(theta(3, 3)),
            rol::<14>(theta(4, 4)),
        );
        let y1 = row(
            rol::<28>(theta(3, 0)),
            rol::<20>(theta(4, 1)),
            rol::<3>(theta(0, 2)),
            rol::<45>(theta(1, 3)),
            rol::<61>(theta(2, 4)),
        );
        let y2 = row(
            rol::<1>(theta(1, 0)),
            rol::<6>(theta(2, 1)),
            rol::<25>(theta(3, 2)),
            rol::<8>(theta(4, 3)),
            rol::<18>(theta(0, 4)),
        );
        let y3 = row(
            rol::<27>(theta(4, 0)),
            rol::<36>(theta(0, 1)),
            rol::<10>(theta(1, 2)),
            rol::<15>(theta(2, 3)),
            rol::<56>(theta(3, 4)),
        );
        let y4 = row(
            rol::<62>(theta(2, 0)),
            rol::<55>(theta(3, 1)),
            rol::<39>(theta(4, 2)),
            rol::<41>(theta(0, 3)),
            rol::<2>(theta(1, 4)),
        );
        [
            xor(y0[0], $constant),
            y0[1],
            y0[2],
            y0[3],
            y0[4],
            y1[0],
            y1[1],
            y1[2],
            y1[3],
            y1[4],
            y2[0],
            y2[1],
            y2[2],
            y2[3],
            y2[4],
            y3[0],
            y3[1],
            y3[2],
            y3[3],
            y3[4],
            y4[0],
            y4[1],
            y4[2],
            y4[3],
            y4[4],
        ]
    }};
}

/// The states absorb the blocks of `$pieces`, piece by piece. A piece has the same number of whole blocks of
/// `$rate` bytes for every state. A vector has `$n` states, and `$first` are the multiples of `$n` below 24.
///
/// `words(messages, at, count)` returns `count` words (1 to `$n`) of each message from byte `at` on:
/// word i of all messages is in vector i, and further vectors are zero. The index of every word in the
/// state is thus known at compile time, and the state stays in registers. A loop over groups of words
/// would not be unrolled.
macro_rules! absorb {
    ($n:literal: $($first:literal)*, $states:expr, $pieces:expr, $rate:expr, $rounds:expr, $sums:expr) => {{
        let (states, rate) = ($states, $rate);
        let mut state = std::array::from_fn(|lane| load(&states[lane]));
        for blocks in $pieces {
            for block in (0..blocks[0].len() / rate * rate).step_by(rate) {
                $({
                    let count = (rate / 8).saturating_sub($first).min($n);
                    if count > 0 {
                        let rows = words(*blocks, block + 8 * $first, count);
                        for (lane, row) in state[$first..$first + $n].iter_mut().zip(rows) {
                            *lane = xor(*lane, row);
                        }
                    }
                })*
                for constant in $rounds.constants() {
                    state = round!(state, splat(*constant as i64), $sums);
                }
            }
        }
        for (lane, vector) in states.iter_mut().zip(state) {
            store(lane, vector);
        }
    }};
}

pub(super) use {absorb, round};
