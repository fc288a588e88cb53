//! The configuration of the publication of 2012, next to its figures: four threads per block of data, 256
//! threads per block, and four tables, first in constant memory, then in shared memory along with keys and
//! data.

use super::{KIB, MIB, THREADS, Variant, cpu, device::Device};
use crate::{
    experiment::Journeys,
    papers,
    report::{Column, Section, Table},
};
use crypto::cipher::Cipher;
use warpcrypt::cli::lab::Outcome;

/// Its first placement, its second one in two steps, and the fastest variant here.
pub(super) const VARIANTS: [Variant; 4] = [
    ("constant_rows_4", "4 threads, four tables in constant memory"),
    ("shared_rows_4", "4 threads, four tables in shared memory"),
    BEST,
    ("spread", "fastest here: 32 copies in shared memory"),
];
/// Its second placement.
pub(super) const BEST: Variant = ("shared_rows_staged_4", "4 threads, four tables and data in shared memory");

/// Measures the kernel alone and with transfers, by size.
pub(super) fn section(device: &Device, most: usize) -> Outcome<Section> {
    let cipher = Cipher::Aes128;
    let mut columns = vec![Column::text("variant"), Column::number("size", "B")];
    columns.extend(["kernel", "with transfers", "CPU, one core"].map(|of| Column::number(of, "GB/s")));
    columns.extend(["kernel over CPU", "with transfers over CPU"].map(|of| Column::number(of, "times")));
    columns.push(Column::number("paper: kernel", "GB/s"));
    columns.push(Column::number("paper: kernel over CPU", "times"));
    let mut table = Table::new("publication", columns);
    let mut journeys = Journeys::new(device.lab, most)?;
    let sizes = [16 * KIB, 128 * KIB, 512 * KIB, 8 * MIB, 64 * MIB].into_iter().filter(|size| *size <= most);
    for bytes in sizes {
        let [one, _] = cpu(device.bench, cipher, bytes)?;
        let one = one.map(|rate| rate.median);
        for (number, (kernel, shown)) in VARIANTS.iter().enumerate() {
            let alone = device.rate((kernel, "ctr"), cipher, (THREADS, bytes))?.map(|rate| rate.median);
            let journey = device.journey((kernel, "ctr"), cipher, &mut journeys, (false, bytes))?;
            let journey = journey.map(|rate| rate.median);
            // The paper gives rates for large data only.
            let [rate, times] = match number {
                0 => [papers::AES_CONSTANT / 8.0, papers::AES_SPEEDUPS[0]],
                2 => [papers::AES_SHARED / 8.0, papers::AES_SPEEDUPS[1]],
                _ => [f64::NAN; 2],
            }
            .map(|figure| Some(figure).filter(|figure| figure.is_finite() && bytes >= 8 * MIB));
            let over = |rate: Option<f64>| Some(rate? / one?);
            let cells = [alone, journey, one, over(alone), over(journey), rate, times];
            table.row([(*shown).into(), bytes.into()].into_iter().chain(cells.map(Into::into)));
        }
    }
    let text = format!(
        "AES-128 in CTR mode, 256 threads a block, transfers from pageable memory and back. The paper: {} Gbit/s with tables in \
         constant memory and {} with tables, keys and data in shared memory, {} with transfers, {} on one core of its CPU, \
         which had no instructions for AES; no gain below 128 KB.",
        papers::AES_CONSTANT,
        papers::AES_SHARED,
        papers::AES_TRANSFERS,
        papers::AES_CPU
    );
    Ok(Section::new("The publication of 2012").text(text).table(table))
}
