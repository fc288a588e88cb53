//! GPUs that the kernel lists, with or without a driver for them.

use std::fs;

/// Whether the list of PCI devices contains a display controller made by NVIDIA.
pub fn is_installed() -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    devices.map(|device| device.path()).any(|device| {
        read(device.join("vendor")).trim() == "0x10de" && read(device.join("class")).starts_with("0x03")
    })
}
