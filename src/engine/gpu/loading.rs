//! The GPU's driver, loaded by a program of its own: a process that may not gain rights could not have it loaded.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The set-user-ID program that comes with NVIDIA's driver, which the driver's library would start by itself.
const PROGRAM: &str = "/usr/bin/nvidia-modprobe";
/// The device that it makes last.
const DEVICE: &str = "/dev/nvidia-uvm";

/// Has the driver loaded and its devices made, where there is one and they are not there yet. To be called before the process
/// gives up its rights. If this fails, no GPU is found later, which is logged then.
pub fn load_driver() {
    if Path::new(DEVICE).exists() || !Path::new(PROGRAM).exists() {
        return;
    }
    let mut command = Command::new(PROGRAM);
    command.args(["-u", "-c=0"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(e) = command.status() {
        log::info!("the GPU's driver was not loaded: {e}");
    }
}
