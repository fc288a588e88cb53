//! `devices`: the engines of this machine, what each was measured at, and from which size on the GPU wins.

use super::{exit::Outcome, print};
use crate::engine::{Comparison, Survey, survey};
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs `devices`.
pub fn run(as_json: bool) -> Outcome {
    let survey = survey();
    print(&if as_json { format!("{:#}\n", to_json(&survey)) } else { to_text(&survey) });
    Ok(())
}

fn to_json(survey: &Survey) -> Value {
    let cpu = json!({ "engine": "cpu", "threads": survey.threads });
    let gpu = match &survey.gpu {
        Err(why) => json!({ "engine": "gpu", "available": false, "reason": why }),
        Ok((device, comparisons)) => json!({
            "engine": "gpu",
            "available": true,
            "device": device.name,
            "driver_cuda_version": version(device.driver),
            "multiprocessors": device.processors,
            "measured": comparisons.iter().map(comparison_json).collect::<Value>(),
        }),
    };
    json!({ "engines": [cpu, gpu] })
}

fn comparison_json(comparison: &Comparison) -> Value {
    let points = |points: &[(usize, u64)]| -> Value {
        points.iter().map(|(bytes, ns)| json!({ "bytes": bytes, "nanoseconds": ns })).collect()
    };
    json!({
        "cipher": comparison.cipher,
        "integrity": comparison.integrity,
        "gpu_from_bytes": comparison.crossover(),
        "cpu": points(&comparison.cpu.points),
        "gpu": points(&comparison.gpu.points),
    })
}

fn to_text(survey: &Survey) -> String {
    let mut text = format!("cpu  {} threads\n", survey.threads);
    let (device, comparisons) = match &survey.gpu {
        Ok(gpu) => gpu,
        Err(why) => return text + &format!("gpu  none: {why}\n"),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "gpu  {}, driver for CUDA {}\n", device.name, version(device.driver));
    let _ =
        writeln!(text, "{:<16}{:<15}{:>10}{:>10}   gpu from", "cipher", "integrity", "cpu GB/s", "gpu GB/s");
    for comparison in comparisons {
        let from = comparison.crossover().map_or("never".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
        let rates = [comparison.cpu.rate(), comparison.gpu.rate()].map(|rate| rate / 1e9);
        let _ = writeln!(
            text,
            "{:<16}{:<15}{:>10.2}{:>10.2}   {from}",
            comparison.cipher, comparison.integrity, rates[0], rates[1]
        );
    }
    text
}

fn version(driver: i32) -> String {
    format!("{}.{}", driver / 1000, driver % 1000 / 10)
}
