//! Figures from the papers that reports show next to the measurements. If the papers' texts are available,
//! tests look up each figure in them.

/// Keccak: the time that one implementation saves over another at the end of each of three ranges of
/// states, as the faster one's number, the slower one's, states, percent (section 5.2).
pub const KECCAK_SAVED: [(usize, usize, usize, f64); 9] = [
    (2, 1, 435_600, 61.5),
    (3, 1, 435_600, 76.0),
    (3, 2, 435_600, 38.0),
    (2, 3, 1_742_400, 25.0),
    (2, 1, 1_742_400, 60.0),
    (3, 1, 1_742_400, 49.0),
    (2, 3, 4_000_000, 56.0),
    (2, 1, 4_000_000, 60.0),
    (3, 1, 4_000_000, 13.0),
];

/// AES of 2012, in Gbit/s (figures 5.9 and 5.10): the kernel with tables in constant memory; with tables,
/// keys and data in shared memory; with transfers; and the CPU.
pub const AES_CONSTANT: f64 = 7.00;
/// See `AES_CONSTANT`.
pub const AES_SHARED: f64 = 10.05;
/// See `AES_CONSTANT`.
pub const AES_TRANSFERS: f64 = 2.43;
/// See `AES_CONSTANT`.
pub const AES_CPU: f64 = 0.40;
/// Its maximum speed-ups over the CPU, with tables in constant memory (figure 5.8) and in shared memory
/// (figure 5.11).
pub const AES_SPEEDUPS: [f64; 2] = [17.0, 25.0];
/// Its table 2.2, in GB/s: host to device, device to host, device to device.
pub const BANDWIDTHS: [(&str, [f64; 3]); 4] = [
    ("9600GT", [1.358, 1.223, 36.094]),
    ("9800GT", [1.707, 1.527, 56.032]),
    ("FX 460", [1.824, 1.743, 47.657]),
    ("Tesla C1060", [2.488, 1.971, 73.453]),
];

/// MD6's speed-up over one core of the CPU (table 6.1): megabytes, with transfers, without transfers.
pub const MD6_SPEEDUPS: [(f64, f64, f64); 3] =
    [(100.0, 2.75, 19.87), (500.0, 38.89, 373.98), (1000.0, 52.72, 506.78)];
/// Share of the compression in MD6's time on one core, in percent (figure 4.3).
pub const MD6_SHARE: f64 = 96.62;

/// Sizes for Kuznyechik in KiB (tables 1 and 3), and threads per block (table 2).
pub const KUZNYECHIK_SIZES: [usize; 8] = [1, 32, 128, 1024, 16384, 65536, 131_072, 524_288];
/// See `KUZNYECHIK_SIZES`.
pub const KUZNYECHIK_THREADS: [u32; 9] = [32, 64, 128, 192, 256, 384, 512, 768, 1024];
/// Encryption in MB/s by size (table 1): the CPU, then tables in global memory with 1, 2 and 4 blocks per
/// thread, in constant memory, and in texture memory.
pub const KUZNYECHIK_ENCRYPTION: [[f64; 8]; 6] = [
    [58.07, 75.47, 82.78, 148.62, 170.23, 173.47, 172.52, 175.65],
    [14.53, 276.63, 1101.35, 2081.43, 2676.07, 2749.11, 2753.49, 2751.96],
    [9.39, 324.42, 1289.36, 1420.33, 1409.46, 1413.56, 1414.09, 1410.59],
    [5.30, 167.14, 653.11, 871.99, 807.41, 795.88, 777.02, 765.46],
    [2.31, 44.75, 199.69, 517.61, 593.97, 597.32, 597.34, 598.01],
    [16.11, 322.99, 1274.43, 1410.79, 1399.39, 1402.86, 1403.36, 1401.16],
];
/// Encryption in MB/s by threads per block, at 128 MB (table 2), without the CPU.
pub const KUZNYECHIK_BY_THREADS: [[f64; 9]; 5] = [
    [794.98, 1690.93, 2475.98, 2609.98, 2660.58, 2753.76, 2653.44, 2662.99, 2474.16],
    [795.12, 1136.62, 1310.17, 1362.72, 1344.85, 1413.43, 1347.74, 1330.55, 1257.86],
    [815.39, 811.03, 805.84, 827.18, 815.99, 778.76, 817.92, 984.20, 769.86],
    [21.26, 48.90, 104.12, 193.09, 423.87, 598.26, 551.30, 507.61, 438.11],
    [770.33, 1154.25, 1303.11, 1346.03, 1360.66, 1403.06, 1336.63, 1318.83, 1246.79],
];
/// Decryption in MB/s by size (table 3): the CPU, then with the substitution in global, constant and shared
/// memory.
pub const KUZNYECHIK_DECRYPTION: [[f64; 8]; 4] = [
    [17.03, 66.12, 65.40, 113.84, 183.09, 181.24, 180.80, 178.86],
    [12.76, 241.46, 958.29, 1807.57, 2173.85, 2375.58, 2368.84, 2362.16],
    [13.40, 256.22, 1022.64, 1926.67, 2128.08, 2143.06, 2144.83, 2144.83],
    [15.11, 296.46, 1187.42, 2258.10, 2505.29, 2522.35, 2517.98, 2523.55],
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    /// The text of a paper with single blanks, if it is available: the papers are expected next to the
    /// checkout, numbered.
    fn paper(number: usize) -> Option<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
        let files = fs::read_dir(&folder).ok().into_iter().flatten().flatten();
        let found = files.map(|file| file.path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{number:03}_")))
        });
        let Some(path) = found else {
            let required = std::env::var_os("REQUIRE_PAPERS").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_PAPERS=1, but there is no paper {number}");
            println!("SKIPPED: paper {number} is not at hand");
            return None;
        };
        let text = fs::read_to_string(path).expect("a text");
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn says(paper: &str, words: &str) {
        assert!(paper.contains(words), "the paper does not say {words:?}");
    }

    #[test]
    fn keccak_says_so() {
        let Some(text) = paper(0) else { return };
        let quotes = [
            "Implementação II para a implementação I é de aproximadamente 61,5%",
            "Implementação III para a Implementação I é de aproximadamente 76% e o aumento de desempenho em relação à \
             Implementação II é de aproximadamente 38%",
            "implementação II tem um ganho de desempenho de aproximadamente 25% em relação a implementação III e \
             aproximadamente 60% em relação a implementação I. Já a implementação III ainda tem um ganho de desempenho de \
             aproximadamente 49% em relação à implementação I",
            "agora atinge aproximadamente 56%, já a diferença de desempenho da Implementação II para a Implementação I \
             continua com aproximadamente 60%",
            "aproximadamente 49% agora neste ultimo teste chega a aproximadamente apenas 13%",
            "até 78% de ganho de desempenho comparando com a Implementação I",
            "até aproximadamente 1350000 blocos",
        ];
        quotes.iter().for_each(|quote| says(&text, quote));
        for (_, _, states, percent) in KECCAK_SAVED {
            let percent = percent.to_string().replace('.', ",");
            assert!(text.contains(&format!("{percent}%")) && text.contains(&states.to_string()), "{percent}");
        }
        // These are savings of time: 61.5 % and 76 % make 38 %.
        let [(_, _, _, second), (_, _, _, third), (_, _, _, between), ..] = KECCAK_SAVED;
        assert!((100.0 * (1.0 - (100.0 - third) / (100.0 - second)) - between).abs() < 1.0);
    }

    #[test]
    fn aes_says_so() {
        let Some(text) = paper(1) else { return };
        let gbit = |rate: f64| format!("{rate:.2}Gbit/s");
        [AES_CONSTANT, AES_TRANSFERS, AES_CPU].iter().for_each(|rate| says(&text, &gbit(*rate)));
        says(&text, &format!("{AES_SHARED:.2}Gbit/s,加速比最高达到 {}", AES_SPEEDUPS[1]));
        says(&text, &format!("吞吐量比值最高可达到 {}", AES_SPEEDUPS[0]));
        for (gpu, [up, down, within]) in BANDWIDTHS {
            says(&text, &format!("{gpu} {up:.3} {down:.3} {within:.3}"));
        }
    }

    #[test]
    fn md6_says_so() {
        let Some(text) = paper(2) else { return };
        for (megabytes, with, without) in MD6_SPEEDUPS {
            let size = if megabytes < 1000.0 { format!("{megabytes}MB") } else { "1GB".to_owned() };
            says(&text, &format!("{size} {with:.2} {without:.2}"));
        }
        says(&text, &format!("{MD6_SHARE:.2}% of the execution time"));
    }

    /// Looks for rows as printed in the paper: the entry of its first column, then one figure of each
    /// series.
    fn rows<const N: usize>(text: &str, heads: impl IntoIterator<Item = String>, series: &[[f64; N]]) {
        for (at, head) in heads.into_iter().enumerate() {
            let figures: Vec<String> = series.iter().map(|figures| format!("{:.2}", figures[at])).collect();
            says(text, &format!("{head} {}", figures.join(" ")));
        }
    }

    #[test]
    fn kuznyechik_says_so() {
        let Some(text) = paper(3) else { return };
        rows(&text, KUZNYECHIK_SIZES.map(|size| size.to_string()), &KUZNYECHIK_ENCRYPTION);
        rows(&text, KUZNYECHIK_THREADS.map(|threads| threads.to_string()), &KUZNYECHIK_BY_THREADS);
        rows(&text, KUZNYECHIK_SIZES.map(|size| size.to_string()), &KUZNYECHIK_DECRYPTION);
        says(&text, "более 90% попаданий в кэш L2 и около 20% в L1");
        says(&text, "в 65% случаев варп простаивает");
        says(&text, "примерно в 1,5 раза");
        says(&text, "является разделяемая память");
    }
}
