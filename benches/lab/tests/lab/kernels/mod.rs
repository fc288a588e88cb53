//! The experiments' kernels compared with the portable implementation, byte for byte, on the CPU; those
//! in OpenCL also on a device.

mod experiments;
mod hashes;
#[allow(dead_code)]
#[path = "../../../../../tests/kernels/layout.rs"]
mod layout;
mod manifest;
mod opencl;
#[allow(dead_code)]
#[path = "../../../src/keccak/opencl/device.rs"]
mod opencl_device;
#[allow(dead_code)]
#[path = "../../../../../tests/kernels/runner.rs"]
mod runner;
#[path = "../../../src/md6/sized.rs"]
mod sized;
#[path = "../../../../../tests/kernels/trees.rs"]
mod trees;

use runner::{Geometry, Runner, build, skip, start};
use std::{path::PathBuf, process::Command, sync::OnceLock};
use tempfile::TempDir;

/// Starts the program with all kernels on the CPU and fills the tables. `None` without g++.
fn runner() -> Option<Runner> {
    static PROGRAM: OnceLock<(TempDir, Option<PathBuf>)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = "benches/lab/tests/lab/kernels/experiments_on_cpu.cc";
        let program = build(source, &["-Ibenches/lab/kernels"], folder.path().join("experiments"));
        if program.is_none() {
            skip("REQUIRE_GXX", "no g++: the kernels of the experiments are not run on the CPU");
        }
        (folder, program)
    });
    let mut runner = start(Command::new(program.as_deref()?));
    runner.run("kuznyechik_to_constant", Geometry { blocks: 1, threads: 1, shared: 0 }, vec![]);
    Some(runner)
}
