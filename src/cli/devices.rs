//! `devices`: shows the engines of this machine, their measured speed, and the size from which on the GPU is faster.

use super::{
    exit::{Failure, Outcome},
    print,
};
use crate::engine::{
    Curve, Function, Measured, Profile, Survey, Surveyed, crossover, forget_measurements, survey,
};
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs `devices`.
pub fn run(as_json: bool, anew: bool) -> Outcome {
    if anew {
        forget_measurements().map_err(|e| Failure::io("the kept measurement", &e))?;
    }
    let survey = survey();
    print(&if as_json { format!("{:#}\n", to_json(&survey)) } else { to_text(&survey) })?;
    Ok(())
}

fn to_json(survey: &Survey) -> Value {
    let mut engines = vec![json!({ "engine": "cpu", "threads": survey.threads })];
    match &survey.measured {
        Err(why) => engines.push(json!({ "engine": "gpu", "available": false, "reason": why })),
        Ok(Measured { cpu, gpus }) => {
            let gpus = gpus.iter().enumerate().map(|(number, gpu)| match gpu {
                Err(why) => json!({ "engine": "gpu", "number": number, "available": false, "reason": why }),
                Ok(Surveyed { device, ways, profile }) => json!({
                    "engine": "gpu",
                    "number": number,
                    "available": true,
                    "device": device.name,
                    "driver_cuda_version": version(device.driver),
                    "multiprocessors": device.processors,
                    "direct_up_to_chunks": ways.direct,
                    "warp_a_chunk_up_to_chunks": ways.wide,
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

fn to_text(survey: &Survey) -> String {
    let mut text = format!("cpu    {} threads\n", survey.threads);
    let Measured { cpu, gpus } = match &survey.measured {
        Ok(measured) => measured,
        Err(why) => return text + &format!("gpu    none: {why}\n"),
    };
    for (number, gpu) in gpus.iter().enumerate() {
        match gpu {
            Ok(gpu) => gpu_text(&mut text, number, gpu, cpu),
            Err(why) => text += &format!("gpu {number}  not used: {why}\n"),
        }
    }
    text
}

fn gpu_text(text: &mut String, number: usize, gpu: &Surveyed, cpu: &Profile) {
    let Surveyed { device, ways, profile: gpu } = gpu;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "gpu {number}  {}, driver for CUDA {}", device.name, version(device.driver));
    let _ = writeln!(text, "       fastest here: {ways}\n");
    let _ = writeln!(
        text,
        "{:<16}{:<15}{:<6}{:>10}{:>10}   gpu from",
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
            "{:<16}{:<15}{:<6}{:>10.2}{:>10.2}   {from}",
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
