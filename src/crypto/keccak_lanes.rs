//! `Keccak-p[1600]` over several states at once, one in each 64-bit element of a vector: the parts that
//! every vector width shares.

/// One round on 25 vectors. `$xor3`, `$rol`, `$chi` (`a ^ (!b & c)`) and `$xor` are functions of the width.
macro_rules! round {
    ($a:expr, $constant:expr, $xor3:ident, $xor:ident, $rol:ident, $chi:ident) => {{
        let a = $a;
        let c0 = $xor3($xor3(a[0], a[5], a[10]), a[15], a[20]);
        let c1 = $xor3($xor3(a[1], a[6], a[11]), a[16], a[21]);
        let c2 = $xor3($xor3(a[2], a[7], a[12]), a[17], a[22]);
        let c3 = $xor3($xor3(a[3], a[8], a[13]), a[18], a[23]);
        let c4 = $xor3($xor3(a[4], a[9], a[14]), a[19], a[24]);
        let (r0, r1, r2) = ($rol::<1>(c0), $rol::<1>(c1), $rol::<1>(c2));
        let (r3, r4) = ($rol::<1>(c3), $rol::<1>(c4));
        // Each row of the result takes its five lanes shifted by theta, turned by rho, moved by pi.
        let row = |b0, b1, b2, b3, b4| {
            [$chi(b0, b1, b2), $chi(b1, b2, b3), $chi(b2, b3, b4), $chi(b3, b4, b0), $chi(b4, b0, b1)]
        };
        let y0 = row(
            $xor3(a[0], c4, r1),
            $rol::<44>($xor3(a[6], c0, r2)),
            $rol::<43>($xor3(a[12], c1, r3)),
            $rol::<21>($xor3(a[18], c2, r4)),
            $rol::<14>($xor3(a[24], c3, r0)),
        );
        let y1 = row(
            $rol::<28>($xor3(a[3], c2, r4)),
            $rol::<20>($xor3(a[9], c3, r0)),
            $rol::<3>($xor3(a[10], c4, r1)),
            $rol::<45>($xor3(a[16], c0, r2)),
            $rol::<61>($xor3(a[22], c1, r3)),
        );
        let y2 = row(
            $rol::<1>($xor3(a[1], c0, r2)),
            $rol::<6>($xor3(a[7], c1, r3)),
            $rol::<25>($xor3(a[13], c2, r4)),
            $rol::<8>($xor3(a[19], c3, r0)),
            $rol::<18>($xor3(a[20], c4, r1)),
        );
        let y3 = row(
            $rol::<27>($xor3(a[4], c3, r0)),
            $rol::<36>($xor3(a[5], c4, r1)),
            $rol::<10>($xor3(a[11], c0, r2)),
            $rol::<15>($xor3(a[17], c1, r3)),
            $rol::<56>($xor3(a[23], c2, r4)),
        );
        let y4 = row(
            $rol::<62>($xor3(a[2], c1, r3)),
            $rol::<55>($xor3(a[8], c2, r4)),
            $rol::<39>($xor3(a[14], c3, r0)),
            $rol::<41>($xor3(a[15], c4, r1)),
            $rol::<2>($xor3(a[21], c0, r2)),
        );
        [
            $xor(y0[0], $constant),
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

pub(super) use round;
