//! Drivers that are missing, too old, without a device, broken, or that fail while the engine starts.

use crate::{
    batches::{SMALL, open},
    fake::{self, order},
};
use std::{fs, time::Duration};

fn reason() -> String {
    open(SMALL, Duration::from_millis(20)).err().expect("there is no engine").to_string()
}

#[test]
fn says_why_there_is_no_engine() {
    let why = "startup::over_fake_prints_the_reason";
    let Some(old) = fake::run_here(why, &[("FAKE_CUDA_VERSION", "11080")], 60) else { return };
    assert!(old.contains("too old: it is for CUDA 11.8"), "{old}");
    let none = fake::run_here(why, &[("FAKE_CUDA_DEVICES", "0")], 60).expect("a driver");
    assert!(none.contains("knows no device"), "{none}");
    let dir = tempfile::tempdir().expect("directory");
    for (content, expected) in [("int nothing;", "it lacks cuInit"), ("no library", "libcuda.so.1")] {
        let library = dir.path().join("libcuda.so.1");
        if content == "no library" {
            fs::write(&library, content).expect("library");
        } else {
            let source = dir.path().join("empty.c");
            fs::write(&source, content).expect("source");
            let mut command = std::process::Command::new("g++");
            command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
            crate::support::command::ok(&mut command, 60);
        }
        fs::copy(&library, dir.path().join("libcuda.so")).expect("the name that is tried first");
        let said = fake::run_over(dir.path(), why, &[], 60);
        assert!(said.contains(expected) || content == "no library" && said.contains("REASON"), "{said}");
    }
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_prints_the_reason() {
    println!("REASON {}", reason());
}

#[test]
fn a_fault_at_any_call_of_the_start_is_an_error() {
    fake::run_here("startup::over_fake_fails_to_start", &[], 300);
}

#[test]
#[ignore = "runs over the fake driver"]
fn over_fake_fails_to_start() {
    let calls = [
        "cuInit",
        "cuCtxCreate_v2",
        "cuCtxSetCurrent",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuModuleGetFunction:25",
        "cuFuncSetAttribute",
        "cuStreamCreate",
        "cuStreamCreate:3",
        "cuEventCreate",
        "cuEventCreate:3",
        "cuMemAlloc_v2",
        "cuMemAlloc_v2:9",
        "cuMemHostRegister_v2",
        "cuMemHostRegister_v2:5",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
    ];
    for call in calls {
        for fault in ["error", "memory", "lost"] {
            order(call, fault);
            let said = reason();
            assert!(said.contains("CUDA_ERROR"), "{call} {fault}: {said}");
        }
    }
    // The first kernel fills tables. The self-test must detect a wrong result of a later kernel.
    order("cuLaunchKernel:2", "wrong");
    assert!(reason().contains("wrong result"));
    order("none", "none");
    assert!(open(SMALL, Duration::from_millis(20)).is_ok());
}
