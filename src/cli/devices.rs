//! `devices`: shows this machine's engines, their measured speed, and the size above which the GPU is
//! faster.

use super::{
    exit::{Failure, Outcome},
    json::document,
    print,
};
use engine::{
    Calibration, Curve, Description, Function, Measured, Profile, calibrate, crossover, forget_measurements,
};
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs `devices`.
pub fn run(as_json: bool, anew: bool) -> Outcome {
    if anew {
        forget_measurements().map_err(|e| Failure::io("the kept measurement", &e))?;
    }
    let found = calibrate();
    print(&if as_json { document("devices", to_json(&found)) } else { to_text(&found) })?;
    Ok(())
}

fn to_json(found: &Calibration) -> Value {
    let mut engines = vec![json!({ "engine": "cpu", "threads": found.threads })];
    match &found.measured {
        Err(why) => engines.push(json!({ "engine": "gpu", "available": false, "reason": why })),
        Ok(Measured { cpu, gpus }) => {
            let gpus = gpus.iter().enumerate().map(|(number, gpu)| match gpu {
                Err(why) => json!({ "engine": "gpu", "number": number, "available": false, "reason": why }),
                Ok((device, profile)) => json!({
                    "engine": "gpu",
                    "number": number,
                    "available": true,
                    "device": device.name,
                    "driver_cuda_version": version(device.driver),
                    "multiprocessors": device.processors,
                    "measured": Function::all().filter_map(|f| function_json(f, cpu, profile)).collect::<Value>(),
                }),
            });
            engines.extend(gpus);
        }
    }
    json!({ "engines": engines })
}

fn function_json(function: Function, cpu: &Profile, gpu: &Profile) -> Option<Value> {
    let (cpu, gpu) = (cpu.curve(function)?, gpu.curve(function)?);
    let points = |curve: &Curve| -> Value {
        curve.points.iter().map(|(bytes, ns)| json!({ "bytes": bytes, "nanoseconds": ns })).collect()
    };
    Some(json!({
        "cipher": function.cipher.name(),
        "integrity": function.integrity.name(),
        "operation": function.op.name(),
        "gpu_from_bytes": crossover(cpu, gpu),
        "cpu": points(cpu),
        "gpu": points(gpu),
    }))
}

fn to_text(found: &Calibration) -> String {
    let mut text = format!("cpu    {} threads\n", found.threads);
    let Measured { cpu, gpus } = match &found.measured {
        Ok(measured) => measured,
        Err(why) => return text + &format!("gpu    none: {why}\n"),
    };
    for (number, gpu) in gpus.iter().enumerate() {
        match gpu {
            Ok((device, gpu)) => gpu_text(&mut text, number, device, [cpu, gpu]),
            Err(why) => text += &format!("gpu {number}  not used: {why}\n"),
        }
    }
    text
}

fn gpu_text(text: &mut String, number: usize, device: &Description, [cpu, gpu]: [&Profile; 2]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "gpu {number}  {}, driver for CUDA {}\n", device.name, version(device.driver));
    let _ = writeln!(
        text,
        "{:<16}{:<16}{:<6}{:>10}{:>10}   gpu from",
        "cipher", "integrity", "", "cpu GB/s", "gpu GB/s"
    );
    for function in Function::all() {
        let (Some(cpu), Some(gpu)) = (cpu.curve(function), gpu.curve(function)) else { continue };
        let from = crossover(cpu, gpu);
        let from = from.map_or("never".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
        let rates = [cpu, gpu].map(|curve| curve.rate() / 1e9);
        let Function { cipher, integrity, op } = function;
        let _ = writeln!(
            text,
            "{:<16}{:<16}{:<6}{:>10.2}{:>10.2}   {from}",
            cipher.name(),
            integrity.name(),
            op.name(),
            rates[0],
            rates[1]
        );
    }
    text.push('\n');
}

fn version(driver: i32) -> String {
    format!("{}.{}", driver / 1000, driver % 1000 / 10)
}
