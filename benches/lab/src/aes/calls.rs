//! Time of each call, as the project of 2010 wanted it from its profiler: allocating device memory, upload,
//! kernel, download, and freeing the memory.

use super::{CIPHERS, KIB, MIB, device::Device};
use crate::{
    experiment::{failed, much_noise},
    report::{Column, Section, Spread, Table},
};
use std::time::Instant;
use warpcrypt::cli::lab::Outcome;

/// The project's kernel: tables in constant memory, the state in shared memory, as many threads as fit into
/// a block.
const KERNEL: &str = "constant_rows_state";
const THREADS: u32 = 1024;
const RUNS: usize = 5;
const CALLS: [&str; 5] = ["allocate", "upload", "kernel", "download", "free"];

/// Measures it for every key size.
pub(super) fn section(device: &Device, most: usize) -> Outcome<Section> {
    let mut columns = vec![Column::text("mode"), Column::number("key", "bit"), Column::number("size", "B")];
    columns.extend(CALLS.map(|call| Column::number(call, "µs")));
    columns.push(Column::number("all", "GB/s"));
    let mut table = Table::new("calls", columns);
    let lab = device.lab;
    let (from, mut to) = (much_noise(most), vec![0; most]);
    let sizes = [KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB].into_iter().filter(|size| *size <= most);
    for bytes in sizes {
        for cipher in CIPHERS {
            for (mode, shown) in [("encrypt", "ECB encryption"), ("decrypt", "ECB decryption")] {
                // An uncounted warm-up run, whose output is compared with the CPU's.
                device.rate((KERNEL, mode), cipher, (THREADS, bytes))?;
                let mut times: [Vec<f64>; CALLS.len()] = Default::default();
                device.with((KERNEL, mode), cipher, (THREADS, bytes), |launch| {
                    for _ in 0..RUNS {
                        let mut start = Instant::now();
                        let mut lap = |call: usize| {
                            times[call].push(start.elapsed().as_secs_f64() * 1e6);
                            start = Instant::now();
                        };
                        let memory = [lab.memory(bytes), lab.memory(bytes)];
                        lap(0);
                        lab.upload(&from[..bytes], &device.input).map_err(failed)?;
                        lap(1);
                        lab.launch(launch).and_then(|()| lab.wait()).map_err(failed)?;
                        lap(2);
                        lab.download(&device.output, &mut to[..bytes]).map_err(failed)?;
                        lap(3);
                        drop(memory);
                        lap(4);
                    }
                    Ok(Some(()))
                })?;
                let medians = times.map(|times| Spread::of(&times).map_or(f64::NAN, |spread| spread.median));
                let all = bytes as f64 / 1e3 / medians.iter().sum::<f64>();
                let head = [shown.into(), (8 * cipher.key_len()).into(), bytes.into()];
                table.row(head.into_iter().chain(medians.map(Into::into)).chain([all.into()]));
            }
        }
    }
    let text = "Pageable memory, by the host's clock, medians of five; tables in constant memory, the state in shared memory. The \
                project's listing gives the state of all threads of a block the same eight words; here each \
                thread has its own.";
    Ok(Section::new("Time of each call").text(text).table(table))
}
